"""Second moments of features along the request's axes, and the target's histogram."""

import math

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FeatureMoments, FloatArray, MatrixAxes, Plan
from ringfence.protocol.arrays import Number, without_negligible
from ringfence.protocol.losses.targets import split_targets
from ringfence.protocol.queries.feature_moments import WEIGHT
from ringfence.silo.queries.curvature import mean_moments, second_moments
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records


def total(query: FeatureMoments, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
    """Add up the triangle of vvᵀ, and the target's bins times `WEIGHT`."""
    viewed, bins = query.read(plan, without_negligible(argument)), query.bins(plan)
    matrix = second_moments(records.along(MatrixAxes(viewed.axes)).spread_features(1.0, chosen))
    rows = WEIGHT * np.eye(bins)[target_bin(plan, viewed.lower, viewed.upper, bins, records.targets)]
    triangle = matrix[np.triu_indices(len(matrix))]
    return np.concatenate([triangle, exact_sums.column_sums(records.means(rows), chosen)])


def answer(query: FeatureMoments, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the means, with off-diagonal entries times √2."""
    one, other = np.triu_indices(plan.data.width)
    triangle = mean_moments(total[: len(one)], batch) * np.where(one == other, 1.0, math.sqrt(2.0))
    return np.concatenate([triangle, exact_sums.quotient(total[len(one) :], batch)])


def target_bin(plan: Plan, lower: Number, upper: Number, bins: int, targets: FloatArray) -> NDArray[np.int64]:
    """Return the bin between `lower` and `upper`, or the class, of each row's target."""
    kind, numbers = plan.loss.target_kind, split_targets(targets).numbers
    if kind == "number":
        share = (np.clip(numbers, lower, upper) - lower) / (upper - lower)
        return np.clip((share * bins).astype(np.int64), 0, bins - 1)
    return ((numbers + 1) / 2 if kind == "label" else numbers).astype(np.int64)
