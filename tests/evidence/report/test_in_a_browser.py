"""Every kind of report, looked at in a real browser."""

import re
from pathlib import Path

import pytest

from tests.browser import DESK, PHONE, SCHEMES, Visit, Window
from tests.evidence.report.conftest import HOSTILE

KINDS = ["train", "server-run", "audit", "statistics", "summary", "reproduce"]

BOXES = """
[...document.querySelectorAll('figure svg, img')].map(element => {
  const box = element.getBoundingClientRect();
  const loaded = element.tagName !== 'IMG' || element.naturalWidth > 0;
  return [box.width, box.height, loaded && (element.getAttribute('aria-label') || element.alt || '').length > 0];
})
"""
CUT_OFF = """
[...document.querySelectorAll('svg text')].filter(text => {
  const [inner, outer] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
}).map(text => text.textContent)
"""
SMALLEST_TEXT = """
Math.min(99, ...[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height))
"""

FOLDED = """
[...document.querySelectorAll('.fold td[data-label]:not(:empty)')].map(cell => {
  const box = cell.getBoundingClientRect();
  return [getComputedStyle(cell, '::before').content.split(' / ')[0], box.left, box.right];
})
"""
COLOURS = """
[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
 ...[...document.querySelectorAll('svg text, svg polyline, svg rect:not(.paper)')].map(shape => {
   const style = getComputedStyle(shape);
   return shape.tagName === 'polyline' ? style.stroke : style.fill;
 })]
"""


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which report."""
    return str(request.param)


@pytest.fixture(scope="module")
def visit(window: Window, pages: dict[str, Path], kind: str) -> Visit:
    """The report, opened once."""
    return window.open(pages[kind].as_uri())


def test_figures_are_visible_and_described_and_the_console_is_silent(visit: Visit, kind: str) -> None:
    figures = visit.page.evaluate(BOXES)
    expected = {
        "train": (7, 8, 9),
        "server-run": (3,),
        "audit": (1,),
        "statistics": (5,),
        "summary": (1,),
        "reproduce": (2,),
    }
    assert len(figures) in expected[kind]  # noise may hide curves
    assert all(width > 300 and height > 80 and described for width, height, described in figures)
    assert visit.page.evaluate(CUT_OFF) == []
    assert visit.console == []


def test_a_page_asks_for_nothing_but_itself(visit: Visit, pages: dict[str, Path], kind: str) -> None:
    visit.page.wait_for_load_state("networkidle")
    assert visit.requests[0] == pages[kind].as_uri()
    assert visit.elsewhere(pages[kind].as_uri()) == []
    assert visit.page.locator("script, iframe, object, embed, form").count() == 0


def test_a_page_has_no_fault_for_phones_dark_screens_keyboards_and_screen_readers(visit: Visit) -> None:
    assert visit.faults() == []


def test_a_phone_shows_letters_of_a_readable_size(visit: Visit) -> None:
    visit.resize(PHONE)
    assert visit.page.evaluate(SMALLEST_TEXT) >= 10
    assert visit.page.evaluate("parseFloat(getComputedStyle(document.querySelector('p')).fontSize)") >= 13
    visit.resize(DESK)


def test_on_a_phone_a_row_is_a_block_in_which_each_value_stands_beside_its_name_within_the_screen(
    visit: Visit, kind: str
) -> None:
    if kind == "reproduce":
        return  # its tables scroll by themselves
    visit.resize(PHONE)
    cells = visit.page.evaluate(FOLDED)
    visit.resize(DESK)
    assert cells
    assert all(label in ("", "none") or label.strip('"') for label, _, _ in cells)
    assert any(label.strip('"') not in ("", "none") for label, _, _ in cells)
    assert all(left >= 0 and right <= PHONE for _, left, right in cells)
    assert all(content == "none" for content, _, _ in visit.page.evaluate(FOLDED))  # a wide screen shows columns


def test_in_the_dark_paper_and_figures_turn_and_on_paper_they_do_not(visit: Visit) -> None:
    shown = {}
    for scheme in SCHEMES:
        visit.page.emulate_media(color_scheme=scheme)
        shown[scheme] = visit.page.evaluate(COLOURS)
    visit.page.emulate_media(color_scheme="dark", media="print")
    printed = visit.page.evaluate(COLOURS)
    visit.page.emulate_media(color_scheme="light", media="screen")
    assert printed == shown["light"]
    assert all(light != dark for light, dark in zip(shown["light"], shown["dark"], strict=True))


def test_printed_all_sections_are_there(visit: Visit, kind: str) -> None:
    headings = visit.page.locator("h1, h2, h3").all_inner_texts()
    visit.page.emulate_media(media="print")
    shown = [heading.inner_text() for heading in visit.page.locator("h1, h2, h3").all() if heading.is_visible()]
    printed = visit.page.pdf(format="A4", outline=True, tagged=True, prefer_css_page_size=True)
    visit.page.emulate_media(media="screen")
    assert shown == headings
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", printed)) >= (1 if kind == "audit" else 2)
    assert len(re.findall(rb"/Title ", printed)) >= len(headings)  # the outline has an entry for each


def test_a_hostile_silo_name_stays_text(visit: Visit, kind: str) -> None:
    if kind in ("train", "server-run"):
        assert visit.page.get_by_role("rowheader", name=HOSTILE, exact=True).count() >= 1
        assert visit.page.locator("img").count() == 0
    assert visit.page.locator("[onerror]").count() == 0


def test_a_script_that_got_into_a_page_would_not_run(window: Window, pages: dict[str, Path], tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.html"
    spoiled.write_text(pages["train"].read_text().replace("<main>", "<main><script>window.ran = true</script>"))
    visit = window.open(spoiled.as_uri())
    assert visit.page.evaluate("window.ran") is None
    assert any("Content Security Policy" in line for line in visit.console)


def test_scrolling_parts_are_reached_by_keyboard(window: Window, pages: dict[str, Path]) -> None:
    page = window.open(pages["train"].as_uri(), width=PHONE).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.scroll[tabindex]')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # and one sees where
