"""The feature vector's parts: what a column becomes by itself, and what public maps make of columns."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.columns import ReadColumn, Reading
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
    """What they add up to, whatever the cells; 0 if to nothing in particular."""
    repeats: bool = False
    """Whether some of them add up to features of other blocks, whatever the cells."""

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each."""
        raise NotImplementedError

    @property
    def scaling(self) -> Sequence[tuple[float, float]]:
        """What each calls 0, and how much 1 is more, in the numbers of `plain`."""
        return ((0.0, 1.0),) * self.width

    @property
    def limits(self) -> Sequence[tuple[float, float, float]]:
        """Between what each is clamped, in the table's own numbers, and what an empty cell counts as; PlanError."""
        raise PlanError(
            "Maps of columns cannot be exported to ONNX: export to JSON, which names the maps and all coefficients."
        )

    def features(self, readings: Readings) -> FloatArray:
        """Return the features, a row for each record."""
        raise NotImplementedError

    def plain(self, table: Table, readings: Readings) -> FloatArray:
        """Return the features in numbers for people: the table's own ones, or, of a map, what it makes of them."""
        del table
        return self.features(readings)


class ColumnBlock(Block):
    """What a column becomes by itself."""

    def __init__(self, name: str, column: ReadColumn) -> None:
        self._name, self._column = name, column
        self.bound, self.constant = column.bound, column.constant

    @property
    def width(self) -> int:  # type: ignore[override]  # known without its names only by counting them
        """As many as the column's type says."""
        return len(self.scaling)

    @property
    def names(self) -> tuple[str, ...]:
        """The column's."""
        return self._column.feature_names(self._name)

    @property
    def scaling(self) -> Sequence[tuple[float, float]]:
        """The column's."""
        return self._column.scaling

    @property
    def limits(self) -> Sequence[tuple[float, float, float]]:
        """The column's."""
        return self._column.limits

    def features(self, readings: Readings) -> FloatArray:
        """Return the column's features."""
        return self._column.features(readings[self._name])

    def plain(self, table: Table, readings: Readings) -> FloatArray:
        """Return the table's own numbers, which need not keep the bounds."""
        del readings
        return self._column.plain(as_cells(table[self._name]))


class Blocks(tuple[Block, ...]):
    """Blocks beside each other."""

    __slots__ = ()

    @property
    def width(self) -> int:
        """How many features they have together."""
        return sum(block.width for block in self)

    @property
    def bound(self) -> float:
        """The largest norm of their features together."""
        return math.sqrt(sum(block.bound**2 for block in self))

    @property
    def names(self) -> list[str]:
        """A name for each feature."""
        return [name for block in self for name in block.names]

    def features(self, readings: Readings) -> FloatArray:
        """Return all features, a row for each record."""
        parts = [block.features(readings) for block in self]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
