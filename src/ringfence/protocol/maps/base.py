"""What all maps have in common: which columns they are of, and which blocks of features they make."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.blocks import Block, Blocks, Readings
from ringfence.protocol.columns import ReadColumn, Scaled
from ringfence.protocol.public import Public

MOST_FEATURES = 10_000
"""The most features that a schema's maps may make."""

Names: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_FEATURES)]


class BaseMap(Public):
    """A public function of columns, applied to each record by itself, after cells were clamped to public bounds."""

    type: str
    columns: Names
    least: ClassVar[int] = 1
    """Of how many columns it is at least."""

    def check(self, columns: Mapping[str, ReadColumn]) -> None:
        """Raise ValueError, with a clause that says what to do, if it cannot be made of these columns."""
        for name in self.columns:
            if name not in columns:
                raise ValueError(
                    f"a {self.type} map names the column '{name}', which is missing from the columns, or ignored: "
                    "give it a type and its values, or leave it out of the map"
                )
            if self.columns.count(name) > 1:
                raise ValueError(f"a {self.type} map names the column '{name}' twice: name it once")
        if len(self.columns) < self.least:
            raise ValueError(f"an {self.type} map needs {self.least} columns or more: name another one")

    @property
    def words(self) -> str:
        """Say what it is, for people to read."""
        raise NotImplementedError


class Curve(BaseMap):
    """A map of every one of its columns by itself; they are numbers."""

    @property
    def keeps(self) -> bool:
        """Whether the column's own feature stays beside those of the map."""
        return False

    def check(self, columns: Mapping[str, ReadColumn]) -> None:
        """See to it that the columns are numbers that the map can be made of."""
        super().check(columns)
        for name in self.columns:
            column = columns[name]
            if not isinstance(column, Scaled):
                raise ValueError(f"a {self.type} map needs numbers or dates, and the column '{name}' has neither")
            try:
                self.fit(column)
            except ValueError as problem:
                raise ValueError(f"the {self.type} map of the column '{name}': {problem}") from None

    def fit(self, column: Scaled) -> None:
        """Raise ValueError if it cannot be made of that column."""

    def width(self, column: Scaled) -> int:
        """Return how many features it makes."""
        raise NotImplementedError

    def bound(self, column: Scaled) -> float:
        """Return the largest norm of its features."""
        raise NotImplementedError

    @property
    def constant(self) -> float:
        """What its features add up to, whatever the number; 0 if to nothing in particular."""
        return 0.0

    def names(self, name: str, column: Scaled) -> list[str]:
        """Return a name for each feature."""
        raise NotImplementedError

    def values(self, numbers: FloatArray, column: Scaled) -> FloatArray:
        """Return the features of numbers within the column's bounds, in its own units."""
        raise NotImplementedError


class CurveBlock(Block):
    """A curve of one column. Where a feature tells of empty cells, the others are 0 in these.

    `tells` says whether that feature is one of this block: it is told once for each column.
    """

    def __init__(self, curve: Curve, name: str, column: Scaled, *, tells: bool) -> None:
        self._curve, self._name, self._column, self._tells = curve, name, column, tells
        self.width = curve.width(column) + tells
        self.bound = max(curve.bound(column), 1.0) if tells else curve.bound(column)
        self.constant = curve.constant if tells or not column.indicator else 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the curve, and that of the feature that tells of empty cells."""
        own = self._curve.names(self._name, self._column)
        return (*own, f"{self._name} is missing") if self._tells else tuple(own)

    def features(self, readings: Readings) -> FloatArray:
        """Return the curve's features of what was read."""
        reading = readings[self._name]
        values = self._curve.values(self._column.in_units(reading.values), self._column)
        empty = reading.empty if self._column.indicator else None
        if empty is not None:
            values[empty] = 0.0
        if not self._tells:
            return values
        return np.column_stack([values, np.zeros(len(values)) if empty is None else empty])


class Joint(BaseMap):
    """A map of several columns together, of their features as curves leave them."""

    def width(self, inputs: Mapping[str, Blocks]) -> int:
        """Return how many features it makes; ValueError if it cannot be made of that many."""
        raise NotImplementedError

    def blocks(self, inputs: Mapping[str, Blocks]) -> list[Block]:
        """Return what it makes of columns' features."""
        raise NotImplementedError
