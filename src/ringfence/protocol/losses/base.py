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
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias

from ringfence.errors import PlanError
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.public import Public

if TYPE_CHECKING:
    from ringfence.protocol.losses.custom import Custom
    from ringfence.protocol.schema.schema import Schema

TargetKind: TypeAlias = Literal["number", "numbers", "label", "class", "time"]
"""What a loss takes as target: a scaled number, several of them, a label ±1, the index of a class, or a time and its
event."""


@dataclass(frozen=True)
class Constants:
    """Lipschitz constant L, smoothness β and strong convexity μ of a loss in the weights."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


class LinearLoss:
    """A loss of a linear model, and the shape of its weights: one column per output, or slopes that all outputs share.

    With shared slopes every output k has the score u_k = x̃ᵀβ + c·α_k, of the features x̃ before the constant and the
    constant c itself: weights are β and one α per output. A record's gradient is then (Σ_k r_k)·x̃ in β and c·r in α, of
    residuals r, and its norm √(‖x̃‖²(Σr)² + c²‖r‖²) follows from two norms, as that of an outer product does.
    """

    target_kind: ClassVar[TargetKind] = "number"
    shares_slopes: ClassVar[bool] = False
    """Whether outputs differ by their constant alone, so that a schema without intercept does not suit it."""

    @property
    def outputs(self) -> int:
        """The number of a loss's scores for a record."""
        return 1

    @abstractmethod
    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return φ, the loss, for every record, as each loss defines it."""

    @abstractmethod
    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂φ/∂u of every record, in the shape of `scores`, as each loss defines it."""

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return what a loss's scores predict, in the target's encoding: scaled number, label ±1, or class index."""
        xp = namespace(scores)
        if self.target_kind == "class":
            return xp.argmax(scores, axis=-1).astype(scores.dtype)
        result: FloatArray = scores[..., 0]
        return xp.where(result > 0, 1.0, -1.0) if self.target_kind == "label" else result

    def dimension(self, width: int) -> int:
        """Return how many weights a loss has, for that many features with the constant."""
        return width - 1 + self.outputs if self.shares_slopes else width * self.outputs

    def matrix(self, weights: FloatArray, width: int) -> FloatArray:
        """Return weights, on the last axis, as a row per feature and a column per output."""
        before = weights.shape[:-1]
        if not self.shares_slopes:
            return weights.reshape(*before, width, self.outputs)
        xp = namespace(weights)
        slopes = xp.broadcast_to(weights[..., : width - 1, None], (*before, width - 1, self.outputs))
        return xp.concatenate([slopes, weights[..., None, width - 1 :]], axis=-2)

    def gradient_norms(self, residuals: FloatArray, norms: FloatArray, constants: FloatArray) -> FloatArray:
        """Return the norm of every record's gradient, of its features' norm and of their last, which is constant."""
        xp = namespace(residuals)
        squares = xp.sum(residuals * residuals, axis=-1)
        if not self.shares_slopes:
            return beside(squares, norms) * xp.sqrt(squares)
        # A sum of residuals that cancel errs by their sizes: the length is that of the largest it may be computed as.
        total = xp.abs(xp.sum(residuals, axis=-1)) + self.outputs * 2.0**-50 * xp.sum(xp.abs(residuals), axis=-1)
        last = beside(squares, constants * constants)
        slopes = xp.maximum(beside(squares, norms * norms) - last, 0.0)
        return xp.sqrt(slopes * total * total + last * squares)

    def residual_columns(self, residuals: FloatArray) -> FloatArray:
        """Return the factors of the features: the residuals and, with shared slopes, before them their sum."""
        if not self.shares_slopes:
            return residuals
        xp = namespace(residuals)
        return xp.concatenate([xp.sum(residuals, axis=-1, keepdims=True), residuals], axis=-1)

    def weight_gradients(self, products: FloatArray) -> FloatArray:
        """Return the gradients of the weights from products of features and `residual_columns`, a row per feature."""
        if not self.shares_slopes:
            return products
        xp = namespace(products)
        constants = xp.moveaxis(products[-1, ..., 1:], -1, 0)
        return xp.concatenate([products[:-1, ..., 0], constants], axis=0)

    def rounded(self, width: int) -> int:
        """Return how many roundings of 2⁻⁵² a loss's computed length may be off by, relatively (`docs/proofs.md`)."""
        return 2 * self.outputs * (width + 8) if self.shares_slopes else width + self.outputs

    @property
    def spare(self) -> float:
        """A power of two above what a sum of a loss's residuals may exceed their norm by."""
        return 2.0 ** math.ceil(math.log2(self.outputs) / 2) if self.shares_slopes else 1.0


