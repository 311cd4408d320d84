"""The check of pages in a browser finds what it is for."""

from pathlib import Path

from ringfence.html.markup import document, section, tag
from tests.browser import Window


def test_a_page_that_shuts_people_out_is_found_out(window: Window, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    sound = document("A page", tag("h1", "A page"), section("A part", tag("p", "Words."), tag("button", "Go")))
    page.write_text(sound)
    assert window.open(page.as_uri()).faults() == []
    page.write_text(sound.replace("<p>", "<pre>" + "x" * 400 + "</pre><table><tr><td>" + "x" * 400 + "</table><p>"))
    found = " ".join(window.open(page.as_uri()).faults())
    assert "px too wide" in found
    assert "scrollable-region-focusable" in found
    page.write_text(sound.replace("<button>Go", "<img src='data:,'><input><button></button><h5>e</h5>"))
    found = " ".join(window.open(page.as_uri()).faults())
    for rule in ("image-alt", "label", "button-name", "heading-order"):
        assert f"{rule}:" in found


def test_a_button_off_screen_and_faint_letters_in_the_dark_are_found_out(window: Window, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    content = document(
        "A page", tag("h1", "A page"), tag("p", "Words."), tag("div", tag("button", "Go"), class_="wide")
    )
    policy, _, rest = content.partition('<meta http-equiv="Content-Security-Policy"')
    content = policy + rest.partition(">")[2]  # so that this test may have a style of its own
    style = (
        ".wide { overflow: hidden; } .wide button { margin-left: 90vw; width: 300px; } p { color: #1c2430; }</style>"
    )
    page.write_text(content.replace("</style>", style))
    found = window.open(page.as_uri()).faults()
    assert "390 px: 'Go' is off screen" in found
    assert any(fault.startswith("dark, 390 px: color-contrast") for fault in found)
    assert not any(fault.startswith("light") and "<p>" in fault for fault in found)
