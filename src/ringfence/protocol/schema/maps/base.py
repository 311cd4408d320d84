"""The base class of feature maps: which columns a map takes."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field

from ringfence.protocol.public import Public
from ringfence.protocol.schema.columns.base import ReadColumn

MOST_FEATURES = 10_000
"""The most features that a schema's maps may make."""


class BaseMap(Public):
    """A public function of columns, applied to each record by itself, after cells were clamped to public bounds."""

    type: str
    columns: tuple[str, ...] = Field(min_length=1, max_length=MOST_FEATURES)
    least: ClassVar[int] = 1
    """The least number of columns."""

    @property
    def is_open(self) -> bool:
        """Whether a map has knots that a survey is still to find; by default not."""
        return False

    def placed(self, places: Iterator[float]) -> "tuple[BaseMap, ...]":
        """Return the map with the next of these places for its open knots, in a map for each column."""
        return (self,)

    def check(self, columns: Mapping[str, ReadColumn]) -> None:
        """Raise ValueError, with the remedy, if a feature map cannot be applied to these columns."""
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
