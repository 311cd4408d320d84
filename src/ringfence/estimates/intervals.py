"""Confidence intervals. Every interval of the package is computed here.

    >>> wilson_interval(0.1, noise_variance=0.0, records=100)
    Interval(low=0.05522..., high=0.17436...)

Coverage is `COVERAGE` unless a function takes a level. Intervals of noisy numbers allow for the noise, whose
distribution is known, and, where the caller adds its variance, for sampling.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from ringfence.protocol import FloatArray

COVERAGE = 0.95
_DRAWS = 4000


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float

    def scaled(self, factor: float, offset: float = 0.0) -> "Interval":
        """Return the confidence interval in other units."""
        return Interval(self.low * factor + offset, self.high * factor + offset)

    def within(self, low: float, high: float) -> "Interval":
        """Return the part of the confidence interval between bounds.

        If noise has put its middle beyond a bound, the interval is first moved until its middle is there: clamping
        alone would make it the shorter, the farther off it is.
        """
        middle = (self.low + self.high) / 2
        moved = min(max(middle, low), high) - middle
        return Interval(*(min(max(end + moved, low), high) for end in self))


def critical_value(level: float, freedom: float = math.inf) -> float:
    """Return z such that ±z has probability `level` under the normal law, or Student's t with `freedom` degrees."""
    at = 0.5 + level / 2
    return float(ndtri(at) if math.isinf(freedom) else stdtrit(freedom, at))


def bonferroni_critical_value(comparisons: float) -> float:
    """Return the critical value at which so many intervals cover together with probability `COVERAGE`."""
    return float(ndtri(1 - (1 - COVERAGE) / (2 * comparisons)))


Z = critical_value(COVERAGE)


def half_width(variance: float) -> float:
    """Return half the length of the confidence interval of a Gaussian error."""
    return Z * math.sqrt(max(variance, 0.0))


def normal_interval(value: float, variance: float) -> Interval:
    """Return the confidence interval of a number with a Gaussian error."""
    return Interval(value - half_width(variance), value + half_width(variance))


def wilson_interval(share: float, noise_variance: float, records: int) -> Interval:
    """Return all p with (share − p)² ≤ z²·(noise_variance + p(1 − p)/records): without noise, Wilson's interval.

    For persons, who count by the share of their rows, the sampling variance is at most that.
    """
    wider = 1 + Z**2 / records
    middle = (share + Z**2 / (2 * records)) / wider
    reach = math.sqrt(max(middle**2 - (share**2 - Z**2 * noise_variance) / wider, 0.0))
    return Interval(middle - reach, middle + reach)


def fieller_interval(a: float, b: float, c: float) -> Interval | None:
    """Return all x with a·x² − 2b·x + c ≤ 0 (Fieller's inequality); None if they are unbounded."""
    if not a > 0:
        return None
    reach = math.sqrt(max(b**2 - a * c, 0.0))
    return Interval((b - reach) / a, (b + reach) / a)


def ratio_interval(over: float, under: float, variances: tuple[float, float, float]) -> Interval | None:
    """Return all r for which over − r·under may be 0; None where `under` may be 0.

    `variances` are those of `over` and `under`, and their covariance.
    """
    of_over, of_under, both = variances
    if under <= 0:
        return None
    return fieller_interval(under**2 - Z**2 * of_under, over * under - Z**2 * both, over**2 - Z**2 * of_over)


def crossing_interval(excess: FloatArray, noise: FloatArray, edges: FloatArray) -> Interval:
    """Return the bin edges between which an increasing function, measured with noise at the inner edges, crosses 0.

    Scans inwards from both ends, up to the first edge that is not significantly on its side. The interval starts too
    late only if the edge right after the crossing was significant, which has probability 2.5 %.
    """
    below, above = excess + Z * noise < 0, excess - Z * noise > 0
    first = int(np.argmin(np.append(below, False)))
    last = len(above) - int(np.argmin(np.append(above[::-1], False)))
    return Interval(float(edges[min(first, last)]), float(edges[max(first, last) + 1]))


def simultaneous_half_widths(covariance: FloatArray) -> FloatArray:
    """Return half-widths within which all of several jointly Gaussian errors lie at once."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    draws = _gaussian_draws(covariance / np.outer(scale, scale))
    return np.asarray(float(np.quantile(np.max(np.abs(draws), axis=1), COVERAGE)) * scale)


def absolute_sum_half_width(covariance: FloatArray) -> float:
    """Return a bound on the error of Σ|m| for sums m with jointly Gaussian errors e: the quantile of Σ|e|."""
    return float(np.quantile(np.sum(np.abs(_gaussian_draws(covariance)), axis=1), COVERAGE))


def _gaussian_draws(covariance: FloatArray) -> FloatArray:
    """Return fixed draws of jointly Gaussian errors, whose quantiles give half-widths of intervals."""
    values, vectors = np.linalg.eigh(covariance)
    normal = np.random.default_rng(0).normal(size=(_DRAWS, len(covariance)))
    return np.asarray(normal * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)
