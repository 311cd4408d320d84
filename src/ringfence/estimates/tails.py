"""Models of what lies beyond a clip: how much is expected, and how much there can be.

A mean of clipped numbers says nothing of those beyond the clip: one record of thousands could double an RMSE, and noise
that protects this record hides it. So intervals of unclipped means assume something about tails, and every such metric
states it: numbers x times the clip are at most x⁻³ as frequent as those beyond the clip. That is weaker than the
assumption of any interval for an RMSE from a sample (a fourth moment: x⁻⁴). The lower ends assume nothing.
"""

import math
from dataclasses import dataclass

import numpy as np

from ringfence.estimates.answers import CellShares, cumulative_shares, log_quantiles
from ringfence.estimates.intervals import Interval, half_width
from ringfence.protocol import FloatArray

HEAVIEST = 3
"""The least power at which numbers beyond a clip become rarer."""

FAR = 0.01
"""The share of errors that should lie beyond a clip."""

_NEAR = 0.1
_BODY = (0.3, _NEAR)
"""The shares of records beyond the two sizes that a Weibull tail is fitted to."""


def weibull_far_size(near: float, far: float) -> float:
    """Return the size that the share `FAR` exceeds under the Weibull tail P(|x| > t) = exp(−(t/scale)^power).

    The tail goes through the two sizes that the shares `_BODY` exceed.
    """
    inner, outer = (-math.log(share) for share in _BODY)
    power = math.log(outer / inner) / math.log(max(far / near, 1.05))
    power = min(max(power, 0.7), 4.0)
    scale: float = far / outer ** (1 / power)
    return scale * float((-math.log(FAR)) ** (1 / power))


def expected_beyond(near: float, far: float, clip: float, moment: int) -> float:
    """Return E max(|x|^m − clip^m, 0) for a tail that decays exponentially from `near`, which a tenth exceeds, through
    `far`, which a hundredth exceeds.

    P(|x| > clip)·∫ m·t^(m−1)·exp(−(t − clip)/scale) dt from the clip on is
    P(|x| > clip)·Σ m!/(m−j)!·clip^(m−j)·scale^j. The scale is at most the mean excess of the heaviest tail.
    """
    scale = min((far - near) / math.log(_NEAR / FAR), far / (HEAVIEST - 1))
    if scale <= 0:
        return 0.0
    terms = (math.perm(moment, j) * clip ** (moment - j) * scale**j for j in range(1, moment + 1))
    return FAR * math.exp(-(clip - far) / scale) * math.fsum(terms)


def most_beyond(clip: float, moment: int) -> float:
    """Return E max(|x|^m − clip^m, 0) under the heaviest tail, for each record beyond the clip.

    It is ∫ m·t^(m−1)·(clip/t)³ dt from the clip on.
    """
    return moment * clip**moment / (HEAVIEST - moment)


@dataclass(frozen=True)
class BoundedMean:
    """A mean under the expected tail, and lower and upper bounds, each with the variance of its error."""

    value: float
    least: float
    least_variance: float
    most: float
    most_variance: float

    @classmethod
    def exactly(cls, value: float, variance: float) -> "BoundedMean":
        """Return a mean that no tail beyond a clip adds to."""
        return cls(value, value, variance, value, variance)

    def interval(self) -> Interval:
        """Return the confidence interval over all tails that are allowed."""
        low, high = half_width(self.least_variance), half_width(self.most_variance)
        return Interval(self.least - low, max(self.most + high, self.least + low))


@dataclass(frozen=True)
class ErrorSizes:
    """Shares of records by the size of their error, between edges."""

    cells: CellShares
    edges: FloatArray

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return quantiles of the error sizes, below the tail."""
        return log_quantiles(self.edges, self.cells.shares, levels)

    def clip(self) -> float:
        """Return the error size that about a hundredth of the records exceeds, by a Weibull tail."""
        body, near = self.quantiles(1 - np.array(_BODY))
        return weibull_far_size(float(body), float(near))

    def expected_beyond(self, clip: float, moment: int) -> float:
        """Return E max(|x|^m − clip^m, 0) for a clip that a hundredth of the records was expected to exceed."""
        (near,) = self.quantiles(np.array([1 - _NEAR]))
        return expected_beyond(float(near), clip, clip, moment)

    def up_to(self, clip: float) -> tuple[CellShares, FloatArray]:
        """Return the shares of the cells up to a clip and, last, of all beyond; and a size for each.

        A cell that the clip divides lies beyond.
        """
        inside = int(np.count_nonzero(self.edges <= clip * (1 + 1e-9)))
        groups = np.zeros((inside + 1, len(self.cells.shares)))
        groups[np.minimum(np.arange(groups.shape[1]), inside), np.arange(groups.shape[1])] = 1.0
        bounds: FloatArray = np.concatenate([[0.0], self.edges, [2 * self.edges[-1] - self.edges[-2]]])
        middles = (bounds[1:] + bounds[:-1]) / 2
        return self.cells.merged(groups), np.append(middles[:inside], clip)


@dataclass(frozen=True)
class TargetDistribution:
    """Shares of targets between edges; the outermost cells end at the public bound."""

    cells: CellShares
    edges: FloatArray
    bound: float

    def _all_edges(self) -> FloatArray:
        """Return the targets' bin edges with the public bound at either end."""
        return np.concatenate([[-self.bound], self.edges, [self.bound]])

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return quantiles of the distribution of targets."""
        return np.interp(levels, cumulative_shares(self.cells.shares), self._all_edges())

    def window(self) -> tuple[float, float]:
        """Return the middle and half the width of a window that nearly all targets lie in."""
        centre = float(np.mean(self.quantiles(np.array([0.1, 0.9]))))
        return centre, min(1.3 * self._distances(centre)[1], 2 * self.bound)

    def expected_beyond(self, centre: float, reach: float, moment: int) -> float:
        """Return E max(d^m − reach^m, 0) for a target's distance d from the centre, with the expected tail."""
        return expected_beyond(*self._distances(centre), reach, moment)

    def _distances(self, centre: float) -> tuple[float, float]:
        """Return the distances from the centre that a tenth exceeds, and that a hundredth is expected to exceed."""
        edges, below = self._all_edges(), cumulative_shares(self.cells.shares)
        distances = np.linspace(0, 2 * self.bound, 20001)
        inside = np.interp(centre + distances, edges, below) - np.interp(centre - distances, edges, below)
        body, near = np.interp(1 - np.array(_BODY), np.maximum.accumulate(inside), distances)
        return float(near), weibull_far_size(float(body), float(near))
