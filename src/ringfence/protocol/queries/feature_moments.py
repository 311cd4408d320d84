"""The feature moments: second moments of the features along axes, and a histogram of the target."""

import math
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray, Number
from ringfence.protocol.plan.effort import NUMBER, PASS, PRODUCT, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery

BINS = 16
"""Bins of a numeric target's window; values beyond it count in the outermost."""

WEIGHT = 0.5
"""Weight of the target's histogram beside the matrix: it raises the noise of the matrix by an eighth."""

DIAMETER = math.sqrt(2.0 + 2.0 * WEIGHT**2)

LARGEST_ARGUMENT = 2.0**100
"""The largest absolute value that an argument may have."""


class FeatureMomentsArgument(NamedTuple):
    """The axes, a row each, and the window of the target."""

    axes: FloatArray
    lower: Number
    upper: Number

    def packed(self) -> FloatArray:
        """Return the target's window and the axes, as the argument of a feature-moments query."""
        window = np.stack([self.lower, self.upper], axis=-1)
        return np.concatenate([window, self.axes.reshape(*window.shape[:-1], -1)], axis=-1)


class FeatureSurvey(MeanQuery):
    """What the surveys of features share: a histogram of the target, whose window begins the argument."""

    name: str

    def check(self, facts: Facts) -> None:
        """Refuse to survey features beside times or several targets: the server has no rule for their distribution."""
        if facts.loss.shares_slopes or facts.loss.target_kind == "numbers":
            words = self.name.replace("-", " ")
            raise ValueError(f"{words} have no rule for the {facts.loss.name} loss: leave them out")

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether a survey of features has finite numbers and a window that is not empty."""
        return bool(np.all(np.abs(argument) <= LARGEST_ARGUMENT) and argument[1] - argument[0] >= 1 / LARGEST_ARGUMENT)

    @staticmethod
    def bins(facts: Facts) -> int:
        """Return, for a survey of features, the number of classes of the target, or of bins of its window."""
        return {"label": 2, "class": facts.loss.categories, "number": BINS}[facts.loss.target_kind]


class FeatureMoments(FeatureSurvey):
    """The mean of vvᵀ and, times ½, the share of records in each bin of the target, or in each class.

    A record's v are its features along the request's axes, clipped to norm 1. The answer holds the upper triangle of
    the matrix, with off-diagonal entries times √2, so that norms are kept.

    The diameter is √2.5, whatever the request (`docs/proofs.md`, Lemma Q10).
    """

    purpose: ClassVar[str] = (
        "a budgeted survey asks every silo how features vary together, which shapes clipping, noise and steps"
    )
    name: Literal["feature-moments"] = "feature-moments"

    def argument_length(self, facts: Facts) -> int:
        """Return 2 for the window, and a number for each pair of feature and axis, for feature moments."""
        return 2 + facts.data.width**2

    def read(self, facts: Facts, argument: FloatArray) -> FeatureMomentsArgument:
        """Read a request's argument: the window and the axes of feature moments."""
        lower, upper = argument[:2].tolist()
        return FeatureMomentsArgument(argument[2:].reshape(facts.data.width, -1), lower, upper)

    def length(self, facts: Facts) -> int:
        """Return a triangle of the matrix of feature moments, and the target's bins."""
        return facts.data.width * (facts.data.width + 1) // 2 + self.bins(facts)

    def diameter(self, facts: Facts) -> float:
        """Return the diameter of the vectors that feature moments average."""
        return DIAMETER

    def rounded(self, facts: Facts) -> float:
        """Return the root of the number of bins: the matrix of feature moments is summed without rounding."""
        return math.sqrt(self.bins(facts))

    def roundings(self, facts: Facts) -> int:
        """Return 4, for feature moments: a quotient and a product with √2, for each neighbour."""
        return 4

    def breadth(self, facts: Facts) -> int:
        """Return the features and the target's bins, which feature moments process for each record."""
        return facts.data.width + self.bins(facts)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count, for feature moments, three products with square matrices, and passes over the results."""
        breadth, width = self.breadth(facts), facts.data.width
        held = 8 * breadth * at_once(records, breadth) + 100 * width**2 + 2**21
        return Effort(6 * PRODUCT * records * width**2 + 4 * PASS * records * breadth, NUMBER * held)

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that feature moments reveal how features vary together along axes, and the target's distribution."""
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: how {facts.data.inputs} vary together, along "
            f"axes that the server chooses, and how '{facts.data.target_words}' is spread"
        )

    def limits(self, facts: Facts) -> str:
        """Say that features along the axes are clipped to norm 1, for feature moments."""
        return "A record's features, along the requested axes, are clipped to norm 1"
