"""The operator's page has no fault on a phone, in the dark, by keyboard and through a screen reader."""

from ringfence.silo.folder import SiloFolder
from ringfence.silo.operator import decisions
from tests.browser import PHONE, Window
from tests.silo.agents import approved
from tests.silo.operator.desk import Desk, entered, wait_with
from tests.support import MakePlan


def test_no_page_has_a_fault(window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan) -> None:
    ended = approved(silo_folder, plan_of(epsilon=0.3))
    decisions.end_plan(silo_folder, ended.digest(), revoke=False)
    approved(silo_folder, plan_of(epsilon=0.2))
    wait_with(silo_folder, plan_of(epsilon=0.5))
    (silo_folder.path / "plans" / "no-plan.json").write_text("{}")
    entrance = window.open(desk.address)
    assert entrance.faults() == []
    entrance.page.get_by_label("token").fill("wrong")
    entrance.page.get_by_role("button", name="Sign in").click()
    entrance.page.get_by_role("status").wait_for()
    assert entrance.faults() == []
    assert window.open(f"{desk.address}nothing").faults() == []
    visit = entered(window, desk)
    visit.page.get_by_text("Change the budget").click()
    for heading in ("Running plans", "Plans awaiting your decision", "Ended plans"):
        assert visit.page.get_by_role("heading", name=heading).count() == 1
    assert visit.faults() == []
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_role("button", name="Approve").wait_for()
    assert visit.faults() == []
    visit.page.get_by_role("button", name="Ledger").click()
    visit.page.get_by_role("heading", name="The ledger").wait_for()
    assert visit.faults() == []


def test_on_a_phone_every_decision_is_within_the_screen_and_each_button_names_its_plan(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    running, waiting = approved(silo_folder, plan_of(epsilon=0.2)), plan_of(epsilon=0.5)
    wait_with(silo_folder, waiting)
    visit = entered(window, desk, width=PHONE)
    named = {
        "Finish": running, "Revoke": running, "Review": waiting,
    }  # fmt: skip
    for label, plan in named.items():
        button = visit.page.get_by_role("button", name=f"{label} plan {plan.digest()[:12]}", exact=True)
        box = button.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE
        assert min(box["width"], box["height"]) >= 24  # WCAG 2.5.8


def test_what_came_of_a_decision_takes_the_focus_so_that_a_screen_reader_says_it(
    window: Window, desk: Desk, silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    plan = plan_of()
    wait_with(silo_folder, plan)
    visit = entered(window, desk)
    visit.page.get_by_role("button", name="Review").click()
    visit.page.get_by_role("button", name="Approve").click()
    visit.page.locator("[role=status]:focus").wait_for()
    visit.page.get_by_label("Paste a plan").fill("{}")
    visit.page.get_by_role("button", name="Add the plan").click()
    visit.page.locator("[role=alert]:focus").wait_for()
