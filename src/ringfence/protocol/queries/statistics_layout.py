"""Which numbers tell how columns are distributed: what silo and server share of `Statistics`, from public facts alone.

No number is redundant, so nothing that is made of them can contradict anything else. Each part is weighted so that a
share, whichever it is (of a category, of the values below a threshold on average, of a cell of a cross table beside
its margins), gets noise of one size.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.columns import OneOf, Scaled
from ringfence.protocol.schema import Schema

QUARTERS = 4
"""Into how many cells a cross table divides a numeric column: the two top levels of its tree."""

MOST_NUMBERS = 1_000_000

_DECADES = np.arange(-55, 72) / 4
MAGNITUDES: FloatArray = np.concatenate([-(10.0 ** _DECADES[::-1]), [0.0], 10.0**_DECADES])
"""The edges between 256 bins of a column whose bounds nobody knows: four to a decade, up to 10¹⁸, of either sign."""


@dataclass(frozen=True)
class Categories:
    """One number for each cell of a categorical column: an empty cell is the last, if there may be any."""

    column: OneOf

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.column.classes) + self.may_be_empty

    coarse = cells

    @property
    def may_be_empty(self) -> bool:
        """Whether the schema allows for empty cells."""
        return self.column.may_be_empty

    @property
    def length(self) -> int:
        """How many numbers it takes."""
        return self.cells

    @property
    def weight(self) -> float:
        """What one record adds to its cell's number: noise then errs by σ in a share, known to add up to 1."""
        return math.sqrt(1 - 1 / self.cells)

    @property
    def largest(self) -> float:
        """The largest number of one record's term."""
        return self.weight

    @property
    def squared(self) -> float:
        """The square of how far replacing a record moves these numbers: from one cell to another."""
        return 2 * self.weight**2


@dataclass(frozen=True)
class Tree:
    """A numeric column between its public bounds, halved again and again.

    One number for each node, from the root down: the records in its upper half minus those in its lower half. Then,
    with public bounds, two that are at most 1 in size for each record: how far it lies from its bin's middle, in half
    bins, and how far its square does, in units of what that can be; so that mean and variance know of no bins. Last,
    where there may be any, the empty cells.
    """

    column: Scaled
    bins: int

    @property
    def edges(self) -> FloatArray:
        """The inner edges of the bins; a bin holds its lower one."""
        if self.column.is_unbounded:
            return np.clip(MAGNITUDES, self.column.low, self.column.high)
        width = self.column.high - self.column.low
        return self.column.low + width * (np.arange(1, self.leaves) / self.leaves)

    @property
    def leaves(self) -> int:
        """How many bins there are."""
        return len(MAGNITUDES) + 1 if self.column.is_unbounded else self.bins

    @property
    def levels(self) -> int:
        """How often the range is halved."""
        return self.leaves.bit_length() - 1

    @property
    def may_be_empty(self) -> bool:
        """Whether the schema allows for empty cells."""
        return self.column.may_be_empty

    @property
    def coarse(self) -> int:
        """How many cells it has in a cross table."""
        return QUARTERS + self.may_be_empty

    @property
    def length(self) -> int:
        """How many numbers it takes."""
        return self.leaves - 1 + (0 if self.column.is_unbounded else 2) + self.may_be_empty

    @property
    def weight(self) -> float:
        """What one record adds to a node's number.

        The share below the k-th edge has a node's number with the factor min(f, 1 − f), f the part of the node below
        it. The mean of their squares over all edges is 1/12 + 4^−j/24 with j levels below the node's; with this weight
        the share's noise has the variance σ² on average.
        """
        return math.sqrt(self.levels / 12 + (1 - 4.0**-self.levels) / 18)

    @property
    def fine(self) -> float:
        """What the two numbers about places within bins are multiplied by, beside the weight: 0 if there are none.

        A mean's noise has the variance (1/8 + 1/(2·bins·fine)²)/weight² at a squared sensitivity of
        weight²·(2·levels + 2 + 5·fine²), each times σ² or its inverse: this makes the product least, to first order.
        """
        return 0.0 if self.column.is_unbounded else (0.8 * (self.levels + 1)) ** 0.25 / math.sqrt(self.leaves)

    @property
    def empty(self) -> float:
        """What an empty cell adds to the number of empty cells: as much as goes without raising the sensitivity."""
        return self.weight * math.sqrt(self.levels + 2)

    @property
    def largest(self) -> float:
        """The largest number of one record's term."""
        return self.empty if self.may_be_empty else self.weight

    @property
    def squared(self) -> float:
        """The square of how far replacing a record moves these numbers: from one half of the range to the other."""
        return self.weight**2 * (2 * self.levels + 2 + 5 * self.fine**2)


