"""Losses of a positive mean by its logarithm: counts and amounts.

The score is the logarithm of the mean, m = e^u, of the target y ≥ 0 in units of the schema's scale. A scaled target t
may have its zero elsewhere: y = t − `zero`. None of these losses has an L or β on the whole space. On a ball of radius
ρ scores stay within ±b, b = ρX, and the constants below are tight there: each is reached at an end of that range.

Where e^b is large, so are they, and the clip is what counts. A gradient that is clipped to norm C at features of norm X
changes only where |∂φ/∂u| < C/X, so that the curvature along descent is at most
`curvature_where_clipped`.
"""

import math
from abc import abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from ringfence.protocol.arrays import FloatArray, Number, namespace
from ringfence.protocol.losses.base import BaseLoss, Constants, beside

STEEPEST = 60.0
"""Scores are clamped to ± this: e^60 is still finite in single precision."""


def bounded_exp(scores: FloatArray) -> FloatArray:
    """Return e^u, the mean of a log link, of scores clamped to ±STEEPEST."""
    xp = namespace(scores)
    return xp.exp(xp.clip(scores, -STEEPEST, STEEPEST))


class LogLink(BaseLoss):
    """A loss of y ≥ 0 whose score is the logarithm of the mean."""

    takes_least: ClassVar[float] = 0.0
    link: ClassVar[Literal["identity", "log"]] = "log"
    scikit_learn: ClassVar[str] = "PoissonRegressor"
    zero: float = Field(default=0.0, le=0, ge=-1e6)

    def target_problem(self, unit: float, offset: float, lower: float) -> str:
        """Refuse targets below the least of a log-link loss, and a zero that is not the schema's."""
        if lower < 0 or (self.takes_least > 0 and lower <= 0):
            least = "above 0" if self.takes_least > 0 else "0 or more"
            return f"the {self.name} loss needs targets {least}: give the target's column a `lower` of {least}"
        if not math.isclose(self.zero, -offset / unit, rel_tol=1e-9, abs_tol=1e-12):
            return f"the {self.name} loss and the schema disagree about which number is the target's zero"
        return ""

    def predictions(self, scores: FloatArray) -> FloatArray:
        """Return the mean e^u, in the target's scaled units."""
        return bounded_exp(scores)[..., 0] + self.zero

    def score_units(self, unit: float, offset: float) -> tuple[float, float]:
        """Return 1 and ln(unit): the score of the mean in the target's own units is u + ln(unit)."""
        return 1.0, math.log(unit)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return 0.08·X·Y for a log link, as for the squared loss: most errors are far below the largest target."""
        return 0.08 * feature_norm * self._largest(target_bound)

    def reach(self, feature_norm: float, target_bound: float) -> float:
        """Return 6/X, for a log link: means between e⁻⁶ and e⁶ times the scale, for the longest record."""
        return 6.0 / feature_norm

    @abstractmethod
    def slope_per_error(self, mean: Number) -> Number:
        """Return k of a log-link loss: ∂φ/∂u = k·(m − y) at the mean m; the mean curvature there over y is k·m."""

    @abstractmethod
    def curvature_where_clipped(self, slope: float, largest: float) -> float:
        """Return a log-link loss's largest ∂²φ/∂u² where |∂φ/∂u| ≤ slope and y ≤ largest."""

    def clipped_smoothness(self, feature_norm: float, target_bound: float, clip: float) -> float:
        """Return β of clipped gradients: the largest ‖x‖²·φ'' where ‖x‖·|φ'| ≤ clip, over ‖x‖ ≤ X.

        It grows with ‖x‖: of a shorter record more is let through, but never so much that the product falls short.
        """
        return feature_norm**2 * self.curvature_where_clipped(clip / feature_norm, self._largest(target_bound))

    def _largest(self, target_bound: float) -> float:
        """Return the largest amount, for a log link: the target's bound counted from its zero."""
        return target_bound - self.zero

    def _amounts(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return targets counted from zero, for a log link, without negative ones."""
        return namespace(scores).maximum(beside(scores, targets) - self.zero, 0.0)


class PoissonLoss(LogLink):
    """e^u − y·u − (y − y·ln y): a count, of mean e^u and variance as large; of a rate, with exposure as an offset.

    What does not depend on u makes it 0 where the mean is the count: half the deviance.
    """

    name: Literal["poisson"] = "poisson"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return e^u − y·u − (y − y·ln y), the Poisson loss."""
        y = self._amounts(scores, targets)
        return (bounded_exp(scores) - y * scores - y + y * logarithm(y))[..., 0]

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return e^u − y, for the Poisson loss."""
        return bounded_exp(scores) - self._amounts(scores, targets)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·max(e^b, Y − e^−b); β = X²e^b, at y = 0 or Y and the two ends; no μ, for x may be orthogonal."""
        top, bottom = ends(feature_norm, weight_norm)
        steepest = max(top, self._largest(target_bound) - bottom)
        return Constants(feature_norm * steepest, feature_norm**2 * top, 0.0)

    def slope_per_error(self, mean: Number) -> Number:
        """Return 1, for the Poisson loss."""
        return 1.0

    def curvature_where_clipped(self, slope: float, largest: float) -> float:
        """Return Y + slope, for the Poisson loss: e^u ≤ y + slope."""
        return largest + slope


class Gamma(LogLink):
    """u + y·e^−u − (1 + ln y): a positive amount of mean e^u and deviation in proportion; half its deviance."""

    takes_least: ClassVar[float] = 1e-300
    scikit_learn: ClassVar[str] = "GammaRegressor"
    name: Literal["gamma"] = "gamma"

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return u + y·e^−u − (1 + ln y), the gamma loss."""
        y = self._amounts(scores, targets)
        return (scores + y * bounded_exp(-scores) - 1.0 - logarithm(y))[..., 0]

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return 1 − y·e^−u, for the gamma loss."""
        return 1.0 - self._amounts(scores, targets) * bounded_exp(-scores)

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·max(1, Y·e^b − 1), for the gamma loss: the slope's ends at y = 0 and Y; β = X²·Y·e^b."""
        top, _ = ends(feature_norm, weight_norm)
        steepest = self._largest(target_bound) * top
        return Constants(feature_norm * max(1.0, steepest - 1.0), feature_norm**2 * steepest, 0.0)

    def typical_gradient(self, feature_norm: float, target_bound: float) -> float:
        """Return X, for the gamma loss: 1 − y/m is about 1 for a deviation as large as the mean."""
        return feature_norm

    def slope_per_error(self, mean: Number) -> Number:
        """Return 1/m, for the gamma loss."""
        return 1.0 / mean

    def curvature_where_clipped(self, slope: float, largest: float) -> float:
        """Return 1 + slope, for the gamma loss: y·e^−u = 1 − residual."""
        return 1.0 + slope


class NegativeBinomial(LogLink):
    """(y + 1/a)·ln((1 + a·e^u)/(1 + a·y)) − y·(u − ln y): a count of mean m = e^u and variance m + a·m², a > 0 given.

    `dispersion` is in scaled units: that of counts, times the schema's scale of them.
    """

    name: Literal["negative-binomial"] = "negative-binomial"
    dispersion: float = Field(gt=0, le=1e6)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return half the deviance of the negative binomial, without overflow."""
        xp, y = namespace(scores), self._amounts(scores, targets)
        spread = xp.logaddexp(0.0, scores + math.log(self.dispersion)) - xp.log1p(self.dispersion * y)
        return ((y + 1.0 / self.dispersion) * spread - y * (scores - logarithm(y)))[..., 0]

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return (e^u − y)/(1 + a·e^u), as (y + 1/a)·p − y with p = a·m/(1 + a·m): from −y to 1/a, without overflow."""
        y = self._amounts(scores, targets)
        return (y + 1.0 / self.dispersion) * self._shares(scores) - y

    def constants(self, feature_norm: float, target_bound: float, weight_norm: float) -> Constants:
        """L = X·max((e^b)/(1 + a·e^b), (Y − e^−b)/(1 + a·e^−b)); β = X²(Y + 1/a)·max p(1 − p) over the scores.

        Even on the whole space they are finite: L = X·max(1/a, Y), β = X²(Y + 1/a)/4.
        """
        a, largest = self.dispersion, self._largest(target_bound)
        top, bottom = ends(feature_norm, weight_norm)
        highest = 1.0 / a if math.isinf(top) else top / (1.0 + a * top)
        lowest = (largest - bottom) / (1.0 + a * bottom)
        # p(1 − p) is largest at a·m = 1, or at the end that is nearest to it.
        share = a * min(max(1.0 / a, bottom), top)
        curvature = share / (1.0 + share) ** 2
        return Constants(feature_norm * max(highest, lowest), feature_norm**2 * (largest + 1.0 / a) * curvature, 0.0)

    def slope_per_error(self, mean: Number) -> Number:
        """Return 1/(1 + a·m), for the negative binomial loss."""
        return 1.0 / (1.0 + self.dispersion * mean)

    def curvature_where_clipped(self, slope: float, largest: float) -> float:
        """Return (Y + 1/a)/4, or less if a gradient is clipped before the score at which a·m = 1 is reached."""
        a = self.dispersion
        # With y = Y the residual r = (Y + 1/a)p − Y stays below the slope up to p = (Y + slope)/(Y + 1/a).
        share = min(0.5, (largest + slope) / (largest + 1.0 / a))
        return (largest + 1.0 / a) * share * (1.0 - share)

    def _shares(self, scores: FloatArray) -> FloatArray:
        """Return p = a·m/(1 + a·m) of the negative binomial loss, without overflow."""
        return 0.5 * (1.0 + namespace(scores).tanh(0.5 * (scores + math.log(self.dispersion))))


def logarithm(amounts: FloatArray) -> FloatArray:
    """Return ln y for the losses with a log link, and a finite number where y is 0."""
    xp = namespace(amounts)
    return xp.log(xp.maximum(amounts, 1e-30))


def ends(feature_norm: float, weight_norm: float) -> tuple[float, float]:
    """Return e^b and e^−b for scores up to b = ρX: the extreme means of a log link."""
    reach = weight_norm * feature_norm if feature_norm > 0 else 0.0
    return (math.exp(reach), math.exp(-reach)) if reach < 700 else (math.inf, 0.0)
