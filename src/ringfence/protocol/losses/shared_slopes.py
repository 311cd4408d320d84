"""Losses of several scores that differ by a constant: survival, by parts of the time, and categories in an order.

Score k is u_k = x̃ᵀβ + c·α_k (`Outputs`): slopes are shared, and each part, or each threshold, has its own constant.
"""

import math
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import BaseLoss, Choices, Constants, TargetKind
from ringfence.protocol.losses.counts import STEEPEST, ends

PARTS = 5
"""Into how many equal parts the time up to its bound is cut, unless somebody says where."""


class Survival(BaseLoss):
    """Σ_k e^{u_k}·t_k − d·u_K: a hazard e^{u_k} that is constant in each part of the time, and proportional in x.

    A record is a time and whether an event ended it: t_k is what of the time lies in part k, K the part in which it
    ends, d whether by an event. `cuts` are where parts end, from the time's zero, in units of the schema's scale; the
    last part has no end; `zero` is the scaled time that stands for 0. That is the likelihood of one patient by a single
    record, with nobody else at risk in it.
    """

    shares_slopes: ClassVar[bool] = True
    target_kind: ClassVar[TargetKind] = "time"
    may_be_negative: ClassVar[bool] = True
    name: Literal["survival"] = "survival"
    zero: float = Field(default=0.0, le=0, ge=-1e6)
    cuts: tuple[float, ...] = Field(max_length=1000)

    @field_validator("cuts")
    @classmethod
    def _rise(cls, cuts: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in zip((0.0, *cuts), cuts, strict=False)):
            raise ValueError("cuts must be above 0 and increase")
        return cuts

    @classmethod
    def chosen(cls, choices: Choices) -> Self:
        """Cut the time where somebody says, or into equal parts up to its bound."""
        upper, unit = choices.upper, choices.unit
        cuts = [upper * k / PARTS for k in range(1, PARTS)] if choices.cuts is None else choices.cuts
        return cls(zero=-choices.offset / unit, cuts=tuple(cut / unit for cut in cuts))

    @property
    def outputs(self) -> int:
        """One per part of the time."""
        return len(self.cuts) + 1

    @property
    def scikit_learn(self) -> str:
        """None."""
        return ""

    @property
    def parts_end(self) -> tuple[float, ...]:
        """The cuts."""
        return self.cuts

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Name each part's hazard by where it begins."""
        del classes
        return [f"log hazard from {targets[0]} {start * unit:g}" for start in (0.0, *self.cuts)]

    @property
    def link(self) -> Literal["identity", "log"]:
        """Logarithm, of a hazard."""
        return "log"

    def misfit(self, unit: float, offset: float, lower: float) -> str:
        """Say that a time's zero is its own, if it is not."""
        fits = lower >= 0 and math.isclose(self.zero, -offset / unit, rel_tol=1e-9, abs_tol=1e-12)
        return "" if fits else "the survival loss needs times from 0: give the target's column a `lower` of 0"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return Σ_k e^{u_k}·t_k − d·u_K."""
        spent, ended = self._parts(scores, targets)
        result: FloatArray = (self._hazards(scores) * spent - ended * scores).sum(axis=-1)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return e^{u_k}·t_k − d·[k = K]."""
        spent, ended = self._parts(scores, targets)
        return self._hazards(scores) * spent - ended

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return the expected time without an event, up to the last cut or the unit, in the target's encoding."""
        xp = namespace(scores)
        hazards, left = self._hazards(scores), 1.0
        total = 0.0 * scores[..., 0]
        starts = (0.0, *self.cuts)
        for k, start in enumerate(starts):
            length = (starts[k + 1] if k + 1 < len(starts) else max(2.0 * start, 2.0)) - start
            rate = hazards[..., k]
            total = total + left * -xp.expm1(-rate * length) / xp.maximum(rate, 1e-30)
            left = left * xp.exp(-rate * length)
        result: FloatArray = total + self.zero
        return result

    def score_units(self, unit: float, offset: float) -> tuple[float, float]:
        """Return 1 and −ln(unit): a hazard per unit of the time itself."""
        del offset
        return 1.0, -math.log(unit)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return 3·√parts: hazards of e^±3 and as much between records, in units of the time's scale."""
        del feature_norm, target_bound
        return 3.0 * math.sqrt(self.outputs)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X: a record's residuals add up to its event less what was expected, mostly about 1 in size."""
        del target_bound
        return feature_norm

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """Bound L and β by residuals of at most e^b·T + 1 in all, b the largest score and T the longest time.

        ‖gradient‖ ≤ X·Σ|r_k| and the Hessian Σ_k e^{u_k}t_k·(x, e_k)(x, e_k)ᵀ is at most X²·e^b·T.
        """
        top, _ = ends(feature_norm, weight_norm)
        longest = target_bound - self.zero
        return Constants(feature_norm * (top * longest + 1.0), feature_norm**2 * top * longest, 0.0)

    def clipped_smoothness(self, feature_norm: float, target_bound: float, clip: float) -> float:
        """Return X² + √(1 + K)·X·clip, for K parts: the curvature of records whose gradients are not cut.

        It is at most ‖x‖²·Σ_k e^{u_k}t_k ≤ (‖x̃‖² + c²)(1 + |Σr|), where ‖x̃‖·|Σr| ≤ clip and c·|Σr| ≤ √K·c‖r‖ ≤ √K·clip.
        Gradients that are cut need not be those of any convex loss, and no loss bound is stated for them.
        """
        del target_bound
        return feature_norm**2 + math.sqrt(1.0 + self.outputs) * feature_norm * clip

    def _hazards(self, scores: FloatArray) -> FloatArray:
        xp = namespace(scores)
        result: FloatArray = xp.exp(xp.clip(scores, -STEEPEST, STEEPEST))
        return result

    def _parts(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what of every time lies in each part, and 1 for the part that an event ended."""
        xp = namespace(scores)
        between = [1] * (scores.ndim - 2)
        times, events = (targets[:, k].reshape(-1, *between, 1) for k in (0, 1))
        starts = xp.asarray([0.0, *self.cuts], dtype=scores.dtype)
        lengths = xp.asarray([*(b - a for a, b in zip((0.0, *self.cuts), self.cuts, strict=False)), 1e30], scores.dtype)
        past = times - self.zero - starts
        spent = xp.clip(past, 0.0, lengths)
        is_last = (past > 0) & (past <= lengths)
        # A time of 0 ends in the first part.
        first = xp.arange(self.outputs) == 0
        ended = events * xp.where(times - self.zero <= 0, first, is_last)
        return spent, ended


class Ordinal(BaseLoss):
    """Σ_k ln(1 + e^{∓u_k}): one logistic loss per threshold, of whether the category lies above it.

    The score u_k is of "above threshold k"; a target is the category's place y, and lies above thresholds 0 to y − 1.
    All thresholds count for every record (the all-threshold form): convex, with thresholds in order at the best
    weights, and slopes of proportional odds. A category's probability is the difference of two neighbours' shares.
    """

    shares_slopes: ClassVar[bool] = True
    target_kind: ClassVar[TargetKind] = "class"
    name: Literal["ordinal"] = "ordinal"
    classes: int = Field(ge=3, le=10_000)

    @property
    def outputs(self) -> int:
        """One per threshold between neighbouring categories."""
        return self.classes - 1

    @property
    def has_probabilities(self) -> bool:
        """Differences of neighbouring thresholds' shares."""
        return True

    @property
    def categories(self) -> int:
        """How many categories a target has."""
        return self.classes

    @property
    def scikit_learn(self) -> str:
        """None."""
        return ""

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Name each threshold by the category below it."""
        del targets, unit
        return [f"above {category}" for category in classes[:-1]]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return Σ_k ln(1 + e^{−s_k·u_k}), s_k = ±1."""
        xp = namespace(scores)
        result: FloatArray = xp.logaddexp(0.0, -self._signs(scores, targets) * scores).sum(axis=-1)
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return −s_k·sigmoid(−s_k·u_k)."""
        signs = self._signs(scores, targets)
        result: FloatArray = -0.5 * signs * (1.0 - namespace(scores).tanh(0.5 * signs * scores))
        return result

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return how many thresholds a record is likelier above than below: the median category."""
        result: FloatArray = (scores > 0).sum(axis=-1).astype(scores.dtype)
        return result

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return every category's probability; thresholds out of order, as noise may leave them, are put in order."""
        xp = namespace(scores)
        above = 0.5 * (1.0 + xp.tanh(-0.5 * xp.sort(-scores, axis=-1)))
        ends = xp.zeros_like(scores[..., :1])
        result: FloatArray = -xp.diff(xp.concatenate([ends + 1.0, above, ends], axis=-1), axis=-1)
        return result

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return 20·√thresholds/X: scores of up to 20, as for two labels."""
        del target_bound
        return 20.0 * math.sqrt(self.outputs) / feature_norm

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·K, for K thresholds; β = X²·K/4: the loss is a sum of K logistic ones, each in features of norm X."""
        del target_bound, weight_norm
        return Constants(feature_norm * self.outputs, feature_norm**2 * self.outputs / 4, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X/2 times √thresholds: a record is sure of most thresholds, and about half a unit off at some."""
        del target_bound
        return 0.5 * feature_norm * math.sqrt(self.outputs)

    def _signs(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        xp = namespace(scores)
        places = targets.reshape(-1, *[1] * (scores.ndim - 1))
        result: FloatArray = xp.where(places > xp.arange(self.outputs), 1.0, -1.0)
        return result
