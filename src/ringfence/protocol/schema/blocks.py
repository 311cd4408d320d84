"""Blocks of the feature vector: the features of one column, or of a public map of columns."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.schema.columns.base import ReadColumn, Reading
from ringfence.sources.cells import Table, as_cells

Readings: TypeAlias = Mapping[str, Reading]
"""Columns' cells as they were read, by the columns' names."""


class Block:
    """Some features beside each other, each a function of the record's own cells, by the public schema alone."""

    width: int
    """How many features there are."""
    bound: float
    """The largest norm of them together."""
    constant: float = 0.0
    """The sum of the features, if it is the same for every record; else 0."""

    @property
    def repeats(self) -> NDArray[np.bool_]:
        """Tell which features are sums of others and of a constant that other blocks, or an intercept, have too."""
        return np.arange(self.width) < (self.constant > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each feature of a block."""
        raise NotImplementedError

    @property
    def scaling(self) -> Sequence[tuple[float, float]]:
        """Offset and unit of each feature of a block, in the numbers of `plain`."""
        return ((0.0, 1.0),) * self.width

    def features(self, readings: Readings) -> FloatArray:
        """Return the features of a block, a row for each record."""
        raise NotImplementedError

    def plain(self, table: Table, readings: Readings) -> FloatArray:
        """Return the features in numbers for people: the table's own ones, or, of a map, what it makes of them."""
        return self.features(readings)


class ColumnBlock(Block):
    """The features of one column, without a map."""

    def __init__(self, name: str, column: ReadColumn) -> None:
        """Make the block of a single column's own features."""
        self.name, self.column = name, column
        self.width, self.bound, self.constant = len(column.scaling), column.bound, column.constant

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features in the block of a single column."""
        return self.column.feature_names(self.name)

    @property
    def scaling(self) -> Sequence[tuple[float, float]]:
        """Offset and unit of each feature in the block of a single column."""
        return self.column.scaling

    def features(self, readings: Readings) -> FloatArray:
        """Return the features in the block of a single column."""
        return self.column.features(readings[self.name])

    def plain(self, table: Table, readings: Readings) -> FloatArray:
        """Return the table's own numbers for the block of a single column, which need not keep the bounds."""
        return self.column.plain(as_cells(table[self.name]))


class Blocks(tuple[Block, ...]):
    """Blocks beside each other."""

    __slots__ = ()

    @property
    def width(self) -> int:
        """How many features several blocks have together."""
        return sum(block.width for block in self)

    @property
    def bound(self) -> float:
        """The largest norm of the features of several blocks together."""
        return math.sqrt(sum(block.bound**2 for block in self))

    @property
    def names(self) -> list[str]:
        """A name for each feature of several blocks."""
        return [name for block in self for name in block.names]

    def features(self, readings: Readings) -> FloatArray:
        """Return all features of several blocks, a row for each record."""
        return np.concatenate([block.features(readings) for block in self], axis=1)
