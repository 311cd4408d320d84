"""Intervals of 95 %: for the records that were asked, and for the population that they are a sample of.

The first allow for the noise, whose distribution is known exactly; the second for the chance of the sample as well.
Each interval is by itself: of twenty, one misses on average.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray

LEVEL = 0.95
Z = 1.959963984540054
"""A standard normal number is within ± this with probability 0.95."""


class Interval(NamedTuple):
    """From where to where."""

    low: float
    high: float

    def scaled(self, factor: float, offset: float = 0.0) -> "Interval":
        """Return it in other units."""
        return Interval(self.low * factor + offset, self.high * factor + offset)

    def within(self, low: float, high: float) -> "Interval":
        """Return what of it is possible; the nearest possible number if nothing is."""
        return Interval(*(min(max(end, low), high) for end in self))


@dataclass(frozen=True)
class Estimate:
    """A number, and where it lies: among these records, and in the population."""

    value: float
    records: Interval
    population: Interval

    def scaled(self, factor: float, offset: float = 0.0) -> "Estimate":
        """Return it in other units."""
        return Estimate(
            self.value * factor + offset,
            self.records.scaled(factor, offset),
            self.population.scaled(factor, offset),
        )

    def as_data(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"value": self.value, "these_records": list(self.records), "population": list(self.population)}


def share(found: float, noise: float, records: int) -> Estimate:
    """Return a share of the records, whose noise has the given deviation.

    In the population: all shares p that a test does not reject, whose estimate has the variance noise² + p(1 − p)/n.
    Of persons, each of whom counts by the share of their rows, no more than that.
    """
    these = Interval(found - Z * noise, found + Z * noise).within(0.0, 1.0)
    k = Z * Z / records
    root = math.sqrt(max(4 * k * found * (1 - found) + k * k + 4 * (1 + k) * (Z * noise) ** 2, 0.0))
    middle = 2 * found + k
    population = Interval((middle - root) / (2 + 2 * k), (middle + root) / (2 + 2 * k))
    return Estimate(found, these, population.within(0.0, 1.0))


def ratio(sums: FloatArray, covariance: FloatArray, low: float, high: float) -> Interval:
    """Return, between the bounds, the ratios r for which `sums[0]` − r·`sums[1]` may be 0 (Fieller)."""
    (top, bottom), ((a, b), (_, c)) = sums, covariance * Z * Z
    # (top − r·bottom)² ≤ a − 2rb + r²c
    square, linear, rest = bottom**2 - c, top * bottom - b, top**2 - a
    inside = linear**2 - square * rest
    if square <= 0 or bottom <= 0 or inside < 0:
        return Interval(low, high)
    root = math.sqrt(inside)
    return Interval((linear - root) / square, (linear + root) / square).within(low, high)


def crossing(excess: FloatArray, noise: FloatArray, edges: FloatArray) -> Interval:
    """Return between which edges a rising function crosses 0, seen at the inner edges with noise.

    Edges are gone through from either end, and the first that is not clearly on this side of the crossing ends it. If
    the interval begins too late, the edge after the crossing was called clear: a chance of 2.5 %, whatever the others.
    """
    below, above = excess + Z * noise < 0, excess - Z * noise > 0
    first = int(np.argmin(np.append(below, False)))
    last = len(above) - int(np.argmin(np.append(above[::-1], False)))
    return Interval(float(edges[min(first, last)]), float(edges[max(first, last) + 1]))
