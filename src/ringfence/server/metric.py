"""From second moments to axes along which features vary alike: a survey's noisy ones, or those that a schema suggests.

No record is looked at here.

A symmetric d × d matrix with noise of standard deviation s on its diagonal and s/√2 beside it has, for large d, noise
eigenvalues between ±√2·s·√d, the *edge*; their root mean square is half of that. What is found above the edge is a
direction of its own, shortened by what noise adds to an eigenvalue; all directions below it cannot be told apart and
share what is left of the trace, which is known to √d times the noise of a single number.
"""

import math
from dataclasses import dataclass

import numpy as np

from ringfence.protocol.arrays import FloatArray
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
        return Whitened(scales[:, None] * self.axes, self.sizes / (self.sizes + floor))


@dataclass(frozen=True)
class Whitened:
    """Axes, a row each, and the second moment along each, from 0 to 1."""

    axes: FloatArray
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


def expected_directions(data: Schema, edge: float) -> Directions:
    """Return the directions of the features if these are spread evenly: what a schema says of them where nobody asks.

    A number is then as likely in one place of its range as in any other, with a second moment of a third of its bound
    squared; of several categories each has the same share; and columns do not depend on each other. All that varies
    together is the constant and the categories' shares.
    """
    means, moments = np.zeros(data.width), np.zeros((data.width, data.width))
    place = 0
    for block in data.blocks:
        own = slice(place, place + block.width)
        means[own] = block.constant / block.width
        even = block.bound**2 / block.width * (1.0 if block.constant else 1 / 3)
        moments[own, own] = even * np.eye(block.width) - np.outer(means[own], means[own])
        place += block.width
    moments += np.outer(means, means)
    if data.radius is not None:
        shorter = min(1.0, data.radius**2 / float(np.trace(moments)))
        means, moments = means * math.sqrt(shorter), moments * shorter
    if data.intercept:
        moments[-1] = moments[:, -1] = means * data.intercept
        moments[-1, -1] = data.intercept**2
    values, vectors = np.linalg.eigh(moments / data.feature_norm**2)
    return Directions(vectors.T / data.feature_norm, np.maximum(values, 0.0), edge)
