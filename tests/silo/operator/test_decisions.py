"""The operator's page: plans are reviewed and decided in a real browser, by keyboard."""

import getpass
from collections.abc import Iterator

import pytest

from ringfence.protocol import RefusalReason, against_words
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.operator import decisions
from tests.browser import Visit, Window
from tests.silo.agents import approved, serving
from tests.silo.operator.desk import Desk, entered, press, state, wait_with
from tests.support import MakePlan, approved_by, ask, refusal, vector


def test_a_plan_is_reviewed_approved_and_stopped_with_the_keyboard_alone(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of()
    wait_with(silo_folder, plan)
    visit = window.open(desk.address)
    visit.page.locator("#token:focus").wait_for()  # by itself, but not before the page is drawn
    visit.page.keyboard.type(desk.token)
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("heading", name="Plans awaiting your decision").wait_for()
    press(visit, "Tab", until="Review")
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("heading", name="What it would reveal").wait_for()
    assert "each of 40 records" in visit.page.inner_text("main")
    assert state(silo_folder, plan) == "never approved"
    press(visit, "Tab", until="Approve")
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("status").wait_for()
    assert "for each record" in visit.page.get_by_role("status").inner_text()
    assert state(silo_folder, plan) == "running"
    press(visit, "Tab", until="Stop everything now")
    visit.page.keyboard.press("Enter")
    visit.page.get_by_text("Revoked 1 running plan:").wait_for()
    assert state(silo_folder, plan) == "revoked"
    assert visit.console == []
    assert visit.elsewhere(desk.address) == []


def test_a_note_of_the_operator_s_stands_in_the_ledger_beside_who_approved(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    wait_with(silo_folder, plan_of())
    visit = entered(window, desk)
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_label("Note for the ledger").fill("agreed on 3 May")
    visit.page.get_by_role("button", name="Approve").click()
    visit.page.get_by_role("status").wait_for()
    entry = decisions.list_entries(silo_folder)[-1]
    assert (entry["kind"], entry["by"], entry["note"]) == ("approved", getpass.getuser(), "agreed on 3 May")


def test_stopping_takes_effect_at_a_running_agent(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of())
    with serving(silo_folder) as served:
        assert vector(served.ask(plan, 0)).shape == (plan.dimension,)
        visit = entered(window, desk)
        assert "The silo's agent is running" in visit.page.inner_text("main")
        assert "1 of 5" in visit.page.inner_text("main")
        visit.page.get_by_role("button", name="Stop everything now").click()
        visit.page.get_by_role("status").wait_for()
        assert refusal(served.ask(plan, 1)) is RefusalReason.REVOKED
        assert refusal(served.ask(plan, 0)) is RefusalReason.REVOKED


def test_a_refused_plan_waits_no_longer_and_its_file_is_kept_aside(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of()
    path = wait_with(silo_folder, plan)
    visit = entered(window, desk)
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_role("button", name="Refuse").click()
    visit.page.get_by_text("no round of it will be answered").wait_for()
    assert visit.page.get_by_role("button", name="Review").count() == 0
    assert not path.exists()
    assert path.with_name("plan.json.refused").exists()
    assert state(silo_folder, plan) == "never approved"


def test_a_plan_can_be_pasted_and_finished(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of()
    visit = entered(window, desk)
    visit.page.get_by_label("Paste a plan").fill(plan.content.decode())
    visit.page.get_by_role("button", name="Add the plan").click()
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_role("button", name="Approve").click()
    visit.page.get_by_role("button", name="Finish").click()
    visit.page.get_by_role("heading", name="Ended plans").wait_for()
    assert state(silo_folder, plan) == "finished"
    visit.page.get_by_role("button", name="Ledger").click()
    kinds = visit.page.locator("tbody td:nth-child(3)").all_inner_texts()
    assert kinds[:2] == ["ended", "approved"]
    assert kinds[-2:] == ["budget", "opened"]


def test_a_plan_beyond_the_budget_cannot_be_approved_and_says_why(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of(epsilon=5.0)
    wait_with(silo_folder, plan)
    visit = entered(window, desk)
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_text("The gate would NOT approve it").wait_for()
    assert visit.page.get_by_role("button", name="Approve").count() == 0
    status, page = desk.post("/approve", {"key": desk.key(), "plan": plan.digest()})
    assert status == 409
    assert "more than its budget" in page
    assert state(silo_folder, plan) == "never approved"


def test_an_approval_that_is_sent_twice_counts_once(desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    plan = plan_of()
    wait_with(silo_folder, plan)
    key = desk.key()
    assert desk.post("/approve", {"key": key, "plan": plan.digest()})[0] == 200
    entries = len(decisions.list_entries(silo_folder))
    assert desk.post("/approve", {"key": key, "plan": plan.digest()})[0] == 409
    assert len(decisions.list_entries(silo_folder)) == entries


def budget_of(silo_folder: SiloFolder) -> Budget:
    with silo_folder.ledger() as ledger:
        return ledger.account().budget


@pytest.fixture(autouse=True)
def _as_it_was(silo_folder: SiloFolder) -> Iterator[None]:
    """One silo serves all tests: leave its budget as it was."""
    before = budget_of(silo_folder)
    yield
    if budget_of(silo_folder) != before:
        decisions.set_budget(silo_folder, before, note="a test")


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


def test_without_a_reason_the_browser_sends_nothing(window: Window, desk: Desk, silo_folder: SiloFolder) -> None:
    before = decisions.list_entries(silo_folder)
    visit = entered(window, desk)
    fill(visit, epsilon="3.5", delta="1e-6")
    assert visit.page.evaluate("document.activeElement.id") == "reason"
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
        ({"epsilon": "3.5", "delta": "1e-6", "reason": "  "}, "Give a reason for the new budget"),
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


def test_a_limit_for_plans_that_trust_a_shuffler_is_kept_and_can_be_set(
    desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.current_records(ledger), ledger, silo_folder.key())
        vector(ask(gate, approved_by(gate, plan_of(epsilon=0.01)), 0))
    wanted = {"epsilon": "2", "delta": "1e-6", "anyone": "7.5", "reason": "we trust a shuffler"}
    everybody = against_words("anyone").capitalize()
    assert everybody not in desk.post("/enter", {"token": desk.token})[1]
    status, page = desk.post("/budget", {"key": desk.key(), **wanted})
    assert status == 200
    assert budget_of(silo_folder) == Budget(2.0, 1e-6, anyone=7.5)
    assert 'name="anyone" value="7.5"' in page
    assert f"{everybody}: epsilon 2 at delta" in page  # as the first answer found it
    assert "Of the budget of epsilon 7.500 at delta" in page
