"""Smooth losses: logistic, softmax, squared, of one target or several, and Huber."""

import math
from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import BaseLoss, Constants, TargetKind, beside, largest_error


class Logistic(BaseLoss):
    """log(1 + exp(−y·u)) for labels y = ±1."""

    target_kind: ClassVar[TargetKind] = "label"
    is_log_loss: ClassVar[bool] = True
    scikit_learn: ClassVar[str] = "LogisticRegression"
    is_curved: ClassVar[bool] = True
    name: Literal["logistic"] = "logistic"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return log(1 + exp(−y·u)), the logistic loss, without overflow."""
        return namespace(scores).logaddexp(0.0, -beside(scores[..., 0], targets) * scores[..., 0])

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return −y·sigmoid(−y·u), for the logistic loss; by tanh, which cannot overflow."""
        y = beside(scores, targets)
        return -0.5 * y * (1.0 - namespace(scores).tanh(0.5 * y * scores))

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return p(1 − p), at most ¼, for the logistic loss."""
        return 0.25 * (1.0 - namespace(scores).tanh(0.5 * scores) ** 2)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return 1 − p and p = sigmoid(u), by the logistic loss, the second class's; small ones to the last digit."""
        xp = namespace(scores)
        return xp.exp(-xp.logaddexp(0.0, xp.concatenate([scores, -scores], axis=-1)))

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·sigmoid(ρX) for the logistic loss, which is X on the whole space; β = X²/4."""
        reach = weight_norm * feature_norm if feature_norm > 0 else 0.0
        steepest = 1.0 / (1.0 + math.exp(-min(reach, 700.0)))
        return Constants(feature_norm * steepest, feature_norm**2 / 4, 0.0)


class Softmax(BaseLoss):
    """Cross-entropy of the softmax of the scores; a target is the class's index."""

    target_kind: ClassVar[TargetKind] = "class"
    is_log_loss: ClassVar[bool] = True
    scikit_learn: ClassVar[str] = "LogisticRegression"
    name: Literal["softmax"] = "softmax"
    classes: int = Field(ge=2, le=10_000)

    @property
    def outputs(self) -> int:
        """One score of the softmax loss per class."""
        return self.classes

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return log Σ exp(u) − u_y, the softmax loss, shifted by the largest score so that it cannot overflow."""
        xp = namespace(scores)
        shifted = scores - xp.max(scores, axis=-1, keepdims=True)
        chosen = xp.sum(xp.where(self._one_hot(scores, targets), shifted, 0.0), axis=-1)
        return xp.log(xp.sum(xp.exp(shifted), axis=-1)) - chosen

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return p − e_y, for the softmax loss."""
        return self.probabilities(scores) - self._one_hot(scores, targets)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return the softmax of the scores, shifted by the largest so that it cannot overflow."""
        xp = namespace(scores)
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        return weights / xp.sum(weights, axis=-1, keepdims=True)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = √2·X since sup‖p − e_y‖ = √2; β = X²/2 since λ_max(diag p − ppᵀ) ≤ 1/2. Both are tight."""
        return Constants(math.sqrt(2) * feature_norm, feature_norm**2 / 2, 0.0)

    def _one_hot(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return e_y for the softmax loss: whether each class is the record's."""
        return namespace(scores).equal(beside(scores, targets), namespace(scores).arange(self.classes))

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X/2 for the softmax loss, as for two classes."""
        return 0.5 * feature_norm


class _ErrorLoss(BaseLoss):
    """A loss of the errors u − y of scaled numbers: ½·‖u − y‖², unless its class says otherwise."""

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ½·‖u − y‖²."""
        return 0.5 * namespace(scores).sum(self.residuals(scores, targets) ** 2, axis=-1)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y, for each target."""
        return scores - targets.reshape(len(targets), *[1] * (scores.ndim - 2), self.outputs)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X(Xρ + Y) for squared errors, infinite on the whole space; β = X².

        With several targets Y is the norm of the largest, since ‖xᵀW‖ ≤ X·‖W‖, and the curvature is I ⊗ xxᵀ.
        """
        return Constants(feature_norm * largest_error(feature_norm, target_bound, weight_norm), feature_norm**2, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return 0.08·X·Y for the squared and the Huber loss: most errors are far below the largest target."""
        return 0.08 * feature_norm * target_bound


class Squared(_ErrorLoss):
    """½(u − y)²; with per-record clipping at C it becomes a Huber loss of threshold C/‖x‖."""

    is_squared_error: ClassVar[bool] = True
    is_curved: ClassVar[bool] = True
    name: Literal["squared"] = "squared"

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return 1, for the squared loss."""
        return namespace(scores).ones_like(scores)


class Huber(_ErrorLoss):
    """½r² for |r| ≤ h and h|r| − ½h² beyond, of r = u − y: squared in the middle, linear for outliers."""

    name: Literal["huber"] = "huber"
    threshold: float = Field(gt=0)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the Huber loss: quadratic up to errors of h, then linear."""
        inner = self.residuals(scores, targets)[..., 0]
        error = super().residuals(scores, targets)[..., 0]
        return inner * (error - 0.5 * inner)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y, clipped to ±h, for the Huber loss."""
        return namespace(scores).clip(super().residuals(scores, targets), -self.threshold, self.threshold)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = hX for the Huber loss, or that of the squared loss where errors cannot reach h; β = X²."""
        largest = largest_error(feature_norm, target_bound, weight_norm)
        return Constants(feature_norm * min(self.threshold, largest), feature_norm**2, 0.0)


class MultiSquared(_ErrorLoss):
    """½·‖u − y‖², of one score u_k per target y_k: the sum of the targets' squared losses, each in its own scale.

    A record's gradient is outer(x, u − y), and is clipped as one: one clip and one noise cover all targets. Clipped at
    C it is that of a Huber loss of the residual's norm, of threshold C/‖x‖, which is convex and has the same β.
    """

    target_kind: ClassVar[TargetKind] = "numbers"
    is_convex_clipped: ClassVar[bool] = True
    name: Literal["multi-squared"] = "multi-squared"
    targets: int = Field(ge=2, le=1000)

    @property
    def outputs(self) -> int:
        """One score per target of the squared loss of several targets."""
        return self.targets

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return the scores of the squared loss of several targets: a scaled number for each target."""
        return scores