class BaseLoss(LinearLoss, Public):
    """A loss φ(u, y)."""

    name: str
    is_log_loss: ClassVar[bool] = False
    """Whether it is the negative logarithm of the probability that scores give to the right class."""
    is_squared_error: ClassVar[bool] = False
    """Whether it is the squared error times a constant, which an evaluation reports anyway."""
    is_proved: ClassVar[bool] = True
    """Whether its constants are proved, so that loss bounds may rest on them."""
    may_be_negative: ClassVar[bool] = False
    """Whether values below 0 occur: the clipped losses of two records then differ by more."""
    is_convex_clipped: ClassVar[bool] = False
    """Whether clipped residuals of several outputs are those of a convex loss; of one output they always are."""
    takes_least: ClassVar[float] = -math.inf
    """The least target that it takes, in the target's own units."""
    link: ClassVar[Literal["identity", "log"]] = "identity"
    """Which function of a numeric target's mean the score is."""
    scikit_learn: ClassVar[str] = "LinearRegression"
    """The linear model of scikit-learn with the same predictions; empty if there is none."""
    is_curved: ClassVar[bool] = False
    """Whether it has `curvatures`, so that coefficients have intervals."""

    @property
    def has_probabilities(self) -> bool:
        """Whether the loss's scores give every class a probability; by default not."""
        return self.is_log_loss

    @property
    def categories(self) -> int:
        """How many categories a loss's class target has: by default, the number of outputs."""
        return self.outputs

    def target_problem(self, unit: float, offset: float, lower: float) -> str:
        """Return why a loss does not suit a numeric target with this scaling and smallest value; empty if it does."""
        return ""

    @property
    def parts_end(self) -> tuple[float, ...]:
        """Where the parts of a loss's time end, if it has any, in units of the target's scale."""
        return ()

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Return a name for every score of a loss, of targets in units of `unit`: its target, or its class."""
        return list(targets) if not classes else list(classes[1:] if self.outputs == 1 else classes)

    def score_units(self, unit: float, offset: float) -> tuple[float, float]:
        """Return what to multiply a loss's score by, and what to add, to have it for the target in its own units."""
        return unit, offset

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return how large the weights are expected to get, by default for any loss.

        Labels: scores of up to 20, times the number of outputs. Numbers: twice what takes the longest record to the
        largest target. The factors were chosen once, on public data.
        """
        numeric = self.target_kind in ("number", "numbers")
        return 2.0 * target_bound / feature_norm if numeric else 20.0 * self.outputs / feature_norm

    def constants_on(self, data: "Schema", weight_norm: float) -> Constants:
        """Return L, β and μ over records of these ranges, with their offsets and weights.

        Scores with offsets of at most o are as large as those without of weights longer by o/X; and constants depend on
        weights through the size of scores alone. A record's weight multiplies its loss.
        """
        X, most = data.feature_norm, data.weight_bound
        own = self.constants(X, data.target_bound, weight_norm + (data.offset_bound / X if X > 0 else 0.0))
        return Constants(most * own.lipschitz, most * own.smoothness, 0.0 if most != 1.0 else own.strong_convexity)

    def clipped_smoothness(self, feature_norm: float, target_bound: float, clip: float) -> float:
        """Return β of gradients that are clipped, if that bounds it; else infinity."""
        return math.inf

    def smoothness_on(self, data: "Schema", weight_norm: float, clip: float) -> float:
        """Return β of gradients that are clipped, over records of these ranges."""
        most = data.weight_bound
        clipped = most * self.clipped_smoothness(data.feature_norm, data.target_bound, clip / most)
        return min(self.constants_on(data, weight_norm).smoothness, clipped)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return the typical norm of a record's gradient, which is the default clipping norm.

        Half of the longest, unless a loss overrides it. The fractions were chosen once, on public data.
        """
        return 0.5 * feature_norm * self.constants(1.0, target_bound, math.inf).lipschitz

    @property
    def called(self) -> str:
        """The loss's name in texts for people."""
        return self.name

    @property
    def program(self) -> "Custom | None":
        """The loss itself, with title, source and digest, if it is a program that operators must install."""
        return None

    @property
    def missing(self) -> str:
        """Return why a loss cannot be computed here; empty if it can, as by default."""
        return ""

    @property
    def has_kinks(self) -> bool:
        """Whether a loss has no finite β, so that only some algorithms have a loss bound."""
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
        """Return the loss that this one smooths: by default itself, as it smooths none."""
        return self

    def smoothed(self, feature_norm: float, smoothness: float) -> Self:
        """Return this loss with β = `smoothness` for ‖x‖ ≤ feature_norm, whatever its width was before.

        Only a `NonSmooth` loss can choose its β; for any other this is a PlanError, as is a β out of range.
        """
        raise PlanError(f"The {self.name} loss is already smooth: leave the smoothness out.")

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return ∂²φ/∂u² of every record, in the shape of `scores`, of a loss that `is_curved`."""
        raise NotImplementedError

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return a column of probabilities per class, in the classes' order, of a loss that `has_probabilities`."""
        raise NotImplementedError

    @abstractmethod
    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """Return a loss's L, β and μ for ‖x‖ ≤ feature_norm, |y| ≤ target_bound, ‖W‖ ≤ weight_norm (may be inf)."""


def beside(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return an array with a row per record, shaped to broadcast with the scores, which have more axes."""
    return targets.reshape(*targets.shape, *[1] * (scores.ndim - targets.ndim))


def largest_error(feature_norm: float, target_bound: float, weight_norm: float) -> float:
    """Return the largest |u − y| that a loss can have."""
    return (feature_norm * weight_norm if feature_norm > 0 else 0.0) + target_bound
