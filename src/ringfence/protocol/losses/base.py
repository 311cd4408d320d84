"""Convex losses of a linear model, in residual form.

A record is a feature vector x and a target y; the model's scores for it are u = xᵀW, one column of W per
output. Every loss here is φ(u, y), so its gradient in W is the outer product of x with the *residual*
∂φ/∂u. Hence the gradient's norm is ‖residual‖·‖x‖, and clipping every record's gradient needs no
per-record gradient in memory.

`scores` has one row per record and, last, one column per output. Between the two there may be further axes
(the simulator's configurations), over which every loss broadcasts.

The constants are those of the loss as a function of W, for ‖x‖ ≤ X (with the intercept's 1 in it),
‖W‖ ≤ ρ and |y| ≤ Y: L bounds the gradient, β the curvature from above, μ from below.

Losses with kinks (`NonSmooth`) have no finite β until they are smoothed over a width.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.public import Public

TargetKind: TypeAlias = Literal["number", "label", "class"]
"""What a loss takes for a target: a scaled number, a label ±1, or the index of one of `outputs` classes."""

NARROWEST, WIDEST = 1e-30, 1e30
"""A width or margin between these is a normal number in single precision too, where the simulator computes."""


@dataclass(frozen=True)
class Constants:
    """Lipschitz constant L, smoothness β and strong convexity μ of a loss in the weights."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


