"""The second moments: curvature and gradient of the loss, and the covariance of the records' gradients."""

import math
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.documents.messages import Vector
from ringfence.protocol.plan.effort import LEAST_AT_ONCE, MOST_THREADS, NUMBER, PART, PASS, Effort, at_once
from ringfence.protocol.queries.base import Facts, MeanQuery
from ringfence.protocol.schema.schema import Schema

_LARGEST = 2.0**100


class MomentsArgument(NamedTuple):
    """The weights, the units of residual and curvature, and the axes, a row each."""

    weights: FloatArray
    residual: float
    curvature: float
    axes: FloatArray

    def packed(self) -> FloatArray:
        """Return the argument of a second-moments query: weights, two units and axes."""
        return np.concatenate([self.weights, [self.residual, self.curvature], self.axes.reshape(-1)])


class SecondMoments(MeanQuery):
    """The means of h·vvᵀ, ρ·v and ρ²·vvᵀ, from which a one-step estimate and its sandwich variance are computed.

    A record's v are its features along the request's axes, clipped to norm 1. ρ in [−1, 1] is its clipped residual in
    the request's unit, times the factor by which v was clipped. h in [0, 1] is its curvature in the request's unit, 0
    where the residual was clipped. The answer holds the upper triangles of the matrices, with diagonals times √½.

    The diameter is √4.5, whatever the request (`docs/proofs.md`, Lemma Q6).

    The first `pilots` rounds, from the weights `start` on, decide where the others evaluate.
    """

    purpose: ClassVar[str] = (
        "a budgeted query asks every silo for second moments, which give each coefficient an interval"
    )
    name: Literal["second-moments"] = "second-moments"
    start: Vector
    pilots: int = Field(default=3, ge=1)

    def explains(self) -> str:
        return self.start

    def check(self, facts: Facts) -> None:
        """Refuse second moments of a loss other than the squared and the logistic one."""
        if not facts.loss.is_curved:
            raise ValueError(
                f"the {facts.loss.name} loss has no second moments to ask for: only the squared and the logistic loss "
                "give coefficients intervals"
            )

    def argument_length(self, facts: Facts) -> int:
        """Return the weights, two units, and the axes of independent features, for second moments."""
        return facts.dimension + 2 + len(independent_features(facts.data)) * facts.data.width

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Return whether the argument of second moments is not too large, and its units not too small."""
        units = argument[facts.dimension : facts.dimension + 2]
        return bool(np.all(np.abs(argument) <= _LARGEST) and np.all(units >= 1 / _LARGEST))

    def read(self, facts: Facts, argument: FloatArray) -> MomentsArgument:
        """Read a request's argument for second moments: weights, units and axes."""
        weights, units, axes = np.split(argument, [facts.dimension, facts.dimension + 2])
        return MomentsArgument(weights, float(units[0]), float(units[1]), axes.reshape(-1, facts.data.width))

    def length(self, facts: Facts) -> int:
        """Return two triangles and a vector, for the number of axes of second moments."""
        axes = len(independent_features(facts.data))
        return axes * (axes + 2)

    def diameter(self, facts: Facts) -> float:
        """Return √4.5, the diameter of a record's second moments."""
        return math.sqrt(4.5)

    def effort(self, facts: Facts, records: int) -> Effort:
        """Count passes over every record's second moments, which each thread holds for a few records at a time."""
        length, breadth = self.length(facts), self.breadth(facts)
        some, threads = at_once(records, breadth), min(MOST_THREADS, 1 + records // LEAST_AT_ONCE)
        numbers = 8 * breadth * some + 8 * threads * max(PART, 32 * length)
        return Effort(4 * PASS * records * length, NUMBER * (numbers + 2**21))

    def breadth(self, facts: Facts) -> int:
        """Return the number of features, which second moments process for each record."""
        return facts.data.width

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Say that the query reveals average curvature and gradient, and second moments of gradients."""
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: the average curvature and gradient of the "
            f"{facts.loss.name} loss, and the second moments of records' gradients, for predicting "
            f"'{facts.data.target_words}' from {facts.data.inputs}, at weights and along axes that the server chooses"
        )

    def limits(self, facts: Facts) -> str:
        """Say that features are clipped to norm 1 and residuals to one unit, for second moments."""
        return "A record's features, along the requested axes, are clipped to norm 1, and its residual to one unit"


def independent_features(data: Schema) -> NDArray[np.int64]:
    """Return the indices of linearly independent features, whatever the records are.

    The categories of an unordered column, and the functions of a spline, add up to a constant. If the intercept or
    another such column has it too, the first is left out, and the others' coefficients are differences from it. So are
    an interaction's products with the first.
    """
    places: list[int] = []
    place, constant = 0, data.intercept > 0
    for block in data.blocks:
        whole = block.constant > 0
        places += (place + np.flatnonzero(~block.repeats | (whole and not constant))).tolist()
        place, constant = place + block.width, constant or whole
    return np.array([*places, *range(place, data.width)])
