"""Foreign text: whatever somebody wrote can be seen, and stays in its line."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import visible, visible_lines
from tests.generated import examples


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\u001b[2J"),
        ("\x9b2J", r"\u009b2J"),
        ("\x07\b\r\x7f\x85", r"\u0007\u0008\u000d\u007f\u0085"),
        ("a\nb\tc", r"a\u000ab\u0009c"),
        ("\u202agnp.\u202e\u2066\u2069", r"\u202agnp.\u202e\u2066\u2069"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("a\u200bb\u200dc\ufeffd\u00ade", r"a\u200bb\u200dc\ufeffd\u00ade"),
        ("\ue000\udc9b\u0378\U000e0041", r"\ue000\udc9b\u0378\U000e0041"),
        ("a\u3164b\ufe0fc\u034f", r"a\u3164b\ufe0fc\u034f"),
    ],
)
def test_what_cannot_be_seen_or_moves_others_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["", "ward 7 (north)", "größe", "年齢", "возраст", "عمر", "उम्र", "a\u0301", "€ ≤ 5 [bold]"]
)
def test_visible_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@given(st.text())
@examples(1000)
def test_the_result_is_one_line_that_stays_the_same_if_it_is_shown_again(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert shown.splitlines() == ([shown] if shown else [])
    assert visible(shown) == shown


def test_our_own_line_feeds_stay_and_no_other_end_of_a_line() -> None:
    assert visible_lines("a\nb\r\nc\u2028d\x85e") == "a\nb\\u000d\nc\\u2028d\\u0085e"
