"""The loss of several numeric targets that are learned together."""

from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.base import BaseLoss, Constants, TargetKind, largest_error


class MultiSquared(BaseLoss):
    """½·‖u − y‖², of one score u_k per target y_k: the sum of the targets' squared losses, each in its own scale.

    A record's gradient is outer(x, u − y), and is cut as one: one clip and one noise cover all targets. Cut at C it is
    that of a Huber loss of the residual's norm, of threshold C/‖x‖, which is convex and has the same β.
    """

    target_kind: ClassVar[TargetKind] = "numbers"
    is_convex_cut: ClassVar[bool] = True
    name: Literal["multi-squared"] = "multi-squared"
    targets: int = Field(ge=2, le=1000)

    @property
    def outputs(self) -> int:
        """One column per target."""
        return self.targets

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ½·‖u − y‖²."""
        result: FloatArray = 0.5 * (self.residuals(scores, targets) ** 2).sum(axis=-1)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u − y."""
        return scores - targets.reshape(len(targets), *[1] * (scores.ndim - 2), self.targets)

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return the scores: a scaled number for each target."""
        return scores

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return twice what would carry the longest record to the targets that are largest together."""
        return 2.0 * target_bound / feature_norm

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X(Xρ + Y) with Y the norm of the largest targets, since ‖xᵀW‖ ≤ X·‖W‖; β = X², of I ⊗ xxᵀ."""
        return Constants(feature_norm * largest_error(feature_norm, target_bound, weight_norm), feature_norm**2, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return 0.08·X·Y, as for one target."""
        return 0.08 * feature_norm * target_bound
