"""The moments: mean and mean square of every feature, and of a numeric target."""

import math
from typing import Literal

from ringfence.protocol.questions.base import BaseQuestion, Facts
from ringfence.protocol.schema import Categorical


class Moments(BaseQuestion):
    """Mean and mean square of every feature, in units of the largest feature norm, and of a numeric target, in units
    of its bound.

    *Sensitivity under replace-one.* In these units the means move by at most 2/n, the mean squares, which are
    non-negative vectors of norm at most 1, by √2/n, a target's by 2/n and 1/n: together √6/n, or √11/n with a target.
    """

    name: Literal["moments"] = "moments"

    def length(self, facts: Facts) -> int:
        """Return two numbers for every feature, and two for a numeric target."""
        return 2 * (facts.data.width + _counts_target(facts))

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √6/n, or √11/n with a numeric target."""
        return math.sqrt(11.0 if _counts_target(facts) else 6.0) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1: no single moment is larger in the units used."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say of which columns."""
        target = " and of the target" if _counts_target(facts) else ""
        often = "Once" if rounds == 1 else f"In each of {rounds} rounds"
        return f"{often}, {self.length(facts)} numbers: mean and mean square of every feature{target}"

    def purpose(self) -> str:
        """Say that a schema can rely on them."""
        return "a budgeted query asks every silo for the moments of its features, which help to fill in a schema"


def _counts_target(facts: Facts) -> bool:
    return not isinstance(facts.data.target_column, Categorical)
