"""The second moments: the curvature of the loss, its gradient, and how records' gradients scatter, at one place."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.effort import LEAST_AT_ONCE, MOST_THREADS, NUMBER, PART, PASS, Effort, at_once
from ringfence.protocol.messages import Vector
from ringfence.protocol.questions.base import BaseQuestion, Facts
from ringfence.protocol.schema import Schema

_LARGEST = 2.0**100


class Asked(NamedTuple):
    """Where a round asks: at which weights, in which units of residual and curvature, and along which axes.

    `axes` has a row per direction that features are measured along.
    """

    weights: FloatArray
    residual: float
    curvature: float
    axes: FloatArray

    def packed(self) -> FloatArray:
        """Return what a request carries."""
        return np.concatenate([self.weights, [self.residual, self.curvature], self.axes.reshape(-1)])


class SecondMoments(BaseQuestion):
    """The means of h·vvᵀ, ρ·v and ρ²·vvᵀ, all that a one-step estimate and its sandwich are made of.

    A record's v are its features along the request's axes, cut to norm 1; ρ in [−1, 1] is its residual in the request's
    unit, cut, times what the cut left of v; h in [0, 1] its curvature in the request's unit, 0 where the residual was
    cut. Of a symmetric matrix the upper triangle is told, its diagonal times √½.

    Replacing a record moves all of them together by √4.5/n at most, whatever the request (`docs/proofs.md`, Lemma Q6).

    The first `pilots` rounds, from the weights `start` on, tell where the others ask.
    """

    name: Literal["second-moments"] = "second-moments"
    start: Vector
    pilots: int = Field(default=3, ge=1)

    def check(self, facts: Facts) -> None:
        """Require a loss with curvature."""
        if not facts.loss.is_curved:
            raise ValueError(
                f"the {facts.loss.name} loss has no second moments to ask for: only the squared and the logistic loss "
                "give coefficients intervals"
            )

    def argument_length(self, facts: Facts) -> int:
        """Return the weights, two units, and the axes."""
        return facts.dimension + 2 + len(independent(facts.data)) * facts.data.width

    def accepts(self, facts: Facts, argument: FloatArray) -> bool:
        """Tell whether it is numbers to compute with: the bound holds for any of them."""
        units = argument[facts.dimension : facts.dimension + 2]
        return bool(np.all(np.abs(argument) <= _LARGEST) and np.all(units >= 1 / _LARGEST))

    def asked(self, facts: Facts, argument: FloatArray) -> Asked:
        """Read what a request carries."""
        weights, units, axes = np.split(argument, [facts.dimension, facts.dimension + 2])
        return Asked(weights, float(units[0]), float(units[1]), axes.reshape(-1, facts.data.width))

    def length(self, facts: Facts) -> int:
        """Return two triangles and a vector of as many numbers as there are axes."""
        axes = len(independent(facts.data))
        return axes * (axes + 2)

    def sensitivity(self, facts: Facts, batch: int) -> float:
        """Return √4.5/n, with what rounding adds."""
        return (math.sqrt(4.5) + math.sqrt(self.length(facts)) * 2.0**-31) / batch

    def largest(self, facts: Facts) -> float:
        """Return 1."""
        return 1.0

    def effort(self, facts: Facts, records: int) -> Effort:
        """Return some passes over every record's numbers, of which each thread has those of a few records at a time."""
        length, breadth = self.length(facts), self.breadth(facts)
        some, threads = at_once(records, breadth), min(MOST_THREADS, 1 + records // LEAST_AT_ONCE)
        numbers = 8 * breadth * some + 8 * threads * max(PART, 32 * length)
        return Effort(4 * PASS * records * length, NUMBER * (numbers + 2**21))

    def breadth(self, facts: Facts) -> int:
        """Return a record's features."""
        return facts.data.width

    def reveals(self, facts: Facts, rounds: int) -> str:
        """Name the loss, the target and the features."""
        columns = facts.data.inputs
        return (
            f"In each of {rounds} rounds, {self.length(facts)} numbers: the average curvature and gradient of the "
            f"{facts.loss.name} loss, and the second moments of records' gradients, for predicting "
            f"'{facts.data.target_words}' from {columns}, at weights and along axes that the server chooses"
        )

    def purpose(self) -> str:
        """Say that intervals need them."""
        return "a budgeted query asks every silo for second moments, which give each coefficient an interval"

    def limits(self, facts: Facts) -> str:
        """Name both cuts."""
        return "A record's features, along the requested axes, are clipped to norm 1, and its residual to one unit"


def independent(data: Schema) -> NDArray[np.int64]:
    """Return the places of features of which none is a sum of others, whatever the records are.

    The categories of an unordered column, and the functions of a spline, add up to a constant, which the intercept, or
    another such column, has too: then the first is left out, and the others' coefficients are differences from it.
    """
    places: list[int] = []
    place, constant = 0, data.intercept > 0
    for block in data.blocks:
        whole = block.constant > 0
        places += range(place + (whole and constant), place + block.width)
        place, constant = place + block.width, constant or whole
    return np.array([*places, *range(place, data.width)])
