"""Non-smooth losses: hinge, absolute, pinball and epsilon-insensitive, which may be smoothed over a width."""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import BaseLoss, Constants, TargetKind, beside

NARROWEST, WIDEST = 1e-30, 1e30
"""A width or margin between these is a normal number in single precision too, where the simulator computes."""


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
        """Refuse a smoothing width that single precision would lose."""
        if 0 < width < NARROWEST:
            raise ValueError(f"a width must be 0 or at least {NARROWEST:g}: single precision loses anything smaller")
        return width

    @property
    def has_kinks(self) -> bool:
        """Whether a nonsmooth loss is left unsmoothed."""
        return self.width == 0

    @property
    def smoothing_error(self) -> float:
        """ℓ²τ/2, which is L²/(2β): 0 ≤ φ − φ_τ ≤ ℓ²τ/2, and equal where the slope is steepest."""
        return 0.5 * self.width * self._steepest**2

    def with_width(self, width: float) -> Self:
        """Return this nonsmooth loss with another width, checked as in the constructor. 0 removes the smoothing."""
        return type(self)(**(dict(self) | {"width": width}))

    def unsmoothed(self) -> Self:
        """Return this nonsmooth loss with width 0."""
        return self.with_width(0.0)

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this nonsmooth loss with the width X²/β, whatever its width was before."""
        sensible = 0 < feature_norm < math.inf and 0 < smoothness < math.inf
        width = feature_norm / smoothness * feature_norm if sensible else math.nan
        if not NARROWEST <= width <= WIDEST:
            raise PlanError(
                f"The {self.name} loss cannot have the smoothness {smoothness!r} where features have norms up to "
                f"{feature_norm!r}: both must be positive, and their X²/β from {NARROWEST:g} to {WIDEST:g}."
            )
        return self.with_width(width)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the smoothed loss φ_τ; s·(e − τs/2) with |s| ≤ 1 does not overflow."""
        excess, _ = self._excess(scores, targets)
        slopes = self._slopes_at(excess)
        return (slopes * (excess - 0.5 * self.width * slopes))[..., 0]

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the smoothed slope φ_τ', or for width 0 the subgradient of φ nearest to 0."""
        excess, direction = self._excess(scores, targets)
        return self._slopes_at(excess) * direction

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = ℓX; β = X²/τ, infinite without a smoothing width unless all features are 0."""
        without_width = math.inf if feature_norm > 0 else 0.0
        smoothness = feature_norm**2 / self.width if self.width > 0 else without_width
        return Constants(feature_norm * self._steepest, smoothness, 0.0)

    @property
    def _slopes(self) -> tuple[float, float]:
        """The least and the greatest slope of a nonsmooth loss in e, `low` ≤ 0 ≤ `high`, neither beyond ±1."""
        return -1.0, 1.0

    @property
    def _steepest(self) -> float:
        """The steepest slope ℓ of a nonsmooth loss."""
        low, high = self._slopes
        return max(-low, high)

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return e(u) of a nonsmooth loss, in the shape of `scores`, and its derivative: by default u − y."""
        return scores - beside(scores, targets), 1.0

    def _slopes_at(self, excess: FloatArray) -> FloatArray:
        """Return the smoothed slope of a nonsmooth loss at each e."""
        xp = namespace(excess)
        # Clipping e to ±τ before dividing cannot overflow, and no slope is beyond ±1.
        ratio = xp.clip(excess, -self.width, self.width) / self.width if self.width > 0 else xp.sign(excess)
        return xp.clip(ratio, *self._slopes)


class Hinge(NonSmooth):
    """max(0, 1 − y·u) for labels y = ±1: the support vector machine's."""

    target_kind: ClassVar[TargetKind] = "label"
    scikit_learn: ClassVar[str] = "LinearSVC"
    name: Literal["hinge"] = "hinge"

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return max(1 − y·u, 0), for the hinge loss, and its derivative −y."""
        y = beside(scores, targets)
        return namespace(scores).maximum(1.0 - y * scores, 0.0), -y


class Absolute(NonSmooth):
    """|u − y|: its minimum is the median. With a width τ it is the Huber loss of threshold τ, divided by τ."""

    name: Literal["absolute"] = "absolute"


class Pinball(NonSmooth):
    """max(q·(y − u), (q − 1)·(y − u)): its minimum is the quantile q."""

    name: Literal["pinball"] = "pinball"
    quantile: float = Field(gt=0, lt=1)

    @property
    def aimed_share(self) -> float:
        """The quantile of the pinball loss."""
        return self.quantile

    @property
    def _slopes(self) -> tuple[float, float]:
        """The two slopes of the pinball loss, by its quantile."""
        return -self.quantile, 1.0 - self.quantile


class EpsilonInsensitive(NonSmooth):
    """max(0, |u − y| − margin): errors up to the margin are free. The support vector regression's."""

    name: Literal["epsilon-insensitive"] = "epsilon-insensitive"
    margin: float = Field(ge=0, le=WIDEST)

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        """Return the error beyond the margin of the ε-insensitive loss, and its derivative."""
        xp = namespace(scores)
        error = scores - beside(scores, targets)
        return xp.maximum(xp.abs(error) - self.margin, 0.0), xp.sign(error)