@dataclass(frozen=True)
class Association:
    """What a cross table says beyond its margins: the cells' shares, less the means of their row and of their column.

    There are as many numbers as cells, row by row; all rows and all columns of them add up to 0.
    """

    rows: int
    columns: int

    @property
    def length(self) -> int:
        """How many numbers it takes."""
        return self.rows * self.columns

    @property
    def weight(self) -> float:
        """What one record adds to its cell before means are taken off: noise then errs by σ in a cell's number."""
        return math.sqrt((1 - 1 / self.rows) * (1 - 1 / self.columns))

    @property
    def largest(self) -> float:
        """The largest number of one record's term."""
        return self.weight**3

    @property
    def squared(self) -> float:
        """The square of how far replacing a record moves these numbers: along the longer side of the table."""
        return 2 * (1 - 1 / max(self.rows, self.columns)) * self.weight**2


ColumnPart: TypeAlias = Categories | Tree


@dataclass(frozen=True)
class Layout:
    """All parts of an answer: of columns, then of pairs of them."""

    columns: Mapping[str, ColumnPart]
    cross: Mapping[tuple[str, str], Association]

    @classmethod
    def of(cls, data: Schema, columns: Sequence[str], cross: Sequence[tuple[str, str]], bins: int) -> "Layout":
        """Return the layout; ValueError if the schema has no such column, or a cross table would need its bounds."""
        for name in columns:
            if name not in data.used:
                raise ValueError(f"statistics are asked about the column '{name}', which the schema does not read")
        used = {name: data.used[name] for name in columns}
        parts: dict[str, ColumnPart] = {}
        for name, column in used.items():
            if isinstance(column, Scaled):
                parts[name] = Tree(column, bins)
            elif isinstance(column, OneOf):
                parts[name] = Categories(column)
            else:
                raise ValueError(f"statistics need numbers or categories, and the column '{name}' has neither")
        for name in {name for pair in cross for name in pair}:
            if used[name].is_unbounded:
                raise ValueError(f"a cross table needs public bounds of the column '{name}'")
        tables = {(a, b): Association(parts[a].coarse, parts[b].coarse) for a, b in cross}
        layout = cls(parts, tables)
        if layout.length > MOST_NUMBERS:
            raise ValueError(f"these statistics have {layout.length} numbers, and only {MOST_NUMBERS} are allowed")
        return layout

    @property
    def parts(self) -> list[ColumnPart | Association]:
        """All parts, in order."""
        return [*self.columns.values(), *self.cross.values()]

    @property
    def length(self) -> int:
        """How many numbers an answer has."""
        return sum(part.length for part in self.parts)

    @property
    def unit(self) -> float:
        """What every number is divided by, so that no record adds more than 1 to any."""
        return max(part.largest for part in self.parts)

    @property
    def squared(self) -> float:
        """The square of how far replacing a record moves the sum over records, before that division."""
        return math.fsum(part.squared for part in self.parts)

    def slices(self) -> dict[str | tuple[str, str], slice]:
        """Return where each column's numbers and each cross table's stand."""
        keys: list[str | tuple[str, str]] = [*self.columns, *self.cross]
        ends = itertools.accumulate(part.length for part in self.parts)
        return {key: slice(end - part.length, end) for key, part, end in zip(keys, self.parts, ends, strict=True)}
