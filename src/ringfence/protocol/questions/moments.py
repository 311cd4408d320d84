"""The moments: mean and mean square of every feature, and of a numeric target."""

import math
from typing import ClassVar, Literal

from ringfence.protocol.questions.base import BaseQuestion, Facts, often


class Moments(BaseQuestion):
    """Mean and mean square of every feature, in units of the largest feature norm, and of a numeric target, in units
    of its bound.

    Replacing a record moves all of them together by √4.5/n at most, or √8.5/n with a target (`docs/proofs.md`,
    Lemma Q3). Plans that do not say `bound = "joint"` are charged √6/n and √11/n, as they always were: what means and
    mean squares can do each by themselves.
    """

    about_model: ClassVar[bool] = False
    name: Literal["moments"] = "moments"
    bound: Literal["separate", "joint"] = "separate"

    def length(self, facts: Facts) -> int:
        """Return two numbers for every feature, and two for a numeric target."""
        return 2 * (facts.data.width + _counts_target(facts))

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √4.5/n, and √8.5/n with a numeric target, with what rounding adds; or √6/n and √11/n."""
        features, target = (4.5, 4.0) if self.bound == "joint" else (6.0, 5.0)
        rounding = math.sqrt(self.length(facts)) * 2.0**-31 if self.bound == "joint" else 0.0
        return (math.sqrt(features + target * _counts_target(facts)) + rounding) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1: no single moment is larger in the units used."""
        return 1.0

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say of which columns."""
        target = " and of the target" if _counts_target(facts) else ""
        return f"{often(rounds)}, {self.length(facts)} numbers: mean and mean square of every feature{target}"

    def purpose(self) -> str:
        """Say that a schema can rely on them."""
        return "a budgeted query asks every silo for the moments of its features, which help with filling in a schema"


def _counts_target(facts: Facts) -> bool:
    return facts.data.target is not None and facts.data.target_column.is_number
