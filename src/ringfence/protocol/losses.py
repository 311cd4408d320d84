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
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.public import Public

TargetKind: TypeAlias = Literal["number", "label", "class"]
"""What a loss takes for a target: a scaled number, a label ±1, or the index of one of `outputs` classes."""

_NARROWEST, _WIDEST = 1e-30, 1e30
"""A width or margin between these is a normal number in single precision too, where the simulator computes."""


@dataclass(frozen=True)
class Constants:
    """Lipschitz constant L, smoothness β and strong convexity μ of a loss in the weights."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


class _Loss(Public):
    """A loss φ(u, y)."""

    name: str
    target_kind: ClassVar[TargetKind] = "number"

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""
        return 1

    @property
    def is_smooth(self) -> bool:
        """Whether the loss has a derivative everywhere, and a finite β."""
        return True

    @property
    def smoothing_error(self) -> float:
        """How far at most the loss lies below the one that it smooths; never above it. 0 if it smooths none."""
        return 0.0

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with β = `smoothness` for ‖x‖ ≤ feature_norm, whatever its width was before.

        Only a `NonSmooth` loss can choose its β; for any other this is a PlanError, as is a β out of range.
        """
        del feature_norm, smoothness
        raise PlanError(f"The {self.name} loss is smooth as it is and its smoothness cannot be chosen: leave it out.")

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

    target_kind: ClassVar[TargetKind] = "label"
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

    target_kind: ClassVar[TargetKind] = "class"
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


class NonSmooth(_Loss):
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

    width: float = Field(default=0.0, ge=0, le=_WIDEST)

    @field_validator("width")
    @classmethod
    def _is_not_too_narrow(cls, width: float) -> float:
        if 0 < width < _NARROWEST:
            raise ValueError(f"a width is 0 or at least {_NARROWEST:g}: below, single precision loses it")
        return width

    @property
    def is_smooth(self) -> bool:
        """Whether there is a width to smooth over."""
        return self.width > 0

    @property
    def smoothing_error(self) -> float:
        """ℓ²τ/2, which is L²/(2β): 0 ≤ φ − φ_τ ≤ ℓ²τ/2, and equal where the slope is steepest."""
        return 0.5 * self.width * self._steepest**2

    def with_width(self, width: float) -> Self:
        """Return this loss with another width: refused as at its making. 0 takes the smoothing away."""
        return type(self)(**(dict(self) | {"width": width}))

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with the width X²/β, whatever its width was before."""
        sensible = 0 < feature_norm < math.inf and 0 < smoothness < math.inf
        width = feature_norm / smoothness * feature_norm if sensible else math.nan
        if not _NARROWEST <= width <= _WIDEST:
            raise PlanError(
                f"The {self.name} loss cannot be given the smoothness {smoothness!r} where features have norms up to "
                f"{feature_norm!r}: both must be positive, and their X²/β from {_NARROWEST:g} to {_WIDEST:g}."
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
        del target_bound, weight_norm
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


class Hinge(NonSmooth):
    """max(0, 1 − y·u) for labels y = ±1: the support vector machine's."""

    target_kind: ClassVar[TargetKind] = "label"
    name: Literal["hinge"] = "hinge"

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        xp = namespace(scores)
        y = _beside(scores, targets)
        return xp.maximum(1.0 - y * scores, 0.0), -y


class Absolute(NonSmooth):
    """|u − y|: its minimum is the median. With a width τ it is the Huber loss of threshold τ, divided by τ."""

    name: Literal["absolute"] = "absolute"

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return scores - _beside(scores, targets), 1.0


class Pinball(NonSmooth):
    """max(q·(y − u), (q − 1)·(y − u)): its minimum is the quantile q."""

    name: Literal["pinball"] = "pinball"
    quantile: float = Field(gt=0, lt=1)

    @property
    def _slopes(self) -> tuple[float, float]:
        return -self.quantile, 1.0 - self.quantile

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        return scores - _beside(scores, targets), 1.0


class EpsilonInsensitive(NonSmooth):
    """max(0, |u − y| − margin): errors up to the margin are free. The support vector regression's."""

    name: Literal["epsilon-insensitive"] = "epsilon-insensitive"
    margin: float = Field(ge=0, le=_WIDEST)

    def _excess(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray | float]:
        xp = namespace(scores)
        error = scores - _beside(scores, targets)
        return xp.maximum(xp.abs(error) - self.margin, 0.0), xp.sign(error)


def _beside(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the targets shaped to broadcast with the scores, one row per record."""
    return targets.reshape(-1, *[1] * (scores.ndim - 1))


def _largest_error(feature_norm: float, target_bound: float, weight_norm: float) -> float:
    return (feature_norm * weight_norm if feature_norm > 0 else 0.0) + target_bound


Loss: TypeAlias = Annotated[
    Logistic | Softmax | Squared | Huber | Hinge | Absolute | Pinball | EpsilonInsensitive, Field(discriminator="name")
]
