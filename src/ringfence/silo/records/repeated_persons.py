"""Advice on persons whom the schema does not protect as it may seem: for a silo's operator alone."""

import unicodedata
from collections import Counter
from collections.abc import Collection

import numpy as np

from ringfence.accounting import gaussian_shift
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.protocol.schema.drafted_types import may_identify_persons
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records.storage import GrowingArray
from ringfence.sources import Chunk

_MOST = 100
"""Values with more rows than this on average are groups, such as wards, rather than persons."""


class PersonAdvice:
    """The column of persons that a table's schema names, or those that may be one, as they are read."""

    def __init__(self, columns: TableColumns) -> None:
        """Begin with a schema's table."""
        self._columns = columns
        self._words: dict[str, GrowingArray] = {}
        self._persons: set[str] = set()

    def add(self, table: Chunk) -> None:
        """Read a chunk's columns that no model reads and whose name or type says whose a row is; empty cells do not."""
        if self._columns.person is not None:
            self._persons.update(table[self._columns.person].texts() if self._columns.person in table else ())
            return
        for name in table:
            column = self._columns.columns.get(name)
            is_identifier = (column is not None and column.is_identifier) or may_identify_persons(name)
            if is_identifier and name not in self._columns.used:
                cells = table[name]
                self._words.setdefault(name, GrowingArray()).add(cells.words()[~cells.empty()])

    def sentences(self) -> list[str]:
        """Return a sentence on each column in which values repeat, or are spelled in several ways, and what to do."""
        if self._columns.person is not None:
            return _advice_on_spellings(self._columns.person, self._persons)
        found = []
        for name, words in self._words.items():
            counts = np.unique(words.array(), return_counts=True)[1]
            repeated, rows = int(np.count_nonzero(counts > 1)), int(counts.sum())
            if repeated and rows <= _MOST * len(counts):
                share, most = f"{100 * repeated / len(counts):.3g} %", counts.max()
                paid = gaussian_epsilon(most * gaussian_shift(1.0, 1e-6), 1e-6)
                found.append(
                    f"column '{name}': {share} of its {len(counts)} values are in several rows, up to {most}. If it "
                    "identifies persons, plans protect each of their rows and not the person: where a plan states "
                    f"epsilon 1 at delta 1e-6, it is about {paid:.3g} for one with {most} rows. With "
                    f'`person = "{name}"` in the schema, the stated epsilon holds for each of {len(counts)} persons '
                    "with all their rows."
                )
        return found


def _advice_on_spellings(column: str, values: Collection[str]) -> list[str]:
    """Return a sentence if values that identify persons differ in capitals or in the form of characters alone."""
    forms = Counter(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", each).casefold()) for each in values)
    alike = sum(count for count in forms.values() if count > 1)
    if not alike:
        return []
    return [
        f"column '{column}': {alike} of its {len(values)} values differ from another one in capitals or the form of "
        "characters alone (Unicode's NFKC and case folding), but count as different persons. If they are spellings of "
        "one, correct them: a plan protects only the rows under one spelling together."
    ]
