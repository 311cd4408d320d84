"""The feature means: the mean of the features, how long they are, and how the target is spread over a window."""

import math
from typing import Literal, NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.effort import NUMBER, PASS, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts
from ringfence.protocol.questions.feature_moments import LARGEST_ARGUMENT, WEIGHT, target_parts

MOVED = math.sqrt(4.0 + 2.0 * WEIGHT**2)
"""How far replacing one of n records moves an answer, times n, but for rounding."""


class Window(NamedTuple):
    """Between which numbers a round looks at the target."""

    lower: float
    upper: float

    def packed(self) -> FloatArray:
        """Return what a request carries."""
        return np.array([self.lower, self.upper])


class FeatureMeans(BaseQuestion):
    """The mean of v, the mean of |v|² and, times ½, the share of records in each part of the target's window, or of
    each class; v are a record's features in units of their largest norm.

    It takes as many numbers as there are features, where feature moments take one for each pair: what is asked of many.

    Replacing a record moves all of it by at most √4.5/n, whatever the window (`docs/proofs.md`, Lemma Q13).
    """

    name: Literal["feature-means"] = "feature-means"

    def check(self, facts: Facts) -> None:
        """Refuse times, and several targets: no rule makes anything of how they are spread."""
        if facts.loss.shares_slopes or facts.loss.target_kind == "numbers":
            raise ValueError(f"feature means have no rule for the {facts.loss.name} loss: leave them out")

    def argument_length(self, facts: Facts) -> int:
        """Return a window."""
        return 2

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether it is a window to compute with: the bound holds for any."""
        del facts
        return bool(np.all(np.abs(argument) <= LARGEST_ARGUMENT) and argument[1] - argument[0] >= 1 / LARGEST_ARGUMENT)

    def bins(self, facts: Facts) -> int:
        """Return into how many parts targets fall: classes, or parts of the window."""
        return target_parts(facts)

    def length(self, facts: Facts) -> int:
        """Return a number for each feature, one for their length, and one for each part of the target."""
        return facts.data.width + 1 + self.bins(facts)

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √4.5/n, with what rounding adds: the squares of all features are rounded before they are summed."""
        rounding = facts.data.width + math.sqrt(self.length(facts))
        return (MOVED + rounding * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        return 1.0

    def terms_summed(self, facts: Facts) -> int:
        """Return the features, their squares, and the target's parts."""
        return 2 * facts.data.width + self.bins(facts)

    def breadth(self, facts: Facts) -> int:
        """Return the same."""
        return self.terms_summed(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return a few passes over every record's numbers."""
        breadth = self.breadth(facts)
        return Effort(2 * PASS * records * breadth, 8 * NUMBER * breadth * at_once(records, breadth))

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the columns."""
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: the means of {facts.data.inputs}, how long "
            f"records' features are, and how '{facts.data.target_words}' is spread"
        )

    def purpose(self) -> str:
        """Say what they are for."""
        return "a budgeted survey asks every silo for the means of its features, which shape clipping, noise and steps"

    def limits(self, facts: Facts) -> str:
        """Name the cut."""
        return "A record's features are clipped to their largest norm"
