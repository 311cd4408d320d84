"""Pages that commands write for few readers, looked at in a real browser: of a silo's own model, and of a choice."""

from pathlib import Path

import pytest

from tests.browser import Window
from tests.cli.conftest import Federation, ringfence
from tests.cli.test_silo_own import Owner


def check(window: Window, page: Path, heading: str) -> None:
    """See that a page loads nothing else, and has no fault for phones, dark screens, keyboards and screen readers."""
    visit = window.open(page.as_uri())
    visit.page.wait_for_load_state("networkidle")
    assert heading in visit.page.inner_text("h1")
    assert visit.elsewhere(page.as_uri()) == []
    assert visit.console == []
    assert visit.faults() == []


@pytest.mark.parametrize("target", ["cost", "ill"])
def test_the_pages_of_a_silo_s_own_model_have_no_fault(window: Window, federation: Federation, target: str) -> None:
    owner = Owner(federation, target)
    made = owner.json("personalise", owner.model)
    check(window, Path(made["page"]), "model of silo 'north'")
    check(window, Path(owner.json("compare", owner.model)["page"]), "What silo 'north' gains")


def test_the_page_of_a_model_that_was_chosen_from_candidates_has_no_fault(
    window: Window, federation: Federation
) -> None:
    page = federation.folder / "chosen.html"
    ringfence(*federation.train("--try", "ridge=0,0.1", "--max-rounds", "4", "--report", page, exact=False))
    assert "Which candidate was chosen" in page.read_text()
    check(window, page, "ill")
