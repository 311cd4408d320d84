"""Columns that no model reads."""

import re
from typing import Any, Literal

from ringfence.protocol.columns.base import BaseColumn
from ringfence.sources.cells import Cells

_WHOSE = {
    "account", "client", "customer", "employee", "household", "id", "insured", "member", "mrn", "patient", "person",
    "policyholder", "pupil", "ssn", "student", "subject", "user",
}  # fmt: skip


def may_tell_persons(column: str) -> bool:
    """Tell whether a column is called as one that says whose a row is."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column)
    return not _WHOSE.isdisjoint(word.lower().removesuffix("s") for word in words)


class Ignored(BaseColumn):
    """A column that the model does not use: its cells are never read."""

    type: Literal["ignore"] = "ignore"


class Identifier(BaseColumn):
    """A column that names a row, or whose it is: never a feature. `person` and a query's order may go by it."""

    type: Literal["identifier"] = "identifier"

    @classmethod
    def drafted(cls, cells: Cells, name: str) -> dict[str, Any] | None:
        """Take columns that are called so, or hold one word each, 20 or more, of which none occurs twice."""
        codes, distinct = cells.coded()
        if may_tell_persons(name):
            return {}
        words = all(text and not any(map(str.isspace, text)) for text in distinct)
        texts = len(distinct) == len(codes) >= 20 and words
        return {} if texts and not any(value == value for value in cells.numbers()) else None  # noqa: PLR0124 - NaN
