"""Text that somebody else wrote, made fit to be read: by a terminal, by a browser, inside a sentence of ours.

A name in a plan, a category, a note, a file's name can hold characters that no reader sees but that move, hide or
repaint what stands around them: escape sequences, controls that turn the direction of writing, ends of lines. Whatever
is not plainly visible is therefore written as an escape, `\\u202e`, before a person reads it.
"""

import re
import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode's categories of controls, formats, surrogates, private and unassigned characters, ends of lines."""

# Letters and marks by category, but not seen: fillers, joiners, variation selectors (Unicode's default ignorables).
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN = re.compile(r"[ -~]*")


def visible(text: str) -> str:
    """Return the text in one line in which every character can be seen; what could not is an escape.

    Text of visible characters and spaces stays as it is, in any script.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_escaped(character) if _is_hidden(character) else character for character in text)


def visible_lines(text: str) -> str:
    """Return the same for a text of ours that may have several lines: its line feeds stay."""
    return "\n".join(visible(line) for line in text.split("\n"))


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or _IGNORED.match(character) is not None


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
