"""What lies beyond a cut: how much is thought to, and at most.

A mean of numbers that are cut says nothing of how large those beyond the cut are: one record of thousands could double
an RMSE, and no noise that protects it would let that be seen. So intervals of what is not cut rest on a statement about
tails, which stands beside every such figure: numbers x times the cut are at most x⁻³ times as frequent as those beyond
the cut. That is weaker than what any interval of an RMSE from a sample takes for granted (a fourth moment: x⁻⁴). Their
lower ends rest on nothing, since what is cut is less.
"""

import math
from dataclasses import dataclass

import numpy as np

from ringfence.metrics.estimates import Cells
from ringfence.metrics.intervals import Z
from ringfence.metrics.quantiles import log_quantiles, reached
from ringfence.protocol.arrays import FloatArray

HEAVIEST = 3
"""The power by which numbers beyond a cut become rarer, at least."""

FAR = 0.01
"""The share of errors that a cut is meant to leave beyond it."""

_NEAR = 0.1
_BODY = (0.3, _NEAR)
"""Where the tail is fitted that a cut is chosen by: the shares of records beyond."""


@dataclass(frozen=True)
class Tail:
    """P(|x| > t) = exp(−(t/scale)^power): by which a cut is chosen."""

    scale: float
    power: float

    @classmethod
    def through(cls, near: float, far: float) -> "Tail":
        """Fit the two sizes that the shares `_BODY` lie beyond."""
        inner, outer = (-math.log(share) for share in _BODY)
        power = math.log(outer / inner) / math.log(max(far / near, 1.05))
        power = min(max(power, 0.7), 4.0)
        return cls(far / outer ** (1 / power), power)

    def size(self, share: float) -> float:
        """Return the size that so large a share lies beyond."""
        return self.scale * float((-math.log(share)) ** (1 / self.power))


def expected_beyond(near: float, far: float, cut: float, moment: int) -> float:
    """Return E max(|x|^m − cut^m, 0), if numbers become rarer exponentially from `near` on, which a tenth lies beyond,
    by way of `far`, which a hundredth does.

    P(|x| > cut)·∫ m·t^(m−1)·exp(−(t − cut)/pace) dt from the cut on is P(|x| > cut)·Σ m!/(m−j)!·cut^(m−j)·pace^j. The
    pace is not more than the heaviest tail's mean excess.
    """
    pace = min((far - near) / math.log(_NEAR / FAR), far / (HEAVIEST - 1))
    if pace <= 0:
        return 0.0
    terms = (math.perm(moment, j) * cut ** (moment - j) * pace**j for j in range(1, moment + 1))
    return FAR * math.exp(-(cut - far) / pace) * math.fsum(terms)


def most_beyond(cut: float, moment: int) -> float:
    """Return E max(|x|^m − cut^m, 0) by the heaviest tail, for each record beyond the cut.

    It is ∫ m·t^(m−1)·(cut/t)³ dt from the cut on.
    """
    return moment * cut**moment / (HEAVIEST - moment)


@dataclass(frozen=True)
class Bounded:
    """A mean as it is thought to be, and bounds from below and above, each with the variance of its error by noise and
    sampling."""

    value: float
    least: float
    least_variance: float
    most: float
    most_variance: float

    def ends(self) -> tuple[float, float]:
        """Return the interval's ends."""
        low, high = (Z * math.sqrt(max(variance, 0.0)) for variance in (self.least_variance, self.most_variance))
        return self.least - low, max(self.most + high, self.least + low)


@dataclass(frozen=True)
class Sizes:
    """Shares of records by size: of numbers above 0, between edges."""

    cells: Cells
    edges: FloatArray

    def middles(self) -> FloatArray:
        """Return a size for each cell."""
        bounds: FloatArray = np.concatenate([[0.0], self.edges, [2 * self.edges[-1] - self.edges[-2]]])
        return np.asarray((bounds[1:] + bounds[:-1]) / 2)

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return sizes that those shares of records lie below."""
        return log_quantiles(self.edges, self.cells.shares, levels)

    def far(self) -> float:
        """Return the size that a hundredth is thought to lie beyond."""
        body, near = self.quantiles(1 - np.array(_BODY))
        return Tail.through(float(body), float(near)).size(FAR)

    def expected_beyond(self, cut: float, moment: int) -> float:
        """Return E max(|x|^m − cut^m, 0) for a cut that a hundredth was thought to lie beyond."""
        (near,) = self.quantiles(np.array([1 - _NEAR]))
        return expected_beyond(float(near), cut, cut, moment)

    def cut(self, cut: float) -> tuple[Cells, FloatArray]:
        """Return the shares of the cells up to a cut and, as the last of them, of all beyond; and a size for each.

        What the cut divides lies beyond.
        """
        inside = int(np.count_nonzero(self.edges <= cut * (1 + 1e-9)))
        groups = np.zeros((inside + 1, len(self.cells.shares)))
        groups[np.minimum(np.arange(groups.shape[1]), inside), np.arange(groups.shape[1])] = 1.0
        return self.cells.summed(groups), np.append(self.middles()[:inside], cut)


@dataclass(frozen=True)
class Targets:
    """Shares of targets between edges, of which the outermost cells end at the public bound."""

    cells: Cells
    edges: FloatArray
    bound: float

    def _known(self) -> FloatArray:
        return np.concatenate([[-self.bound], self.edges, [self.bound]])

    def quantiles(self, levels: FloatArray) -> FloatArray:
        """Return targets that those shares lie below."""
        return np.interp(levels, reached(self.cells.shares), self._known())

    def window(self) -> tuple[float, float]:
        """Return the middle and half of the width of where nearly all targets lie."""
        centre = float(np.mean(self.quantiles(np.array([0.1, 0.9]))))
        return centre, min(1.3 * self._around(centre)[1], 2 * self.bound)

    def expected_beyond(self, centre: float, reach: float, moment: int) -> float:
        """Return E max(d^m − reach^m, 0) for the distance d from the centre."""
        return expected_beyond(*self._around(centre), reach, moment)

    def _around(self, centre: float) -> tuple[float, float]:
        """Return the distances from the centre that a tenth lies beyond, and is thought to a hundredth."""
        known, below = self._known(), reached(self.cells.shares)
        distances = np.linspace(0, 2 * self.bound, 20001)
        inside = np.interp(centre + distances, known, below) - np.interp(centre - distances, known, below)
        body, near = np.interp(1 - np.array(_BODY), np.maximum.accumulate(inside), distances)
        return float(near), Tail.through(float(body), float(near)).size(FAR)
