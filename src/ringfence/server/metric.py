"""From second moments to axes along which features vary alike: a survey's noisy ones, or those that a schema suggests.

No record is looked at here.

A symmetric d × d matrix with noise of standard deviation s on its diagonal and s/√2 beside it has, for large d, noise
eigenvalues between ±√2·s·√d, the *edge*; their root mean square is half of that. What is found above the edge is a
direction of its own, shortened by what noise adds to an eigenvalue; all directions below it cannot be told apart and
share what is left of the trace, which is known to √d times the noise of a single number.

Of many features only the mean is asked for (`MainDirection`). Second moments are those of the mean and what varies
about it, so the mean is a direction along which they are large; it has d numbers and not d², so that noise leaves it
visible. All others share the rest.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes, MatrixAxes, RankOneAxes
from ringfence.protocol.schema import Schema


@dataclass(frozen=True)
class Directions:
    """Axes, a row each, along which the features' second moments are about diagonal, of `sizes`; the noise's edge."""

    axes: FloatArray
    sizes: FloatArray
    edge: float

    def whitened(self, floor: float) -> "Whitened":
        """Return axes along which second moments are h/(h + floor): near 1 where they exceed the floor."""
        scales = 1 / np.sqrt(self.sizes + floor)
        return Whitened(MatrixAxes(scales[:, None] * self.axes), self.sizes / (self.sizes + floor))


@dataclass(frozen=True)
class MainDirection:
    """One direction of norm 1, the features' second moment along it, that along each other one, and the noise's edge.

    Sizes are in units of the square of `norm`, the longest that features can be.
    """

    direction: FloatArray
    size: float
    others: float
    edge: float
    norm: float

    def whitened(self, floor: float) -> "Whitened":
        """Return axes along which second moments are h/(h + floor)."""
        sizes = np.full(len(self.direction), self.others)
        sizes[0] = self.size
        kept = math.sqrt((self.others + floor) / (self.size + floor))
        axes = RankOneAxes(1 / (math.sqrt(self.others + floor) * self.norm), math.sqrt(1 - kept) * self.direction)
        return Whitened(axes, sizes / (sizes + floor))


Found: TypeAlias = Directions | MainDirection


@dataclass(frozen=True)
class Whitened:
    """Axes, and the second moment along each, from 0 to 1: where one is the main one, of that, then of the others."""

    axes: Axes
    moments: FloatArray

    @property
    def norm(self) -> float:
        """The root mean square of a record's norm along the axes."""
        return math.sqrt(float(np.sum(self.moments)))


def edge_of(noise: float, width: int) -> float:
    """Return the largest eigenvalue that noise alone has, for many features."""
    return math.sqrt(2.0 * width) * noise


def directions(axes: FloatArray, matrix: FloatArray, noise: float) -> Directions:
    """Return the directions that a noisy second-moment matrix, along the given axes, tells of."""
    width = len(matrix)
    values, vectors = np.linalg.eigh(matrix)
    edge = edge_of(noise, width)
    clear = values > edge
    # An eigenvalue θ above half the edge e appears, under noise, at θ + (e/2)²/θ.
    sizes = np.where(clear, (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2, 0.0)
    rest = int(np.sum(~clear))
    if rest:
        left = (float(np.trace(matrix)) - float(np.sum(sizes))) / rest
        sizes[~clear] = max(left, noise / (2 * math.sqrt(rest)))
    return Directions(vectors.T @ axes, sizes, edge)


def main_direction(mean: FloatArray, trace: float, *, noise: float, edge: float, norm: float) -> MainDirection:
    """Return the direction of a noisy mean, in units of `norm`; `trace` is the sum of all second moments, 1 at most.

    Noise makes the mean's square longer by d times its own. The other directions share at least as much as noise may
    have taken from the trace.
    """
    square = float(mean @ mean)
    size = min(max(square - len(mean) * noise**2, 0.0), 1.0)
    others = max(min(trace, 1.0) - size, noise) / max(len(mean) - 1, 1)
    return MainDirection(mean / math.sqrt(square or 1.0), max(size, others), others, edge, norm)


def expected_main_direction(data: Schema, edge: float) -> MainDirection:
    """Return the main direction of features that are spread evenly, as in `expected_directions`: that of the constant,
    and of the categories' shares."""
    means, squares = np.zeros(data.width), np.zeros(data.width)
    for own, mean, even in _spread_evenly(data):
        means[own], squares[own] = mean, even
    if data.radius is not None:
        shorter = min(1.0, data.radius**2 / float(np.sum(squares)))
        means, squares = means * math.sqrt(shorter), squares * shorter
    if data.intercept:
        means[-1], squares[-1] = data.intercept, data.intercept**2
    norm = data.feature_norm
    return main_direction(means / norm, float(np.sum(squares)) / norm**2, noise=0.0, edge=edge, norm=norm)


def expected_directions(data: Schema, edge: float) -> Directions:
    """Return the directions of the features if these are spread evenly: what a schema says of them where nobody asks.

    A number is then as likely in one place of its range as in any other, with a second moment of a third of its bound
    squared; of several categories each has the same share; and columns do not depend on each other. All that varies
    together is the constant and the categories' shares.
    """
    means, moments = np.zeros(data.width), np.zeros((data.width, data.width))
    for own, mean, even in _spread_evenly(data):
        means[own] = mean
        moments[own, own] = even * np.eye(own.stop - own.start) - np.outer(means[own], means[own])
    moments += np.outer(means, means)
    if data.radius is not None:
        shorter = min(1.0, data.radius**2 / float(np.trace(moments)))
        means, moments = means * math.sqrt(shorter), moments * shorter
    if data.intercept:
        moments[-1] = moments[:, -1] = means * data.intercept
        moments[-1, -1] = data.intercept**2
    values, vectors = np.linalg.eigh(moments / data.feature_norm**2)
    return Directions(vectors.T / data.feature_norm, np.maximum(values, 0.0), edge)


def _spread_evenly(data: Schema) -> Iterator[tuple[slice, float, float]]:
    """Return where each column's features stand, and the mean and the second moment of each of them."""
    place = 0
    for block in data.blocks:
        even = block.bound**2 / block.width * (1.0 if block.constant else 1 / 3)
        yield slice(place, place + block.width), block.constant / block.width, even
        place += block.width
