"""Losses with a derivative everywhere."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import BaseLoss, Choices, Constants, TargetKind, beside, largest_error


class Logistic(BaseLoss):
    """log(1 + exp(−y·u)) for labels y = ±1."""

    target_kind: ClassVar[TargetKind] = "label"
    is_log_loss: ClassVar[bool] = True
    is_curved: ClassVar[bool] = True
    name: Literal["logistic"] = "logistic"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return log(1 + exp(−y·u)), without overflow."""
        xp = namespace(scores)
        result: FloatArray = xp.logaddexp(0.0, -beside(scores[..., 0], targets) * scores[..., 0])
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return −y·sigmoid(−y·u); by tanh, which cannot overflow."""
        xp = namespace(scores)
        y = beside(scores, targets)
        result: FloatArray = -0.5 * y * (1.0 - xp.tanh(0.5 * y * scores))
        return result

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return p(1 − p), at most ¼."""
        del targets
        result: FloatArray = 0.25 * (1.0 - namespace(scores).tanh(0.5 * scores) ** 2)
        return result

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return 1 − p and p, with p = sigmoid(u) that of the second class; small ones to the last digit too."""
        xp = namespace(scores)
        result: FloatArray = xp.exp(-xp.logaddexp(0.0, xp.concatenate([scores, -scores], axis=-1)))
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·sigmoid(ρX), which is X on the whole space; β = X²/4."""
        reach = weight_norm * feature_norm if feature_norm > 0 else 0.0
        steepest = 1.0 / (1.0 + math.exp(-min(reach, 700.0)))
        return Constants(feature_norm * steepest, feature_norm**2 / 4, 0.0)


class Softmax(BaseLoss):
    """Cross-entropy of the softmax of the scores; a target is the class's index."""

    target_kind: ClassVar[TargetKind] = "class"
    is_log_loss: ClassVar[bool] = True
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
        return self.probabilities(scores) - self._one_hot(scores, targets)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the softmax of the scores, shifted by the largest so that it cannot overflow."""
        weights = namespace(scores).exp(scores - scores.max(axis=-1, keepdims=True))
        result: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = √2·X since sup‖p − e_y‖ = √2; β = X²/2 since λ_max(diag p − ppᵀ) ≤ 1/2. Both are tight."""
        return Constants(math.sqrt(2) * feature_norm, feature_norm**2 / 2, 0.0)

    def _one_hot(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        xp = namespace(scores)
        result: FloatArray = beside(scores, targets) == xp.arange(self.classes)
        return result

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X/2, as for two classes."""
        return 0.5 * feature_norm


class Squared(BaseLoss):
    """½(u − y)²; with per-record clipping at C it becomes a Huber loss of threshold C/‖x‖."""

    is_squared_error: ClassVar[bool] = True
    is_curved: ClassVar[bool] = True
    name: Literal["squared"] = "squared"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ½(u − y)²."""
        result: FloatArray = 0.5 * self.residuals(scores, targets)[..., 0] ** 2
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y."""
        return scores - beside(scores, targets)

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return 1."""
        del targets
        return namespace(scores).ones_like(scores)  # type: ignore[no-any-return]

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X(Xρ + Y), infinite on the whole space; β = X²."""
        return Constants(feature_norm * largest_error(feature_norm, target_bound, weight_norm), feature_norm**2, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return 0.08·X·Y: errors are mostly far smaller than the largest target."""
        return 0.08 * feature_norm * target_bound


class Huber(BaseLoss):
    """½r² for |r| ≤ h and h|r| − ½h² beyond, of r = u − y: squared in the middle, linear for outliers."""

    name: Literal["huber"] = "huber"
    threshold: float = Field(gt=0)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the Huber loss."""
        xp = namespace(scores)
        error = (scores - beside(scores, targets))[..., 0]
        inner = xp.clip(error, -self.threshold, self.threshold)
        result: FloatArray = inner * (error - 0.5 * inner)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y, cut off at ±h."""
        xp = namespace(scores)
        result: FloatArray = xp.clip(scores - beside(scores, targets), -self.threshold, self.threshold)
        return result

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = hX, or that of the squared loss where errors cannot reach h; β = X²."""
        largest = largest_error(feature_norm, target_bound, weight_norm)
        return Constants(feature_norm * min(self.threshold, largest), feature_norm**2, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return 0.08·X·Y: errors are mostly far smaller than the largest target."""
        return 0.08 * feature_norm * target_bound

    @classmethod
    def chosen(cls, choices: Choices) -> Self:
        """Turn linear at the margin."""
        return cls(threshold=choices.margin)
