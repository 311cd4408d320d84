"""A dossier, looked at in a real browser."""

from pathlib import Path

from ringfence.evidence.dossier.writing import write_dossier
from tests.browser import Window
from tests.evidence.dossier.conftest import Run
from tests.evidence.report.conftest import HOSTILE


def test_a_dossier_loads_and_runs_nothing_and_has_no_fault_for_phones_dark_screens_and_screen_readers(
    run: Run, window: Window, tmp_path: Path
) -> None:
    written = write_dossier(run.everything(), run.file("signing.key"), tmp_path / "dossier.html")
    visit = window.open(written.page.as_uri())
    visit.page.wait_for_load_state("networkidle")
    assert visit.elsewhere(written.page.as_uri()) == []
    assert visit.console == []
    assert visit.page.locator("script, iframe, object, embed, form, img").count() == 0
    assert HOSTILE in visit.page.inner_text("h1")
    assert visit.faults() == []