class BaseLoss(Public):
    """A loss φ(u, y)."""

    name: str
    target_kind: ClassVar[TargetKind] = "number"
    has_probabilities: ClassVar[bool] = False
    """Whether scores stand for probabilities of the classes."""
    is_squared_error: ClassVar[bool] = False
    """Whether it is the squared error, times a constant: an evaluation tells that anyway."""
    is_curved: ClassVar[bool] = False
    """Whether it has `curvatures`, so that coefficients have intervals."""

    @classmethod
    def chosen(cls, *, classes: int, quantile: float, margin: float) -> Self:
        """Return the loss as somebody asks for it by its name, of the options for all losses those that are its own."""
        options = {"classes": classes, "quantile": quantile, "margin": margin}
        return cls.model_validate({name: value for name, value in options.items() if name in cls.model_fields})

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return about how long a record's gradient typically is: where it is cut, unless somebody says otherwise.

        Half of the longest, unless a loss knows better. The fractions were chosen once, on public data.
        """
        return 0.5 * feature_norm * self.constants(1.0, target_bound, math.inf).lipschitz

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""
        return 1

    @property
    def has_kinks(self) -> bool:
        """Whether it has no finite β, so that only some algorithms have a loss bound."""
        return False

    @property
    def smoothing_error(self) -> float:
        """How far at most the loss lies below the one that it smooths; never above it. 0 if it smooths none."""
        return 0.0

    @property
    def aimed_share(self) -> float | None:
        """The share of targets that predictions aim to lie above, of a loss whose least value is at a quantile."""
        return None

    def unsmoothed(self) -> Self:
        """Return the loss that this one smooths: itself if it smooths none."""
        return self

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with β = `smoothness` for ‖x‖ ≤ feature_norm, whatever its width was before.

        Only a `NonSmooth` loss can choose its β; for any other this is a PlanError, as is a β out of range.
        """
        raise PlanError(f"The {self.name} loss is smooth as it is and its smoothness cannot be chosen: leave it out.")

    @abstractmethod
    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ of every record."""

    @abstractmethod
    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂φ/∂u of every record, in the shape of `scores`."""

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂²φ/∂u² of every record, in the shape of `scores`, of a loss that `is_curved`."""
        raise NotImplementedError

    @abstractmethod
    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """Return L, β and μ for ‖x‖ ≤ feature_norm, |y| ≤ target_bound, ‖W‖ ≤ weight_norm (may be inf)."""


class NonSmooth(BaseLoss):
    """A loss with kinks, φ(u) = max of s·e(u) over slopes s from `low` to `high`, smoothed over a `width` τ.

    τ is in units of the score. With τ = 0, the default, this is φ itself and the residual a subgradient: at a
    kink the smallest, which the smoothed ones tend to. With τ > 0 it is the Moreau envelope (Nesterov smoothing)

        φ_τ(z) = min over u of φ(u) + (z − u)²/(2τ) = max over s of s·e(z) − τs²/2,

    attained at s = clip(e/τ, low, high), which is the derivative in e, and u* = z − τ·φ_τ'(z). As a function of
    the weights this is the envelope of f with parameter ‖x‖²/τ. One may let τ = ‖x‖²/β vary with the
    record so that each has exactly the wanted β. Here τ = X²/β for all of them: that is the same where
    ‖x‖ = X; a smaller record's is smoother still, ‖x‖²/τ ≤ β; and the gap stays 0 ≤ φ − φ_τ ≤ ℓ²τ/2 = L²/(2β),
    where ℓ = max(|low|, |high|) bounds the slope and L = ℓX. No gradient grows: L is that of φ.
    """

    width: float = Field(default=0.0, ge=0, le=WIDEST)

    @field_validator("width")
    @classmethod
    def _is_not_too_narrow(cls, width: float) -> float:
        if 0 < width < NARROWEST:
            raise ValueError(f"a width is 0 or at least {NARROWEST:g}: below, single precision loses it")
        return width

    @property
    def has_kinks(self) -> bool:
        """Whether it is not smoothed."""
        return self.width == 0

    @property
    def smoothing_error(self) -> float:
        """ℓ²τ/2, which is L²/(2β): 0 ≤ φ − φ_τ ≤ ℓ²τ/2, and equal where the slope is steepest."""
        return 0.5 * self.width * self._steepest**2

    def with_width(self, width: float) -> Self:
        """Return this loss with another width: refused as at its making. 0 takes the smoothing away."""
        return type(self)(**(dict(self) | {"width": width}))

    def unsmoothed(self) -> Self:
        """Return this loss with width 0."""
        return self.with_width(0.0)

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with the width X²/β, whatever its width was before."""
        sensible = 0 < feature_norm < math.inf and 0 < smoothness < math.inf
        width = feature_norm / smoothness * feature_norm if sensible else math.nan
        if not NARROWEST <= width <= WIDEST:
            raise PlanError(
                f"The {self.name} loss cannot be given the smoothness {smoothness!r} where features have norms up to "
                f"{feature_norm!r}: both must be positive, and their X²/β from {NARROWEST:g} to {WIDEST:g}."
            )
        return self.with_width(width)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ_τ; s·(e − τs/2) with |s| ≤ 1 does not overflow."""
        excess, _ = self._excess(scores, targets)
        slopes = self._slopes_at(excess)
        result: FloatArray = (slopes * (excess - 0.5 * self.width * slopes))[..., 0]
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ_τ', or for width 0 the subgradient of φ nearest to 0."""
        excess, direction = self._excess(scores, targets)
        return self._slopes_at(excess) * direction

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = ℓX; β = X²/τ, infinite without a width unless all features are 0."""
        without_width = math.inf if feature_norm > 0 else 0.0
        smoothness = feature_norm**2 / self.width if self.width > 0 else without_width
        return Constants(feature_norm * self._steepest, smoothness, 0.0)

    @property
    def _slopes(self) -> tuple[float, float]:
        """The least and the greatest slope in e, `low` ≤ 0 ≤ `high`; neither is beyond ±1."""
        return -1.0, 1.0

    @property
    def _steepest(self) -> float:
        low, high = self._slopes
        return max(-low, high)

    @abstractmethod
    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return e(u), in the shape of `scores`, and its derivative."""

    def _slopes_at(self, excess: FloatArray) -> FloatArray:
        xp = namespace(excess)
        # Cutting e to ±τ before dividing cannot overflow, and no slope is beyond ±1.
        ratio = xp.clip(excess, -self.width, self.width) / self.width if self.width > 0 else xp.sign(excess)
        result: FloatArray = xp.clip(ratio, *self._slopes)
        return result


def beside(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the targets shaped to broadcast with the scores, one row per record."""
    return targets.reshape(-1, *[1] * (scores.ndim - 1))


def largest_error(feature_norm: float, target_bound: float, weight_norm: float) -> float:
    """Return the largest |u − y|."""
    return (feature_norm * weight_norm if feature_norm > 0 else 0.0) + target_bound
