"""Persons: how all rows of a person become one term of an answer.

The only file at a silo, beside the gradient's, that depends on a plan's `person_rule`. `docs/proofs.md`, section
Persons, has the lemmas.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol import FloatArray, Plan
from ringfence.silo.records import exact_sums
from ringfence.silo.records.storage import Unpicklable

MOST_ROWS = 2**20
"""The most rows that a person may have, so that 64 bits hold their sum."""


class Persons(Unpicklable):
    """The person of each row, number_persons from 0; rows are sorted by person.

    `rows` is the number of rows of each person, `first` the index of the first one.
    """

    __slots__ = ("first", "of_row", "rows")

    def __init__(self, of_row: NDArray[np.int64]) -> None:
        """Count the rows of each person, as `number_persons` numbered them."""
        self.of_row = of_row
        self.rows = np.bincount(of_row)
        self.first = np.cumsum(self.rows) - self.rows

    def __len__(self) -> int:
        """Return the number of persons."""
        return len(self.rows)

    def __repr__(self) -> str:
        """Describe the persons without their number or rows."""
        return "<persons, hidden>"

    def shares(self, plan: Plan) -> FloatArray:
        """Return each row's weight, independent of its values: the rows of a person add up to at most 1."""
        if plan.rows_per_person is None:
            return 1.0 / self.rows[self.of_row]
        place = np.arange(len(self.of_row)) - self.first[self.of_row]
        return np.where(place < plan.rows_per_person, 1.0 / plan.rows_per_person, 0.0)

    def sums(self, counts: NDArray[Any], part: slice = slice(None)) -> NDArray[Any]:
        """Add up the whole numbers in the rows of each of these persons."""
        first = self.first[part]
        return np.add.reduceat(counts, first - first[0], axis=0)

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of each person's rows, of numbers of at most 1, shrunk slightly to allow for rounding."""
        sums = self.sums(np.trunc(values * 2.0**exact_sums.ROW_BITS).astype(np.int64))
        kept = 1 - 2.0**-29 * math.sqrt(values.shape[1])
        means: FloatArray = kept * (sums / self.rows[:, None] / 2.0**exact_sums.ROW_BITS)
        return means

    def parts(self, most: int) -> Iterator[tuple[slice, slice]]:
        """Divide the persons into parts of at most that many rows, or one person; yield their persons and rows."""
        ends, start = np.append(self.first, len(self.of_row)), 0
        while start < len(self):
            stop = max(start + 1, int(np.searchsorted(ends, ends[start] + most, side="right")) - 1)
            yield slice(start, stop), slice(int(ends[start]), int(ends[stop]))
            start = stop


def number_persons(cells: Sequence[str], *, source: str) -> NDArray[np.int64]:
    """Number persons in order of appearance; RecordsError if a cell is empty or a person has too many rows.

    Here, when a table is read, so that no round fails by how many rows a person has.
    """
    numbers: dict[str, int] = {}
    if "" in cells:
        raise RecordsError(
            f"{source}, row {list(cells).index('') + 2} names no person: fill in the column that the schema names as "
            "`person`, or remove the row."
        )
    of_row = np.array([numbers.setdefault(cell, len(numbers)) for cell in cells], dtype=np.int64)
    if of_row.size and np.max(np.bincount(of_row)) > MOST_ROWS:
        raise RecordsError(f"{source} has a person with more than {MOST_ROWS} rows: leave some of them out.")
    return of_row
