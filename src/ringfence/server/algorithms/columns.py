"""From noisy histograms of columns to the knots of their curves, and to the axes along which features are surveyed.

The prior of a curve is a straight line plus a random walk of the same variance, whose steps from knot to knot are
independent. Its principal functions under the column's distribution are first nearly straight and then ever more
curved, and their variances fall. The first has the variance 1, so that all columns count alike, however wide their
public bounds are. The server takes as many functions as leave the least expected error of the scores.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.special

from ringfence.protocol import FloatArray, Plan, Schema
from ringfence.protocol.schema.maps.curves import CurveBlock, basis
from ringfence.server.algorithms.survey import REACH, project_onto_simplex, unlearned_share
from ringfence.server.algorithms.whitening import PrincipalAxes, noise_edge

TAIL = 0.0025, 0.25
"""Least and largest share of the records that may lie beyond either end of the occupied bins."""

_POINTS = 8
"""Points in each bin at which functions are averaged."""

_COUNTS = 8
"""How many numbers of functions are compared, from one for each column to all."""


class ColumnDistribution(NamedTuple):
    """The likely shares of the bins between two ends of a column."""

    shares: FloatArray
    lower: float
    upper: float

    def knots(self, count: int) -> FloatArray:
        """Return knots at even quantiles of a distribution that is half the column's and half uniform.

        They are closer where records are, and never too close for a curve to be computed.
        """
        edges = np.linspace(0, 1, len(self.shares) + 1)
        below = (np.concatenate([[0.0], np.cumsum(self.shares)]) + edges) / 2
        places = np.interp(np.linspace(0, 1, count), below, edges)
        knots = self.lower + (self.upper - self.lower) * places
        knots[0], knots[-1] = self.lower, self.upper
        return np.asarray(knots)


class CurvePrior(NamedTuple):
    """A curve's principal functions, a row each in the curve's features, and their prior variances, falling from 1.

    `means` are those of the curve's features.
    """

    functions: FloatArray
    variances: FloatArray
    means: FloatArray

    @classmethod
    def of(cls, column: ColumnDistribution, knots: FloatArray) -> "CurvePrior":
        """Return the prior of a column's curve with these knots."""
        count = len(column.shares) * _POINTS
        points = column.lower + (column.upper - column.lower) * (np.arange(count) + 0.5) / count
        weights = np.repeat(column.shares, _POINTS) / _POINTS
        features = basis(np.clip(points, knots[0], knots[-1]), tuple(knots.tolist()), 1)
        gaps = np.diff(knots) / (knots[-1] - knots[0])
        steps = np.linalg.cholesky(np.outer(gaps, gaps) + np.eye(len(gaps)) / len(gaps))
        walks = np.concatenate(
            [np.zeros((1, len(gaps))), np.cumsum(steps, axis=0)]
        )  # values at the knots, a column each
        means = weights @ features
        values = (features - means) @ walks
        variances, vectors = np.linalg.eigh(values.T @ (values * weights[:, None]))
        vectors = vectors * np.where(np.sum(vectors, axis=0) < 0, -1.0, 1.0)  # as in `whitening.principal_axes`
        largest = variances[-1]
        functions = (walks @ vectors / math.sqrt(largest)).T
        return cls(functions[::-1], np.maximum(variances[::-1] / largest, 0.0), means)


def column_distribution(shares: FloatArray, lower: float, upper: float, noise: float) -> ColumnDistribution:
    """Return the distribution between the ends of the occupied bins.

    Half of the bins together have √(bins/2) times the noise of one: tails that light may be noise alone. They are taken
    for those of a normal distribution, which the ends are to hold for `REACH` standard deviations.
    """
    bins, (least, most) = len(shares), TAIL
    tail = min(most, max(least, noise * math.sqrt(bins / 2)))
    likely = project_onto_simplex(shares)
    first, last = int(np.argmax(np.cumsum(likely) > tail)), bins - int(np.argmax(np.cumsum(likely[::-1]) > tail))
    kept = -float(scipy.special.ndtri(tail))  # in standard deviations
    more = math.ceil((last - first) / 2 * max(0.0, REACH / kept - 1))
    first, last = max(0, first - more), min(bins, last + more)
    edges, inside = np.linspace(lower, upper, bins + 1), likely[first:last].copy()
    inside[0] += likely[:first].sum()
    inside[-1] += likely[last:].sum()
    return ColumnDistribution(inside, float(edges[first]), float(edges[last]))


def first_axes(plan: Plan, columns: Sequence[ColumnDistribution], knots: FloatArray, noise: float) -> FloatArray:
    """Return the axes of the first round of feature moments, a row each; rows beyond those needed are 0.

    `noise` is that of one number of this round. Functions are taken by falling prior variance. The root mean square of
    a record's norm along the axes is about 1.
    """
    others, candidates = _split(plan.data, columns, knots)
    known = np.array([moment for moment, _ in others])
    variances = np.array([variance for variance, _ in candidates])

    def expected_error(count: int) -> float:
        """Return the expected error if that many functions are taken, relative to the variance of all scores."""
        moments = np.concatenate([variances[:count], known])
        share = float(moments.sum() / (moments.sum() + variances[count:].sum()))
        found = PrincipalAxes(np.eye(len(moments)), moments / moments.sum(), noise_edge(noise, len(moments)))
        return 1 - share + share * unlearned_share(plan, found)

    counts = np.geomspace(len(columns), len(candidates), _COUNTS).round().astype(int).tolist()
    taken = min(counts, key=expected_error)
    rows = [axis for _, axis in (*candidates[:taken], *others)]
    axes = np.zeros((plan.data.width, plan.data.width))
    axes[: len(rows)] = np.array(rows) / math.sqrt(known.sum() + variances[:taken].sum())
    return axes


def _split(
    data: Schema, columns: Sequence[ColumnDistribution], knots: FloatArray
) -> tuple[list[tuple[float, FloatArray]], list[tuple[float, FloatArray]]]:
    """Return the axes of features without surveyed curves, each with its second moment at most; and those of curves.

    The curves' axes are their principal functions, each with its prior variance, the largest first. The constant
    feature takes off their means.
    """
    ends = np.cumsum([len(own) for own in data.even_knots])
    of_each = dict(zip(data.open_curves, zip(columns, np.split(knots, ends[:-1]), strict=True), strict=True))
    unit, place = np.eye(data.width), 0
    others, candidates = list[tuple[float, FloatArray]](), list[tuple[float, FloatArray]]()
    for block in data.blocks:
        count = 0
        if isinstance(block, CurveBlock) and block.curve.is_open:
            column, own = of_each[block.name]
            prior, count = CurvePrior.of(column, own), len(own)
            for function, variance in zip(prior.functions, prior.variances, strict=True):
                axis = function @ unit[place : place + count]
                if data.intercept:
                    axis = axis - unit[-1] * (function @ prior.means) / data.intercept
                candidates.append((float(variance), axis))
        others += [(block.bound**2 / block.width, unit[place + at]) for at in range(count, block.width)]
        place += block.width
    if data.intercept:
        others.append((data.intercept**2, unit[-1]))
    return others, sorted(candidates, key=lambda one: -one[0])
