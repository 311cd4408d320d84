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
from typing import ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias

from pydantic import Field, field_validator

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.outputs import Outputs
from ringfence.protocol.public import Public

TargetKind: TypeAlias = Literal["number", "numbers", "label", "class", "time"]
"""What a loss takes as target: a scaled number, several of them, a label ±1, the index of a class, or a time and its
event."""

NARROWEST, WIDEST = 1e-30, 1e30
"""A width or margin between these is a normal number in single precision too, where the simulator computes."""


@dataclass(frozen=True)
class Constants:
    """Lipschitz constant L, smoothness β and strong convexity μ of a loss in the weights."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


class Choices(NamedTuple):
    """What a user may choose for a loss besides its name, and the target's scaling; each loss takes its own.

    A target in its own units is `unit` times the scaled one, plus `offset`, and at most `upper`. `dispersion` and
    `cuts` are in the target's own units.
    """

    classes: int = 2
    targets: int = 1
    quantile: float = 0.5
    margin: float = 0.1
    dispersion: float = 1.0
    cuts: tuple[float, ...] | None = None
    unit: float = 1.0
    offset: float = 0.0
    upper: float = 1.0


class Program(NamedTuple):
    """What has to be installed before a loss can be computed: a name, the text, and its SHA-256."""

    title: str
    source: str
    digest: str


class Ranges(Protocol):
    """The public ranges of records, as a schema tells them."""

    @property
    def feature_norm(self) -> float:
        """X: the longest a feature vector can be."""

    @property
    def target_bound(self) -> float:
        """Y: the largest absolute target after scaling."""

    @property
    def offset_bound(self) -> float:
        """The largest absolute offset."""

    @property
    def weight_bound(self) -> float:
        """The largest weight of a record."""


class BaseLoss(Outputs, Public):
    """A loss φ(u, y)."""

    name: str
    target_kind: ClassVar[TargetKind] = "number"
    is_log_loss: ClassVar[bool] = False
    """Whether it is the negative logarithm of the probability that scores give to the right class."""
    is_squared_error: ClassVar[bool] = False
    """Whether it is the squared error, times a constant: an evaluation tells that anyway."""
    is_proved: ClassVar[bool] = True
    """Whether its constants are proved, so that loss bounds may rest on them."""
    may_be_negative: ClassVar[bool] = False
    """Whether values below 0 occur: two records then differ by more in a cut loss."""
    is_convex_cut: ClassVar[bool] = False
    """Whether residuals of several outputs, shortened by a cut, are those of a convex loss; of one they always are."""
    takes_least: ClassVar[float] = -math.inf
    """The least target that it takes, in the target's own units."""
    is_curved: ClassVar[bool] = False
    """Whether it has `curvatures`, so that coefficients have intervals."""

    @property
    def has_probabilities(self) -> bool:
        """Whether scores give every class a probability."""
        return self.is_log_loss

    @property
    def is_of_numbers(self) -> bool:
        """Whether its target is a number and its prediction the score."""
        return self.target_kind == "number" and self.link == "identity"

    @property
    def categories(self) -> int:
        """How many categories a class target has: by default, the number of outputs."""
        return self.outputs

    @classmethod
    def chosen(cls, choices: Choices) -> Self:
        """Return the loss as asked for by name: it takes the choices that are its own."""
        options = {name: getattr(choices, name) for name in ("classes", "targets", "quantile", "margin")}
        return cls.model_validate({name: value for name, value in options.items() if name in cls.model_fields})

    def misfit(self, unit: float, offset: float, lower: float) -> str:
        """Say, as a clause, why it does not fit a numeric target with that scaling and smallest value; or nothing."""
        del unit, offset, lower
        return ""

    @property
    def scikit_learn(self) -> str:
        """The linear model of scikit-learn with the same predictions; empty if there is none."""
        if self.target_kind in ("number", "numbers"):
            return "LinearRegression"
        return "LogisticRegression" if self.is_log_loss else "LinearSVC"

    @property
    def parts_end(self) -> tuple[float, ...]:
        """Where the parts of a time end, if it has any, in units of the target's scale."""
        return ()

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Return a name for every score, of targets in units of `unit`: its target, or the class it stands for."""
        del unit
        return list(targets) if not classes else list(classes[1:] if self.outputs == 1 else classes)

    @property
    def link(self) -> Literal["identity", "log"]:
        """Which function of a numeric target's mean the score is."""
        return "identity"

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return what scores predict, in the target's encoding: a scaled number, a label ±1, or a class's index."""
        xp = namespace(scores)
        if self.target_kind == "class":
            classes: FloatArray = xp.argmax(scores, axis=-1).astype(scores.dtype)
            return classes
        result: FloatArray = scores[..., 0]
        return xp.where(result > 0, 1.0, -1.0) if self.target_kind == "label" else result

    def score_units(self, unit: float, offset: float) -> tuple[float, float]:
        """Return what to multiply a score by, and what to add, to have it for the target in its own units."""
        return unit, offset

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return how large the weights are expected to get.

        Labels: scores of up to 20, times the number of outputs. Numbers: twice what takes the longest record to the
        largest target. The factors were chosen once, on public data.
        """
        numeric = self.target_kind == "number"
        return 2.0 * target_bound / feature_norm if numeric else 20.0 * self.outputs / feature_norm

    def constants_on(self, data: Ranges, weight_norm: float) -> Constants:
        """Return L, β and μ over records of these ranges, with their offsets and weights.

        Scores with offsets of at most o are as large as those without of weights longer by o/X; and constants depend on
        weights through the size of scores alone. A record's weight multiplies its loss.
        """
        X, most = data.feature_norm, data.weight_bound
        own = self.constants(X, data.target_bound, weight_norm + (data.offset_bound / X if X > 0 else 0.0))
        return Constants(most * own.lipschitz, most * own.smoothness, 0.0 if most != 1.0 else own.strong_convexity)

    def clipped_smoothness(self, feature_norm: float, target_bound: float, clip: float) -> float:
        """Return β of gradients that are cut to the clip, if that bounds it; else infinity."""
        del feature_norm, target_bound, clip
        return math.inf

    def smoothness_on(self, data: Ranges, weight_norm: float, clip: float) -> float:
        """Return β of gradients that are cut to the clip, over records of these ranges."""
        most = data.weight_bound
        cut = most * self.clipped_smoothness(data.feature_norm, data.target_bound, clip / most)
        return min(self.constants_on(data, weight_norm).smoothness, cut)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return the typical norm of a record's gradient, which is the default clipping norm.

        Half of the longest, unless a loss knows better. The fractions were chosen once, on public data.
        """
        return 0.5 * feature_norm * self.constants(1.0, target_bound, math.inf).lipschitz

    @property
    def called(self) -> str:
        """Its name in texts for people."""
        return self.name

    @property
    def program(self) -> Program | None:
        """The program that operators must install, if the loss is not Ringfence's own."""
        return None

    @property
    def missing(self) -> str:
        """Say, as a clause, why it cannot be computed here; nothing if it can."""
        return ""

    @property
    def has_kinks(self) -> bool:
        """Whether it has no finite β, so that only some algorithms have a loss bound."""
        return False

    @property
    def smoothing_error(self) -> float:
        """The most by which the loss lies below the one it smooths; it never lies above. 0 if it smooths none."""
        return 0.0

    @property
    def aimed_share(self) -> float | None:
        """The share of targets that predictions should lie above, for a loss whose minimum is a quantile."""
        return None

    def unsmoothed(self) -> Self:
        """Return the loss that this one smooths: itself if it smooths none."""
        return self

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with β = `smoothness` for ‖x‖ ≤ feature_norm, whatever its width was before.

        Only a `NonSmooth` loss can choose its β; for any other this is a PlanError, as is a β out of range.
        """
        raise PlanError(f"The {self.name} loss is already smooth: leave the smoothness out.")

    @abstractmethod
    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ for every record."""

    @abstractmethod
    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂φ/∂u of every record, in the shape of `scores`."""

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂²φ/∂u² of every record, in the shape of `scores`, of a loss that `is_curved`."""
        raise NotImplementedError

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return a column of probabilities per class, in the classes' order, of a loss that `has_probabilities`."""
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
            raise ValueError(f"a width must be 0 or at least {NARROWEST:g}: single precision loses anything smaller")
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
        """Return this loss with another width, checked as in the constructor. 0 removes the smoothing."""
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
                f"The {self.name} loss cannot have the smoothness {smoothness!r} where features have norms up to "
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
