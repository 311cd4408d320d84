"""Convex losses of a linear model, in residual form.

A record is a feature vector x and a target y; the model's scores for it are u = xᵀW, one column of W per
output. Every loss here is φ(u, y), so its gradient in W is the outer product of x with the *residual*
∂φ/∂u. Hence the gradient's norm is ‖residual‖·‖x‖, and clipping every record's gradient needs no
per-record gradient in memory.

`scores` has one row per record and, last, one column per output. Between the two there may be further axes
(the simulator's configurations), over which every loss broadcasts.

The constants are those of the loss as a function of W, for ‖x‖ ≤ X (with the intercept's 1 in it),
‖W‖ ≤ ρ and |y| ≤ Y: L bounds the gradient, β the curvature from above, μ from below.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.public import Public


@dataclass(frozen=True)
class Constants:
    """Lipschitz constant L, smoothness β and strong convexity μ of a loss in the weights."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


class _Loss(Public):
    """A loss φ(u, y)."""

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""
        return 1

    @abstractmethod
    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ of every record."""

    @abstractmethod
    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂φ/∂u of every record, in the shape of `scores`."""

    @abstractmethod
    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """Return L, β and μ for ‖x‖ ≤ feature_norm, |y| ≤ target_bound, ‖W‖ ≤ weight_norm (may be inf)."""


class Logistic(_Loss):
    """log(1 + exp(−y·u)) for labels y = ±1."""

    name: Literal["logistic"] = "logistic"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return log(1 + exp(−y·u)), without overflow."""
        xp = namespace(scores)
        result: FloatArray = xp.logaddexp(0.0, -_beside(scores[..., 0], targets) * scores[..., 0])
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return −y·sigmoid(−y·u); by tanh, which cannot overflow."""
        xp = namespace(scores)
        y = _beside(scores, targets)
        result: FloatArray = -0.5 * y * (1.0 - xp.tanh(0.5 * y * scores))
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·sigmoid(ρX), which is X on the whole space; β = X²/4."""
        del target_bound
        reach = weight_norm * feature_norm if feature_norm > 0 else 0.0
        steepest = 1.0 / (1.0 + math.exp(-min(reach, 700.0)))
        return Constants(feature_norm * steepest, feature_norm**2 / 4, 0.0)


class Softmax(_Loss):
    """Cross-entropy of the softmax of the scores; a target is the class's index."""

    name: Literal["softmax"] = "softmax"
    classes: int = Field(ge=2, le=10_000)

    @property
    def outputs(self) -> int:
        """One column per class."""
        return self.classes

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return log Σ exp(u) − u_y, shifted by the largest score so that it cannot overflow."""
        xp = namespace(scores)
        shifted = scores - scores.max(axis=-1, keepdims=True)
        chosen = xp.where(self._one_hot(scores, targets), shifted, 0.0).sum(axis=-1)
        result: FloatArray = xp.log(xp.exp(shifted).sum(axis=-1)) - chosen
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return p − e_y."""
        xp = namespace(scores)
        weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
        result: FloatArray = weights / weights.sum(axis=-1, keepdims=True) - self._one_hot(scores, targets)
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = √2·X since sup‖p − e_y‖ = √2; β = X²/2 since λ_max(diag p − ppᵀ) ≤ 1/2. Both are tight."""
        del target_bound, weight_norm
        return Constants(math.sqrt(2) * feature_norm, feature_norm**2 / 2, 0.0)

    def _one_hot(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        xp = namespace(scores)
        result: FloatArray = _beside(scores, targets) == xp.arange(self.classes)
        return result


class Squared(_Loss):
    """½(u − y)²; with per-record clipping at C it becomes a Huber loss of threshold C/‖x‖."""

    name: Literal["squared"] = "squared"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ½(u − y)²."""
        result: FloatArray = 0.5 * self.residuals(scores, targets)[..., 0] ** 2
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y."""
        return scores - _beside(scores, targets)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X(Xρ + Y), infinite on the whole space; β = X²."""
        return Constants(feature_norm * _largest_error(feature_norm, target_bound, weight_norm), feature_norm**2, 0.0)


class Huber(_Loss):
    """½r² for |r| ≤ h and h|r| − ½h² beyond, of r = u − y: squared in the middle, linear for outliers."""

    name: Literal["huber"] = "huber"
    threshold: float = Field(gt=0)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the Huber loss."""
        xp = namespace(scores)
        error = (scores - _beside(scores, targets))[..., 0]
        inner = xp.clip(error, -self.threshold, self.threshold)
        result: FloatArray = inner * (error - 0.5 * inner)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y, cut off at ±h."""
        xp = namespace(scores)
        result: FloatArray = xp.clip(scores - _beside(scores, targets), -self.threshold, self.threshold)
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = hX, or that of the squared loss where errors cannot reach h; β = X²."""
        largest_error = _largest_error(feature_norm, target_bound, weight_norm)
        return Constants(feature_norm * min(self.threshold, largest_error), feature_norm**2, 0.0)


def _beside(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the targets shaped to broadcast with the scores, one row per record."""
    return targets.reshape(-1, *[1] * (scores.ndim - 1))


def _largest_error(feature_norm: float, target_bound: float, weight_norm: float) -> float:
    return (feature_norm * weight_norm if feature_norm > 0 else 0.0) + target_bound


Loss: TypeAlias = Annotated[Logistic | Softmax | Squared | Huber, Field(discriminator="name")]
