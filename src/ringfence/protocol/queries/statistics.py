"""The statistics: how many records have which value, of each of some columns and of pairs of them."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringfence.protocol.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts, often
from ringfence.protocol.questions.statistics_layout import Layout


class Statistics(BaseQuestion):
    """Counts of the cells of some columns: of categories, of the halves of halves of a number's range, of empty cells.

    Numbers are divided into `bins` between their public bounds; without bounds (`Numeric.is_unbounded`), by magnitude.
    `cross` are pairs of these columns whose cross table is asked for as well. Counts, histograms, means, variances,
    quantiles and tables that all agree are made of the answers (`server.statistics`).

    Replacing a record moves each part by what `statistics_layout` says, and all of them by the root of the sum of the
    squares (`docs/proofs.md`, Lemma Q5); replacing a person moves them no further (Lemma P3).
    """

    about_model: ClassVar[bool] = False
    name: Literal["statistics"] = "statistics"
    columns: tuple[str, ...] = Field(min_length=1, max_length=10_000)
    cross: tuple[tuple[str, str], ...] = Field(default=(), max_length=10_000)
    bins: int = Field(default=64, ge=4, le=1024)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.bins & (self.bins - 1):
            raise ValueError(f"the number of bins must be a power of two, such as 64, not {self.bins}")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("a column is named twice")
        if len({frozenset(pair) for pair in self.cross}) != len(self.cross):
            raise ValueError("a cross table is asked for twice")
        for pair in self.cross:
            if pair[0] == pair[1]:
                raise ValueError(f"a cross table needs two different columns, and '{pair[0]}' is one")
            for name in pair:
                if name not in self.columns:
                    raise ValueError(f"a cross table needs columns that the plan asks about, and '{name}' is not one")
        return self

    def layout(self, facts: Facts) -> Layout:
        """Return which numbers an answer has."""
        return Layout.of(facts.data, self.columns, self.cross, self.bins)

    def length(self, facts: Facts) -> int:
        """Return how many numbers tell all of it: about as many as there are categories, bins, and cells of tables."""
        return self.layout(facts).length

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return the root of the sum of the parts' squares, with room for what is rounded, over n."""
        layout = self.layout(facts)
        return math.sqrt(layout.squared) / layout.unit * (1 + 2.0**-29) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1: numbers are in units of the largest that a record can add."""
        self.layout(facts)  # refuses columns that are not there
        return 1.0

    def breadth(self, facts: Facts) -> int:
        """Return a place for each column, and what counting them takes."""
        del facts
        return 20 + len(self.columns)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return a few passes over the cells that are asked about: each column's places are kept, and then counted."""
        layout, breadth = self.layout(facts), self.breadth(facts)
        cells = records * (4 * len(self.columns) + 2 * len(self.cross))
        return Effort(
            PASS * (4 * cells + 50 * layout.length), NUMBER * (breadth * at_once(records, breadth) + 40 * layout.length)
        )

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the columns and the pairs."""
        pairs = [f"{a} by {b}" for a, b in self.cross]
        tables = f", and the cross tables of {', '.join(pairs)}" if pairs else ""
        return (
            f"{often(rounds)}, {self.length(facts)} numbers: how many records have which value, or none, of "
            f"{', '.join(self.columns)}{tables}"
        )

    def purpose(self) -> str:
        """Say what they are good for."""
        return (
            "a budgeted query asks every silo how the values in its columns are distributed, which describes the "
            "silos' data and helps with filling in a schema"
        )
