"""From noisy second moments to axes along which features vary alike: all of it computed from what was released.

A symmetric d × d matrix with noise of standard deviation s on its diagonal and s/√2 beside it has, for large d, noise
eigenvalues between ±√2·s·√d, the *edge*; their root mean square is half of that. What is found above the edge is a
direction of its own, shortened by what noise adds to an eigenvalue; all directions below it cannot be told apart and
share what is left of the trace, which is known to √d times the noise of a single number.
"""

import math
from dataclasses import dataclass

import numpy as np

from ringfence.protocol.arrays import FloatArray


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


def directions(axes: FloatArray, matrix: FloatArray, noise: float) -> Directions:
    """Return the directions that a noisy second-moment matrix, along the given axes, tells of."""
    width = len(matrix)
    values, vectors = np.linalg.eigh(matrix)
    edge = math.sqrt(2.0) * noise * math.sqrt(width)
    clear = values > edge
    # An eigenvalue θ above half the edge e appears, under noise, at θ + (e/2)²/θ.
    sizes = np.where(clear, (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2, 0.0)
    rest = int(np.sum(~clear))
    if rest:
        left = (float(np.trace(matrix)) - float(np.sum(sizes))) / rest
        sizes[~clear] = max(left, noise / (2 * math.sqrt(rest)))
    return Directions(vectors.T @ axes, sizes, edge)
