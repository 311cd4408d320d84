"""Interactions: products of two columns' features, so that one's effect may depend on the other."""

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from typing import ClassVar, Literal

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.blocks import Block, Blocks, Readings
from ringfence.protocol.maps.base import Joint


class Interaction(Joint):
    """All products of a feature of one column and a feature of another, for every two of the columns.

    They stand beside the columns' own. The norm of all products is the product of the two columns' norms, and so is its
    largest value, whatever the columns are.
    """

    least: ClassVar[int] = 2

    type: Literal["interaction"] = "interaction"

    def width(self, inputs: Mapping[str, Blocks]) -> int:
        """Return how many products there are of features of different columns."""
        widths = [inputs[name].width for name in self.columns]
        return (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2

    def blocks(self, inputs: Mapping[str, Blocks]) -> list[Block]:
        """Return the products of every two columns, in the order of their names."""
        return [Products(inputs[first], inputs[second]) for first, second in combinations(sorted(self.columns), 2)]

    @property
    def words(self) -> str:
        """Name the columns."""
        return f"products of {' and '.join(self.columns)}" + (", two at a time" if len(self.columns) > 2 else "")


class Products(Block):
    """The products of two columns' features, by the first one's."""

    def __init__(self, first: Blocks, second: Blocks) -> None:
        self._first, self._second = first, second
        self.width = first.width * second.width
        self.bound = first.bound * second.bound
        self.repeats = any(block.constant for block in (*first, *second))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Both names."""
        return tuple(f"{one} × {other}" for one in self._first.names for other in self._second.names)

    def features(self, readings: Readings) -> FloatArray:
        """Return the products."""
        first, second = self._first.features(readings), self._second.features(readings)
        return (first[:, :, None] * second[:, None, :]).reshape(len(first), self.width)
