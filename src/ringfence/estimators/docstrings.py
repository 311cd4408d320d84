"""One docstring for each estimator, in NumPy's layout: its own words, and the sections of the classes it builds on."""

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

Documented = TypeVar("Documented", bound=type)

SECTIONS = ("Parameters", "Attributes", "Notes", "Examples")

_HEADING = re.compile(r"^(?P<name>\w+)\n-{4,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(?=[^\s].* : )", re.MULTILINE)


def documented(estimator: Documented) -> Documented:
    """Add what its bases say under each heading, so that help shows every parameter and attribute.

    A base's words above its first heading are for whoever reads the source, and are not inherited.
    """
    texts = [base.__doc__ for base in reversed(estimator.__mro__) if base.__module__.startswith("ringfence")]
    estimator.__doc__ = joined([inspect.cleandoc(text) for text in texts if text])
    return estimator


def sections_of(text: str) -> dict[str, str]:
    """Return a docstring's words by heading; those above the first heading by ''."""
    first, *rest = _HEADING.split(text)
    return {"": first.strip()} | {name: words.strip("\n") for name, words in zip(rest[::2], rest[1::2], strict=True)}


def entries_of(section: str) -> dict[str, str]:
    """Return the entries `names : kind` of a section, with what is said of them, by their names."""
    return {entry.partition(" : ")[0]: entry.strip("\n") for entry in _ENTRY.split(section) if " : " in entry}


def joined(texts: Iterable[str]) -> str:
    """Join docstrings, the most general first; an entry of a later one takes the place of a former one of that name."""
    entries: dict[str, dict[str, str]] = {"Parameters": {}, "Attributes": {}}
    notes: list[str] = []
    last: dict[str, str] = {}
    for text in texts:
        last = sections_of(text)
        for heading in entries:
            entries[heading] |= entries_of(last.get(heading, ""))
        notes += [last["Notes"]] if "Notes" in last else []
    told = {heading: "\n".join(found.values()) for heading, found in entries.items()}
    return laid_out(last | told | {"Notes": "\n\n".join(notes)})


def laid_out(sections: Mapping[str, str]) -> str:
    """Return the docstring of these sections; empty ones are left out."""
    headed = [f"{name}\n{'-' * len(name)}\n{sections[name]}" for name in SECTIONS if sections.get(name)]
    return "\n\n".join([sections[""], *headed])
