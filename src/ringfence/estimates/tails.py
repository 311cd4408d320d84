"""Sizes of errors and of targets: where to clip them, and what a mean of clipped ones leaves out.

A mean of clipped numbers says nothing of those beyond the clip: one record of thousands could double an RMSE, and noise
that protects this record hides it. So a mean is reported as itself only where nothing that the public bounds allow lies
beyond the clip. Elsewhere the mean of the clipped numbers is reported, under its own name.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ringfence.estimates.answers import CellShares, cumulative_shares, log_quantiles
from ringfence.protocol import FloatArray

FAR = 0.01
"""The share of errors that should lie beyond a clip."""

_BODY = (0.3, 0.1)
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


class MeanEstimate(NamedTuple):
    """A mean, and the variance of its error by noise and sampling."""

    value: float
    variance: float


def sampling_variance(cells: CellShares, slope: FloatArray, mean: float, most: float) -> float:
    """Return the sampling variance of a mean of numbers from 0 to `most`, about `slope` in each cell.

    It is at most mean·(most − mean) per record, whatever the distribution (Bhatia and Davis).
    """
    return min(cells.sampling_variance(slope), max(mean * (most - mean), 0.0) / cells.records)


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

    def middles(self, largest: float) -> FloatArray:
        """Return a size for each cell; none is above `largest`."""
        bounds: FloatArray = np.concatenate([[0.0], self.edges, [max(largest, self.edges[-1])]])
        return (bounds[1:] + bounds[:-1]) / 2

    def beyond(self, clip: float) -> FloatArray:
        """Return 1 for every cell beyond a clip, and 0 for others."""
        return np.append(0.0, self.edges >= clip * (1 - 1e-9))

    def least_mean(self, power: int) -> float:
        """Return a lower bound, two deviations of the noise below the estimate, on the mean of |x|^power.

        It is the best of those that count no error above some edge.
        """
        sizes = np.minimum(self.middles(0.0), self.edges[:, None]) ** power
        return max(self.cells.total(own) - 2 * math.sqrt(self.cells.noise_variance(own)) for own in sizes)


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

    def middles(self) -> FloatArray:
        """Return the middle of each cell of targets."""
        edges = self._all_edges()
        return (edges[1:] + edges[:-1]) / 2

    def mean(self) -> float:
        """Return the mean of the targets."""
        return self.cells.total(self.middles())

    def least_variance(self) -> float:
        """Return a lower bound, two deviations of the noise below the estimate, on the variance of the targets."""
        squares = (self.middles() - self.mean()) ** 2
        return self.cells.total(squares) - 2 * math.sqrt(self.cells.noise_variance(squares))

    def _distances(self, centre: float) -> tuple[float, float]:
        """Return the distances from the centre that a tenth exceeds, and that a hundredth is expected to exceed."""
        edges, below = self._all_edges(), cumulative_shares(self.cells.shares)
        distances = np.linspace(0, 2 * self.bound, 20001)
        inside = np.interp(centre + distances, edges, below) - np.interp(centre - distances, edges, below)
        body, near = np.interp(1 - np.array(_BODY), np.maximum.accumulate(inside), distances)
        return float(near), weibull_far_size(float(body), float(near))
