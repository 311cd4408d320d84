"""Markup: what is text stays text, and every page forbids itself to load or run anything."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import visible_lines
from ringfence.html.markup import POLICY, Html, bullets, document, outline, readable, table, tag, together
from ringfence.html.style import DARK, DARK_SERIES, LIGHT, SERIES, STYLE


class Reader(HTMLParser):
    """Collects a document's elements, attributes and text."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.values: list[str | None] = []
        self.text = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_whatever_text_is_given_comes_back_as_visible_text_in_children_and_attributes(text: str) -> None:
    read = Reader(tag("p", text, title=text))
    assert read.elements == ["p"]
    assert read.text == visible_lines(text)
    assert read.values == [visible_lines(text)]


def test_only_html_is_taken_as_it_is() -> None:
    assert together("<b>", Html("<i>"), None, 3) == "&lt;b&gt;<i>3"
    assert isinstance(tag("p"), Html)
    assert not isinstance(tag("p") + "<b>", Html)  # adding text to it gives text


def test_attributes_are_left_out_or_stand_alone_by_their_truth() -> None:
    assert tag("input", required=True, disabled=False, value=None, class_="a", aria_label="b") == (
        '<input required class="a" aria-label="b">'
    )


def test_a_table_escapes_its_cells_and_names_itself() -> None:
    made = table("Cap<tion", ["<a>", "b"], [["<x>", 0.123456], ["y", "<z>"]])
    read = Reader(made)
    assert set(read.elements) == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert "<x>" in read.text
    assert "0.1235" in read.text
    assert "Cap<tion" in read.values


def test_a_tables_cells_name_their_columns_and_no_header_is_empty() -> None:
    made = table("Plans", ["plan", "rounds", ""], [["a", 3, "x"]])
    assert '<td class="number" role="cell" data-label="rounds">3</td><td role="cell">x</td>' in made
    assert made.count('scope="col"') == 2
    assert made.count('scope="row"') == 1
    assert "<thead" not in table("Facts", ["", ""], [["a", "b"]])


def test_an_outline_turns_margins_into_headings_lists_and_prose() -> None:
    text = (
        "What\n\n  - one\n    more\n  - two\n\n  In words: a\n  b:\n  - c\n    d\n\nWhy\n\n  only this\n\nThe end <b>."
    )
    assert outline(text) == (
        "<h3>What</h3><ul><li>one more</li><li>two</li></ul><p>In words: a b:</p><ul><li>c d</li></ul>"
        "<h3>Why</h3><ul><li>only this</li></ul><p>The end &lt;b&gt;.</p>"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("delta = 6.3e-06.", "delta = 6.3\u00a0×\u00a010⁻⁶."),
        ("1e-05, 2e+12", "1\u00a0×\u00a010⁻⁵, 2\u00a0×\u00a010¹²"),
        ("plan 86e41571e52d", "plan 86e41571e52d"),
        ("version 1.2e3.4x", "version 1.2\u00a0×\u00a010³.4x"),
        ("no number", "no number"),
    ],
)
def test_scientific_numbers_are_written_as_people_write_them(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_a_document_forbids_everything_but_its_own_style_and_inner_images() -> None:
    page = document("A <title>", bullets("x"))
    read = Reader(page)
    assert f"{POLICY}; form-action 'none'" in read.values
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    assert not {"script", "iframe", "object"} & set(read.elements)
    assert not re.search(r"https?://|url\(|@import|</style", STYLE)
    assert "A <title>" in read.text


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_all_text_has_the_contrast_that_accessibility_asks_for(colours: dict[str, str]) -> None:
    for paper in ("paper", "wash"):
        for ink in ("ink", "soft", "blue", "warn"):
            assert contrast(colours[paper], colours[ink]) >= 4.5, (paper, ink)
    for button in ("blue", "danger"):
        assert contrast(colours[button], colours[f"on-{button}"]) >= 4.5, button


@pytest.mark.parametrize(("colours", "series"), [(LIGHT, SERIES), (DARK, DARK_SERIES)], ids=["light", "dark"])
def test_what_is_drawn_has_the_contrast_that_accessibility_asks_of_figures_and_edges(
    colours: dict[str, str], series: tuple[str, ...]
) -> None:
    for paper in ("paper", "wash"):
        for drawn in (colours["edge"], colours["focus"], colours["danger"], *series):
            assert contrast(colours[paper], drawn) >= 3, (paper, drawn)


def test_every_colour_has_a_value_for_light_and_for_dark() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert len(SERIES) == len(DARK_SERIES) == len(set(SERIES)) == len(set(DARK_SERIES))
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE))
    assert used == {*LIGHT, *(f"series-{number}" for number in range(len(SERIES)))}
