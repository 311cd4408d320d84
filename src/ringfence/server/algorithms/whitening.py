"""Whitening axes from second moments of the features: noisy ones from a survey, or the prior from a schema.

A symmetric d × d matrix with noise of standard deviation s on its diagonal and s/√2 beside it has, for large d, noise
eigenvalues between ±√2·s·√d, the *edge*; their root mean square is half of that. An eigenvalue above the edge is a
direction of its own, and what noise adds to it is subtracted. Directions below the edge are not resolved and share
the rest of the trace, which is known to √d times the noise of a single number.

With many features only their mean is surveyed (`MainDirection`). The second moment along the mean is large, and the
mean has d numbers, not d², so that it stands out from the noise. All other directions share the rest.

In a simulation, arrays begin with an axis of runs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ringfence.protocol import Axes, FloatArray, MatrixAxes, RankOneAxes, Schema
from ringfence.protocol.arrays import Number


@dataclass(frozen=True)
class PrincipalAxes:
    """Axes, a row each, that nearly diagonalise the second moments; the `moments` along them; and the noise edge."""

    axes: FloatArray
    moments: FloatArray
    edge: float

    def whitened(self, floor: float) -> "WhitenedAxes":
        """Rescale the axes so that second moments are h/(h + floor): near 1 where they exceed the floor."""
        scales = 1 / np.sqrt(self.moments + floor)
        return WhitenedAxes(MatrixAxes(scales[..., None] * self.axes), self.moments / (self.moments + floor))


@dataclass(frozen=True)
class MainDirection:
    """A direction of norm 1, the features' second moment along it and along each other one, and the noise edge.

    Moments are in units of the square of `norm`, the largest feature norm.
    """

    direction: FloatArray
    moment: Number
    others: Number
    edge: float
    norm: float

    def whitened(self, floor: float) -> "WhitenedAxes":
        """Return the identity with one direction rescaled, so that second moments are h/(h + floor)."""
        moments = np.repeat(np.asarray(self.others)[..., None], self.direction.shape[-1], axis=-1)
        moments[..., 0] = self.moment
        kept = np.sqrt((self.others + floor) / (self.moment + floor))
        scale = 1 / (np.sqrt(self.others + floor) * self.norm)
        axes = RankOneAxes(scale, np.sqrt(1 - kept)[..., None] * self.direction)
        return WhitenedAxes(axes, moments / (moments + floor))


FeatureMomentsEstimate: TypeAlias = PrincipalAxes | MainDirection


@dataclass(frozen=True)
class WhitenedAxes:
    """Axes, and the second moment along each, from 0 to 1; that of a main direction comes first."""

    axes: Axes
    moments: FloatArray

    @property
    def norm(self) -> FloatArray:
        """The root mean square of a record's norm along the axes."""
        return np.asarray(np.sqrt(np.sum(self.moments, axis=-1)))


def noise_edge(noise: float, width: int) -> float:
    """Return the largest eigenvalue of noise alone, for many features."""
    return math.sqrt(2.0 * width) * noise


def principal_axes(axes: FloatArray, matrix: FloatArray, noise: float) -> PrincipalAxes:
    """Estimate the principal axes from a noisy second-moment matrix along the given axes, of which some may be 0."""
    used = np.any(axes != 0, axis=-1)
    matrix, width = matrix * (used[..., None] & used[..., None, :]), int(np.max(np.sum(used, axis=-1)))
    values, vectors = np.linalg.eigh(matrix)
    # Their signs, which rounding decides otherwise, decide how the next round's noise adds to its answers.
    vectors = np.where(np.sum(vectors, axis=-2, keepdims=True) < 0, -vectors, vectors)
    exists = np.einsum("...ij,...i->...j", vectors**2, 1.0 * used) > 0.5  # the others are directions of no axis
    edge = noise_edge(noise, width)
    clear = values > edge
    # An eigenvalue θ above half the edge e appears, under noise, at θ + (e/2)²/θ.
    moments = np.where(clear, (values + np.sqrt(np.maximum(values**2 - edge**2, 0.0))) / 2, 0.0)
    rest = np.maximum(np.sum(~clear & exists, axis=-1), 1)
    left = (np.trace(matrix, axis1=-2, axis2=-1) - np.sum(moments, axis=-1)) / rest
    shared = np.maximum(left, noise / (2 * np.sqrt(rest)))[..., None] * exists
    return PrincipalAxes(vectors.swapaxes(-1, -2) @ axes, np.where(clear, moments, shared), edge)


def main_direction(mean: FloatArray, trace: Number, *, noise: float, edge: float, norm: float) -> MainDirection:
    """Return the direction of a noisy mean, in units of `norm`; `trace` is the sum of all second moments, 1 at most.

    Noise adds d times its variance to the squared mean. The other directions share at least the noise of the trace.
    """
    width, square = mean.shape[-1], np.sum(mean * mean, axis=-1)
    moment = np.clip(square - width * noise**2, 0.0, 1.0)
    others = np.maximum(np.minimum(trace, 1.0) - moment, noise) / max(width - 1, 1)
    direction = mean / np.sqrt(np.where(square > 0, square, 1.0))[..., None]
    return MainDirection(direction, np.maximum(moment, others), others, edge, norm)


def prior_of_features(data: Schema, edge: float, *, rank_one: bool) -> FeatureMomentsEstimate:
    """Return the prior for features that were not surveyed: their main direction, or all principal axes."""
    return prior_main_direction(data, edge) if rank_one else prior_principal_axes(data, edge)


def prior_main_direction(data: Schema, edge: float) -> MainDirection:
    """Return the main direction of uniformly distributed features, as in `prior_principal_axes`."""
    means, squares = np.zeros(data.width), np.zeros(data.width)
    for own, mean, even in _uniform_moments(data):
        means[own], squares[own] = mean, even
    if data.radius is not None:
        scale = min(1.0, data.radius**2 / float(np.sum(squares)))
        means, squares = means * math.sqrt(scale), squares * scale
    if data.intercept:
        means[-1], squares[-1] = data.intercept, data.intercept**2
    norm = data.feature_norm
    return main_direction(means / norm, np.sum(squares) / norm**2, noise=0.0, edge=edge, norm=norm)


def prior_principal_axes(data: Schema, edge: float) -> PrincipalAxes:
    """Return the principal axes of uniformly distributed, independent features: the prior without a survey.

    A number has the second moment of a third of its squared bound, and all categories the same share. Only the constant
    and the categories' shares are correlated.
    """
    means, moments = np.zeros(data.width), np.zeros((data.width, data.width))
    for own, mean, even in _uniform_moments(data):
        means[own] = mean
        moments[own, own] = even * np.eye(own.stop - own.start) - np.outer(means[own], means[own])
    moments += np.outer(means, means)
    if data.radius is not None:
        scale = min(1.0, data.radius**2 / float(np.trace(moments)))
        means, moments = means * math.sqrt(scale), moments * scale
    if data.intercept:
        moments[-1] = moments[:, -1] = means * data.intercept
        moments[-1, -1] = data.intercept**2
    values, vectors = np.linalg.eigh(moments / data.feature_norm**2)
    return PrincipalAxes(vectors.T / data.feature_norm, np.maximum(values, 0.0), edge)


def _uniform_moments(data: Schema) -> Iterator[tuple[slice, float, float]]:
    """Yield the slice of each column's features, and the mean and second moment of each of them."""
    place = 0
    for block in data.blocks:
        even = block.bound**2 / block.width * (1.0 if block.constant else 1 / 3)
        yield slice(place, place + block.width), block.constant / block.width, even
        place += block.width
