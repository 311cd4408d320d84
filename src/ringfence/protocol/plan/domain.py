"""Closed convex sets that the weights are kept in, with their Euclidean projections and proximal steps."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.public import Public

# A projected point may lie outside by rounding; far below anything that matters to a step.
_TOLERANCE = 1e-9


class _Domain(Public):
    """A closed convex set W around the origin, where training starts."""

    @abstractmethod
    def project(self, weights: FloatArray) -> FloatArray:
        """Return the point of the domain W nearest to `weights`."""

    @abstractmethod
    def reach(self, dimension: int) -> float:
        """Return the largest distance of a point of the domain W from 0: ρ, also a bound D₀ on ‖w₀ − w*‖."""

    def contains(self, weights: FloatArray) -> bool:
        """Return whether `weights` are finite and in the domain W, up to rounding."""
        xp = namespace(weights)
        largest = float(xp.max(xp.abs(weights), initial=0.0))
        # The first test also refuses NaN, infinity, and numbers whose squares would overflow in `project`.
        if not largest <= min(self.reach(weights.size), 1e50) * (1.0 + _TOLERANCE):
            return False
        return bool(xp.all(xp.abs(self.project(weights) - weights) <= _TOLERANCE * (1.0 + largest)))


class Ball(_Domain):
    """All weights of Euclidean norm at most `radius`."""

    name: Literal["ball"] = "ball"
    radius: float = Field(gt=0)

    def project(self, weights: FloatArray) -> FloatArray:
        """Scale longer weights down to the ball's radius."""
        xp = namespace(weights)
        # In units of the largest number, so that squares cannot overflow.
        scale = xp.maximum(xp.max(xp.abs(weights)), self.radius)
        norm, radius = xp.sqrt(xp.sum((weights / scale) ** 2)), self.radius / scale
        return weights * (radius / xp.maximum(norm, radius))

    def reach(self, dimension: int) -> float:
        """Return the radius of the ball."""
        return self.radius


class Box(_Domain):
    """All weights with every coordinate in [lower, upper], which must contain the origin."""

    name: Literal["box"] = "box"
    lower: float = Field(le=0)
    upper: float = Field(ge=0)

    @model_validator(mode="after")
    def _has_room(self) -> "Box":
        """Refuse a box whose bounds are both 0."""
        if self.lower == self.upper:
            raise ValueError("lower and upper are both 0, which leaves no model to learn")
        return self

    def project(self, weights: FloatArray) -> FloatArray:
        """Clip every coordinate to the box."""
        return namespace(weights).clip(weights, self.lower, self.upper)

    def reach(self, dimension: int) -> float:
        """Return the norm of the box's farthest corner."""
        return math.sqrt(dimension) * max(-self.lower, self.upper)


class WholeSpace(_Domain):
    """No constraint; loss bounds that need a diameter do not apply."""

    name: Literal["whole-space"] = "whole-space"

    def project(self, weights: FloatArray) -> FloatArray:
        """Return weights of the whole space unchanged."""
        return weights

    def reach(self, dimension: int) -> float:
        """Return infinity: the whole space is an unbounded domain."""
        return math.inf


Domain: TypeAlias = Annotated[Ball | Box | WholeSpace, Field(discriminator="name")]

ProximalStep: TypeAlias = Callable[[FloatArray, Any], FloatArray]
"""Maps an iterate, and the step size of a penalty, into the domain: a `Proximal`, or a stand-in for one."""


@dataclass(frozen=True)
class Proximal:
    """The point of the domain that minimises ½·‖w − v‖² + t·λ·‖w‖₁, for weights v and a step t.

    λ is `lasso`. The last `constants` of the weights, those of the intercept, one per output, are not in the norm. All
    others are shrunk by t·λ towards 0, no further; the result is projected. For balls, boxes and the whole space this
    is the minimiser itself (`docs/proofs.md`, Lemma L1). Without a lasso it is the projection.
    """

    domain: Domain
    lasso: float = 0.0
    constants: int = 0

    def __call__(self, weights: FloatArray, step: Any) -> FloatArray:
        """Shrink the weights by the lasso's soft threshold, then project them onto the domain."""
        if not self.lasso:
            return self.domain.project(weights)
        xp = namespace(weights)
        pull = step * self.lasso * (xp.arange(weights.size) < weights.size - self.constants)
        return self.domain.project(weights - xp.clip(weights, -pull, pull))
