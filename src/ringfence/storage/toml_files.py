"""TOML: reading what somebody else may have written (a schema, a list of keys, a silo's settings), and writing."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfence.storage.files import SIZE_LIMIT, read_regular

_DOTS = 5000


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file's content; OSError if it cannot be read, ValueError with one phrase if it is not usable.

    Time and memory are bounded by the file's size: what the parser would need more for is refused.
    """
    text = read_regular(path, SIZE_LIMIT).decode("utf-8")
    # A name of n parts, a.b.c.…, costs the parser n² in time and memory, and dots that are not in names cannot be told
    # apart from those that are without parsing.
    if sum(line.count(".") ** 2 for line in text.splitlines()) > _DOTS**2:
        raise ValueError(f"it has lines with thousands of dots; use shorter lines, with {_DOTS} dots in all")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def toml_text(content: Mapping[str, Any]) -> str:
    """Write a TOML document, whatever characters are in its names and strings."""
    import tomli_w  # on first use: what only reads, as a courier does, needs the standard library alone

    return tomli_w.dumps(content)
