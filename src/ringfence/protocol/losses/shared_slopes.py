"""Losses of several scores that differ by a constant: survival, by parts of the time, and categories in an order.

Score k is u_k = x̃ᵀβ + c·α_k (`LinearLoss`): slopes are shared, and each part, or each threshold, has its own constant.
"""

import math
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.losses.base import BaseLoss, Constants, TargetKind, beside
from ringfence.protocol.losses.log_link import bounded_exp, ends


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
    link: ClassVar[Literal["identity", "log"]] = "log"
    scikit_learn: ClassVar[str] = ""
    name: Literal["survival"] = "survival"
    zero: float = Field(default=0.0, le=0, ge=-1e6)
    cuts: tuple[float, ...] = Field(max_length=1000)

    @field_validator("cuts")
    @classmethod
    def _rise(cls, cuts: tuple[float, ...]) -> tuple[float, ...]:
        """Refuse cuts of a survival loss that are not above 0 and increasing."""
        if any(later <= earlier for earlier, later in zip((0.0, *cuts), cuts, strict=False)):
            raise ValueError("cuts must be above 0 and increase")
        return cuts

    @property
    def outputs(self) -> int:
        """One score of the survival loss per part of the time."""
        return len(self.cuts) + 1

    @property
    def parts_end(self) -> tuple[float, ...]:
        """The cuts of the survival loss."""
        return self.cuts

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Name the hazard of each part of the survival loss by where the part begins."""
        return [f"log hazard from {targets[0]} {start * unit:g}" for start in (0.0, *self.cuts)]

    def target_problem(self, unit: float, offset: float, lower: float) -> str:
        """Refuse a survival time whose scaled zero is not that of the schema."""
        fits = lower >= 0 and math.isclose(self.zero, -offset / unit, rel_tol=1e-9, abs_tol=1e-12)
        return "" if fits else "the survival loss needs times from 0: give the target's column a `lower` of 0"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return Σ_k e^{u_k}·t_k − d·u_K, the survival loss with a hazard for each part."""
        spent, ended = self._parts(scores, targets)
        return namespace(scores).sum(bounded_exp(scores) * spent - ended * scores, axis=-1)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return e^{u_k}·t_k − d·[k = K], for the survival loss."""
        spent, ended = self._parts(scores, targets)
        return bounded_exp(scores) * spent - ended

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return the expected survival time, up to the last cut or the unit, in the target's encoding."""
        xp = namespace(scores)
        hazards, total, left = bounded_exp(scores), 0.0 * scores[..., 0], xp.ones_like(scores[..., 0])
        starts = (0.0, *self.cuts)
        for k, start in enumerate(starts):
            length = (starts[k + 1] if k + 1 < len(starts) else max(2.0 * start, 2.0)) - start
            rate = hazards[..., k]
            total = total + left * -xp.expm1(-rate * length) / xp.maximum(rate, 1e-30)
            left = left * xp.exp(-rate * length)
        return total + self.zero

    def score_units(self, unit: float, offset: float) -> tuple[float, float]:
        """Return 1 and −ln(unit): a hazard per unit of the time itself."""
        return 1.0, -math.log(unit)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return 3·√parts: hazards of e^±3 and as much between records, in units of the time's scale."""
        return 3.0 * math.sqrt(self.outputs)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X, for the survival loss: residuals add up to the event less its expectation, about 1 in size."""
        return feature_norm

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """Bound L and β by residuals of at most e^b·T + 1 in all, b the largest score and T the longest time.

        ‖gradient‖ ≤ X·Σ|r_k| and the Hessian Σ_k e^{u_k}t_k·(x, e_k)(x, e_k)ᵀ is at most X²·e^b·T.
        """
        top, _ = ends(feature_norm, weight_norm)
        longest = target_bound - self.zero
        return Constants(feature_norm * (top * longest + 1.0), feature_norm**2 * top * longest, 0.0)

    def clipped_smoothness(self, feature_norm: float, target_bound: float, clip: float) -> float:
        """Return X² + √(1 + K)·X·clip, for K parts: the curvature of records whose gradients are not clipped.

        It is at most ‖x‖²·Σ_k e^{u_k}t_k ≤ (‖x̃‖² + c²)(1 + |Σr|), where ‖x̃‖·|Σr| ≤ clip and c·|Σr| ≤ √K·c‖r‖ ≤ √K·clip.
        Clipped gradients need not be those of any convex loss, and no loss bound is stated for them.
        """
        return feature_norm**2 + math.sqrt(1.0 + self.outputs) * feature_norm * clip

    def _parts(self, scores: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how much of every survival time lies in each part, and 1 for the part that an event ended."""
        xp = namespace(scores)
        times, events = (beside(scores, targets[:, k]) for k in (0, 1))
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
    has_probabilities: ClassVar[bool] = True
    scikit_learn: ClassVar[str] = ""
    name: Literal["ordinal"] = "ordinal"
    classes: int = Field(ge=3, le=10_000)

    @property
    def outputs(self) -> int:
        """One score of the ordinal loss per threshold between neighbouring categories."""
        return self.classes - 1

    @property
    def categories(self) -> int:
        """How many ordered categories a target of the ordinal loss has."""
        return self.classes

    def output_names(self, targets: tuple[str, ...], classes: tuple[str, ...], unit: float) -> list[str]:
        """Name each threshold of the ordinal loss by the category below it."""
        return [f"above {category}" for category in classes[:-1]]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return Σ_k ln(1 + e^{−s_k·u_k}), s_k = ±1, the ordinal loss over thresholds k."""
        xp = namespace(scores)
        return xp.sum(xp.logaddexp(0.0, -self._signs(scores, targets) * scores), axis=-1)

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return −s_k·sigmoid(−s_k·u_k), for each threshold of the ordinal loss."""
        signs = self._signs(scores, targets)
        return -0.5 * signs * (1.0 - namespace(scores).tanh(0.5 * signs * scores))

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return how many ordinal thresholds a record is likelier above than below: the median category."""
        return namespace(scores).sum(scores > 0, axis=-1).astype(scores.dtype)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Return every category's probability; thresholds out of order, as noise may leave them, are put in order."""
        xp = namespace(scores)
        above = 0.5 * (1.0 + xp.tanh(-0.5 * xp.sort(-scores, axis=-1)))
        ends = xp.zeros_like(scores[..., :1])
        return -xp.diff(xp.concatenate([ends + 1.0, above, ends], axis=-1), axis=-1)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return 20·√thresholds/X for the ordinal loss: scores of up to 20, as for two labels."""
        return 20.0 * math.sqrt(self.outputs) / feature_norm

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·K, for K thresholds; β = X²·K/4: the loss is a sum of K logistic ones, each in features of norm X."""
        return Constants(feature_norm * self.outputs, feature_norm**2 * self.outputs / 4, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X/2 times √thresholds: a record is sure of most thresholds, and about half a unit off at some."""
        return 0.5 * feature_norm * math.sqrt(self.outputs)

    def _signs(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return +1 for ordinal thresholds below the target's category, and −1 for the others."""
        xp = namespace(scores)
        return xp.where(beside(scores, targets) > xp.arange(self.outputs), 1.0, -1.0)
