"""The layout of a `Statistics` answer, computed from public facts alone, at silo and server.

No number is redundant, so estimates cannot contradict each other. Each part is weighted so that every share (of a
category, of the values below a threshold on average, of a cell of a cross table beside its margins) gets noise of the
same size.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.queries.base import slices_of
from ringfence.protocol.schema.columns.categorical import OneOf
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.schema import Schema

QUARTERS = 4
"""Cells of a numeric column in a cross table: the two top levels of its tree."""

MOST_NUMBERS = 1_000_000

_DECADES = np.arange(-55, 72) / 4
MAGNITUDES: FloatArray = np.concatenate([-(10.0 ** _DECADES[::-1]), [0.0], 10.0**_DECADES])
"""The edges of 256 bins for a column without bounds: four to a decade, up to 10¹⁸, of either sign."""


@dataclass(frozen=True)
class Categories:
    """One number per category, and a last one for empty cells, if there may be any."""

    column: OneOf

    @property
    def cells(self) -> int:
        """The number of cells of a categorical column in the statistics' layout, with one for empty cells."""
        return len(self.column.classes) + self.column.may_be_empty

    coarse = length = cells

    @property
    def weight(self) -> float:
        """What one record adds to its cell of a column's categories: shares that add up to 1 then have noise σ."""
        return math.sqrt(1 - 1 / self.cells)

    largest = weight

    @property
    def squared_diameter(self) -> float:
        """The squared diameter of a categorical column's part of the statistics."""
        return 2 * self.weight**2


@dataclass(frozen=True)
class Tree:
    """A binary tree over the bins of a numeric column.

    One number for each node, from the root down: the records in its upper half minus those in its lower half. Then,
    with public bounds, two in ±1 for each record: its distance from its bin's middle, in half bins, and that of its
    square, in units of its largest; so that mean and variance do not depend on the bins. Last, where there may be any,
    the empty cells.
    """

    column: Scaled
    bins: int

    @property
    def edges(self) -> FloatArray:
        """The inner edges of the bins of a column's tree; a bin includes its lower edge."""
        if self.column.is_unbounded:
            return np.clip(MAGNITUDES, self.column.low, self.column.high)
        width = self.column.high - self.column.low
        return self.column.low + width * (np.arange(1, self.leaves) / self.leaves)

    @property
    def leaves(self) -> int:
        """The number of bins at the bottom of a numeric column's tree in the statistics."""
        return len(MAGNITUDES) + 1 if self.column.is_unbounded else self.bins

    @property
    def levels(self) -> int:
        """The number of levels of a column's tree in the statistics."""
        return self.leaves.bit_length() - 1

    @property
    def coarse(self) -> int:
        """The number of cells of a numeric column in a cross table of the statistics."""
        return QUARTERS + self.column.may_be_empty

    @property
    def length(self) -> int:
        """How many numbers of the statistics a column's tree takes."""
        return self.leaves - 1 + (0 if self.column.is_unbounded else 2) + self.column.may_be_empty

    @property
    def weight(self) -> float:
        """What one record adds to the number of a node in a column's tree.

        The share below the k-th edge has a node's number with the factor min(f, 1 − f), f the part of the node below
        it. The mean of their squares over all edges is 1/12 + 4^−j/24 with j levels below the node's; with this weight
        the share's noise has the variance σ² on average.
        """
        return math.sqrt(self.levels / 12 + (1 - 4.0**-self.levels) / 18)

    @property
    def fine(self) -> float:
        """The factor of a tree's two numbers about positions within bins, beside the weight; 0 without them.

        A mean's noise has the variance (1/8 + 1/(2·bins·fine)²)/weight² at a squared sensitivity of
        weight²·(2·levels + 2 + 5·fine²), each times σ² or its inverse: this makes the product least, to first order.
        """
        return 0.0 if self.column.is_unbounded else (0.8 * (self.levels + 1)) ** 0.25 / math.sqrt(self.leaves)

    @property
    def empty(self) -> float:
        """What an empty cell adds to its number beside a tree: the most that leaves the sensitivity as it is."""
        return self.weight * math.sqrt(self.levels + 2)

    @property
    def largest(self) -> float:
        """The most that a record adds to one number of a column's tree."""
        return self.empty if self.column.may_be_empty else self.weight

    @property
    def squared_diameter(self) -> float:
        """The squared diameter of a column's tree in the statistics."""
        return self.weight**2 * (2 * self.levels + 2 + 5 * self.fine**2)


@dataclass(frozen=True)
class Association:
    """A cross table beyond its margins: the cells' shares, less the means of their row and of their column.

    One number per cell, row by row; every row and every column adds up to 0.
    """

    rows: int
    columns: int

    @property
    def length(self) -> int:
        """How many numbers of the statistics a cross table takes."""
        return self.rows * self.columns

    @property
    def weight(self) -> float:
        """What one record adds to its cell of a cross table before centring: a cell's number then has noise σ."""
        return math.sqrt((1 - 1 / self.rows) * (1 - 1 / self.columns))

    @property
    def largest(self) -> float:
        """The most that a record adds to one number of a cross table."""
        return self.weight**3

    @property
    def squared_diameter(self) -> float:
        """The squared diameter of a cross table: of two cells along its longer side."""
        return 2 * (1 - 1 / max(self.rows, self.columns)) * self.weight**2


ColumnPart: TypeAlias = Categories | Tree


@dataclass(frozen=True)
class Layout:
    """All parts of an answer: columns, then cross tables."""

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
        layout = cls(parts, {(a, b): Association(parts[a].coarse, parts[b].coarse) for a, b in cross})
        if layout.length > MOST_NUMBERS:
            raise ValueError(f"these statistics have {layout.length} numbers, and only {MOST_NUMBERS} are allowed")
        return layout

    @cached_property
    def parts(self) -> list[ColumnPart | Association]:
        """The parts of a layout of statistics: columns, then cross tables."""
        return [*self.columns.values(), *self.cross.values()]

    @property
    def length(self) -> int:
        """How many numbers an answer with this layout of statistics has."""
        return sum(part.length for part in self.parts)

    @cached_property
    def unit(self) -> float:
        """The divisor of every number in a layout of statistics, so that no record adds more than 1 to any."""
        return max(part.largest for part in self.parts)

    @property
    def squared_diameter(self) -> float:
        """The squared diameter of a record's term in a layout of statistics, before the division by `unit`."""
        return math.fsum(part.squared_diameter for part in self.parts)

    def slices(self) -> dict[str | tuple[str, str], slice]:
        """Return the slice of the statistics' answer for each column and each cross table."""
        keys: list[str | tuple[str, str]] = [*self.columns, *self.cross]
        return slices_of({key: part.length for key, part in zip(keys, self.parts, strict=True)})
