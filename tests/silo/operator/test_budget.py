"""The budget is set on the operator's page, with a reason, in a real browser: the ledger has both."""

import getpass
from collections.abc import Iterator

import pytest

from ringfence.protocol.messages import RefusalReason
from ringfence.silo import decisions
from ringfence.silo.budget import Budget
from ringfence.silo.folder import SiloFolder
from tests.browser import Visit, Window
from tests.silo.agents import approved, serving
from tests.silo.operator.desk import Desk, entered, state
from tests.support import MakePlan, refusal, vector


def budget_of(silo_folder: SiloFolder) -> Budget:
    with silo_folder.ledger() as ledger:
        return ledger.account().budget


@pytest.fixture(autouse=True)
def _as_it_was(silo_folder: SiloFolder) -> Iterator[None]:
    """One silo serves all tests: leave its budget as it was."""
    before = budget_of(silo_folder)
    yield
    if budget_of(silo_folder) != before:
        decisions.set_budget(silo_folder, before)


def fill(visit: Visit, **fields: str) -> None:
    """Fill in the form by its labels and send it."""
    visit.page.get_by_text("Change the budget").click()
    for name, value in fields.items():
        visit.page.get_by_label(name.replace("_", " ").capitalize(), exact=name != "reason").fill(value)
    visit.page.get_by_role("button", name="Set the budget").click()


def test_a_budget_is_raised_with_a_reason_that_stands_in_the_ledger_and_on_its_page(
    window: Window, desk: Desk, silo_folder: SiloFolder
) -> None:
    visit = entered(window, desk)
    fill(visit, epsilon="3.5", delta="2e-6", reason="the ethics board agreed on 3 May")
    visit.page.get_by_role("status").wait_for()
    assert "The budget is now epsilon 3.5 at delta 2\u00a0×\u00a010⁻⁶." in visit.page.get_by_role("status").inner_text()
    assert budget_of(silo_folder) == Budget(3.5, 2e-6)
    entry = decisions.list_entries(silo_folder)[-1]
    assert (entry["kind"], entry["by"], entry["note"]) == (
        "budget",
        getpass.getuser(),
        "the ethics board agreed on 3 May",
    )
    visit.page.get_by_text("Change the budget").click()
    assert visit.page.get_by_label("Epsilon", exact=True).input_value() == "3.5"
    assert visit.page.get_by_label("Delta", exact=True).input_value() == "2e-06"
    visit.page.get_by_role("button", name="Ledger").click()
    visit.page.get_by_role("heading", name="The ledger").wait_for()
    assert "the ethics board agreed on 3 May" in visit.page.locator("tbody tr").first.inner_text()
    assert visit.console == []


def test_a_lowered_budget_pauses_what_runs_as_it_does_from_the_command_line(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of())
    with serving(silo_folder) as served:
        assert vector(served.ask(plan, 0)).shape == (plan.dimension,)
        visit = entered(window, desk)
        fill(visit, epsilon="0.01", delta="1e-6", reason="until the review is over")
        visit.page.get_by_role("status").wait_for()
        assert refusal(served.ask(plan, 1)) is RefusalReason.BUDGET
    assert state(silo_folder, plan) == "running"


def test_without_a_reason_the_browser_sends_nothing_and_the_page_changes_nothing(
    window: Window, desk: Desk, silo_folder: SiloFolder
) -> None:
    before = decisions.list_entries(silo_folder)
    visit = entered(window, desk)
    fill(visit, epsilon="3.5", delta="1e-6")
    assert visit.page.evaluate("document.activeElement.id") == "reason"
    status, page = desk.post("/budget", {"key": desk.key(), "epsilon": "3.5", "delta": "1e-6", "reason": "  "})
    assert status == 409
    assert "Give a reason for the new budget" in page
    assert decisions.list_entries(silo_folder) == before


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epsilon": "much", "delta": "1e-6"}, "Enter epsilon as a number"),
        ({"epsilon": "1", "delta": ""}, "Enter delta as a number"),
        ({"epsilon": "nan", "delta": "1e-6"}, "epsilon must be a finite number above 0"),
        ({"epsilon": "inf", "delta": "1e-6"}, "epsilon must be a finite number above 0"),
        ({"epsilon": "1", "delta": "1.5"}, "delta must"),
        ({"epsilon": "3", "delta": "1e-6", "anyone": "2"}, "cannot be lower than"),
        ({"epsilon": "100", "delta": "1e-6"}, "protects almost nobody"),
        ({"epsilon": "1", "delta": "0.5"}, "protects almost nobody"),
    ],
)
def test_a_budget_that_makes_no_sense_or_protects_nobody_is_refused_and_changes_nothing(
    desk: Desk, silo_folder: SiloFolder, fields: dict[str, str], says: str
) -> None:
    before = decisions.list_entries(silo_folder)
    status, page = desk.post("/budget", {"key": desk.key(), "reason": "because", **fields})
    assert status == 409
    assert says in page
    assert decisions.list_entries(silo_folder) == before


def test_a_budget_from_another_site_or_without_a_good_key_changes_nothing(desk: Desk, silo_folder: SiloFolder) -> None:
    before = decisions.list_entries(silo_folder)
    wanted = {"epsilon": "5", "delta": "1e-6", "reason": "because"}
    assert desk.post("/budget", {"key": desk.key(), **wanted}, Origin="http://evil.example")[0] == 403
    assert desk.post("/budget", {"key": "x", **wanted})[0] == 403
    assert decisions.list_entries(silo_folder) == before


def test_a_limit_for_plans_that_trust_a_shuffler_is_kept_and_can_be_set(desk: Desk, silo_folder: SiloFolder) -> None:
    wanted = {"epsilon": "2", "delta": "1e-6", "anyone": "7.5", "reason": "we trust a shuffler"}
    status, page = desk.post("/budget", {"key": desk.key(), **wanted})
    assert status == 200
    assert budget_of(silo_folder) == Budget(2.0, 1e-6, anyone=7.5)
    assert 'name="anyone" value="7.5"' in page
