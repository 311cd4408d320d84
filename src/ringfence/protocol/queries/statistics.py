"""The statistics: histograms of columns, and cross tables of pairs of them."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringfence.protocol.plan.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery, rounds_phrase
from ringfence.protocol.queries.statistics_layout import Layout


class Statistics(MeanQuery):
    """Counts of categories, of bins of numbers, and of empty cells.

    Numbers have `bins` between their public bounds; without bounds (`Numeric.is_unbounded`), bins by magnitude. `cross`
    are pairs of these columns whose cross table is asked for as well. Consistent counts, histograms, means, variances,
    quantiles and tables are computed from the answers (`estimates.statistics`).

    `statistics_layout` has the diameter of each part; that of all is the root of the sum of the squares
    (`docs/proofs.md`, Lemma Q5), also for persons (Lemma P3).
    """

    about_model: ClassVar[bool] = False
    about_features: ClassVar[bool] = False
    purpose: ClassVar[str] = (
        "a budgeted query asks every silo how the values in its columns are distributed, which describes the "
        "silos' data and helps with filling in a schema"
    )
    name: Literal["statistics"] = "statistics"
    columns: tuple[str, ...] = Field(min_length=1, max_length=10_000)
    cross: tuple[tuple[str, str], ...] = Field(default=(), max_length=10_000)
    bins: int = Field(default=64, ge=4, le=1024)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse statistics with bins that are no power of two, columns named twice, or impossible cross tables."""
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
        """Return the parts of an answer to a query for statistics."""
        return Layout.of(facts.data, self.columns, self.cross, self.bins)

    def length(self, facts: Facts) -> int:
        """Return the length of all parts of the statistics."""
        return self.layout(facts).length

    def diameter(self, facts: Facts) -> float:
        """Return the root of the sum of squared diameters of the parts of the statistics, with rounding."""
        layout = self.layout(facts)
        return math.sqrt(layout.squared_diameter) / layout.unit * (1 + 2.0**-29)

    def rounded(self, facts: Facts) -> float:
        """Return 0: the diameter of statistics includes rounding."""
        return 0.0

    def largest(self, facts: Facts) -> float:
        """Return 1 for statistics; ValueError if a column is not there."""
        self.layout(facts)
        return 1.0

    def breadth(self, facts: Facts) -> int:
        """Return a number for each column, and some more, that statistics take for each record."""
        return 20 + len(self.columns)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count, for statistics, a few passes over the cells: each column's bins are kept, and then counted."""
        layout, breadth = self.layout(facts), self.breadth(facts)
        cells = records * (4 * len(self.columns) + 2 * len(self.cross))
        return Effort(
            PASS * (4 * cells + 50 * layout.length), NUMBER * (breadth * at_once(records, breadth) + 40 * layout.length)
        )

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that statistics reveal how many records have which value, and cross tables."""
        pairs = [f"{a} by {b}" for a, b in self.cross]
        tables = f", and the cross tables of {', '.join(pairs)}" if pairs else ""
        return (
            f"{rounds_phrase(rounds)}, {self.length(facts)} numbers: how many records have which value, or none, of "
            f"{', '.join(self.columns)}{tables}"
        )
