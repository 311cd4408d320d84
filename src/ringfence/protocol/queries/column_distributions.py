"""The column distributions: a histogram of every column with an open curve, between the request's ends."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.queries.base import Facts, MeanQuery


class ColumnDistributions(MeanQuery):
    """The share of records in each of `bins` of every column whose curve has open knots, between the request's ends.

    Numbers beyond the ends count in the outermost bins, empty cells in none.

    A record is in at most one bin of each of K columns, so the diameter is √(2K), whatever the ends are
    (`docs/proofs.md`, Lemma Q14).
    """

    about_model: ClassVar[bool] = False
    about_features: ClassVar[bool] = False
    purpose: ClassVar[str] = (
        "a budgeted survey asks every silo how numeric columns are distributed, which places the knots of curves"
    )
    name: Literal["column-distributions"] = "column-distributions"

    bins: int = Field(ge=2, le=1024)

    def check(self, facts: Facts) -> None:
        """Refuse to survey the columns of a schema without open curves."""
        if not facts.data.open_curves:
            raise ValueError("column distributions are about columns with surveyed knots, and the schema has none")

    def argument_length(self, facts: Facts) -> int:
        """Return two ends for each column whose distribution is surveyed."""
        return 2 * len(facts.data.open_curves)

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether every surveyed column's ends lie within its bounds, the lower one first."""
        lower, upper = argument.reshape(-1, 2).T
        low, high = np.array([(column.low, column.high) for column in facts.data.open_columns.values()]).T
        return bool(np.all((low <= lower) & (lower + (high - low) * 2.0**-40 < upper) & (upper <= high)))

    def length(self, facts: Facts) -> int:
        """Return all bins of the surveyed columns."""
        return self.bins * len(facts.data.open_curves)

    def diameter(self, facts: Facts) -> float:
        """Return √(2K) for K surveyed columns."""
        return math.sqrt(2.0 * len(facts.data.open_curves))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that column distributions reveal how many records lie in each part of each column."""
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: how many records lie in each of {self.bins} "
            f"parts of {', '.join(facts.data.open_curves)}"
        )
