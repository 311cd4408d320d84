"""The feature moments: second moments of the features along axes, and how the target is spread over a window."""

import math
from typing import Literal, NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.effort import NUMBER, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.questions.base import BaseQuestion, Facts

BINS = 16
"""Into how many equal parts the window of a numeric target is cut; what lies beyond counts to the outermost."""

WEIGHT = 0.5
"""What the target's part counts beside the matrix: it raises the noise in the latter by an eighth."""

MOVED = math.sqrt(2.0 + 2.0 * WEIGHT**2)
"""How far replacing one of n records moves an answer, times n, but for rounding."""

LARGEST_ARGUMENT = 2.0**100
"""Numbers of a request that can be computed with."""


def target_parts(facts: Facts) -> int:
    """Return into how many parts targets fall: classes, or parts of a window."""
    return {"label": 2, "class": facts.loss.categories, "number": BINS}[facts.loss.target_kind]


class Viewed(NamedTuple):
    """How a round looks at records: along which axes, a row each, and at which window of the target."""

    axes: FloatArray
    lower: float
    upper: float

    def packed(self) -> FloatArray:
        """Return what a request carries."""
        return np.concatenate([[self.lower, self.upper], self.axes.reshape(-1)])


class FeatureMoments(BaseQuestion):
    """The mean of vvᵀ and, times ½, the share of records in each part of the target's window, or of each class.

    A record's v are its features along the request's axes, cut to norm 1. Of the matrix the upper triangle is told,
    what is off its diagonal times √2, so that lengths stay as they are.

    Replacing a record moves all of it by at most √2.5/n, whatever the request (`docs/proofs.md`, Lemma Q10).
    """

    name: Literal["feature-moments"] = "feature-moments"

    def check(self, facts: Facts) -> None:
        """Refuse times, and several targets: no rule makes anything of how they are spread."""
        if facts.loss.shares_slopes or facts.loss.target_kind == "numbers":
            raise ValueError(f"feature moments have no rule for the {facts.loss.name} loss: leave them out")

    def argument_length(self, facts: Facts) -> int:
        """Return a window and as many axes as there are features."""
        return 2 + facts.data.width**2

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether it is numbers to compute with, and a window: the bound holds for any of them."""
        del facts
        return bool(np.all(np.abs(argument) <= LARGEST_ARGUMENT) and argument[1] - argument[0] >= 1 / LARGEST_ARGUMENT)

    def viewed(self, facts: Facts, argument: FloatArray) -> Viewed:
        """Read what a request carries."""
        return Viewed(argument[2:].reshape(facts.data.width, -1), float(argument[0]), float(argument[1]))

    def bins(self, facts: Facts) -> int:
        """Return into how many parts targets fall: classes, or parts of the window."""
        return target_parts(facts)

    def length(self, facts: Facts) -> int:
        """Return a triangle, and a number for each part of the target."""
        return facts.data.width * (facts.data.width + 1) // 2 + self.bins(facts)

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √2.5/n, with what rounding adds."""
        return (MOVED + math.sqrt(self.bins(facts)) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        return 1.0

    def roundings(self, facts: Facts) -> int:
        """Return four: of either neighbour a quotient, and a product with √2."""
        return 4

    def terms_summed(self, facts: Facts) -> int:
        """Return the answer's length."""
        return self.length(facts)

    def breadth(self, facts: Facts) -> int:
        """Return a record's features along the axes, and its place among the target's parts."""
        return facts.data.width + self.bins(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return three products of the features with matrices of their width, and passes over what comes of them."""
        breadth, width = self.breadth(facts), facts.data.width
        held = 8 * breadth * at_once(records, breadth) + 100 * width**2 + 2**21
        return Effort(6 * PRODUCT * records * width**2 + 4 * PASS * records * breadth, NUMBER * held)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the columns."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: how {columns} vary together, along axes that "
            f"the server chooses, and how '{facts.data.target_words}' is spread"
        )

    def purpose(self) -> str:
        """Say what they are for."""
        return "a budgeted survey asks every silo how features vary together, which shapes clipping, noise and steps"

    def limits(self, facts: Facts) -> str:
        """Name the cut."""
        return "A record's features, along the requested axes, are clipped to norm 1"
