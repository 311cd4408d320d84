"""Second moments of features along the request's axes, and how targets are spread over its window.

A record's numbers are a function of the record and the request alone.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.axes import MatrixAxes
from ringfence.protocol.losses.told import told
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import FeatureMoments
from ringfence.protocol.questions.feature_moments import WEIGHT
from ringfence.silo import exact_sums
from ringfence.silo.questions.curvature import mean_moments, second_moments
from ringfence.silo.records import Records


def total(
    question: FeatureMoments, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up the triangle of vvᵀ, and which of the target's parts records fall into, times `WEIGHT`."""
    viewed, bins = question.viewed(plan, without_negligible(argument)), question.bins(plan)
    matrix = second_moments(records.along(MatrixAxes(viewed.axes)).spread_features(1.0, chosen))
    rows = WEIGHT * np.eye(bins)[parts(plan, viewed.lower, viewed.upper, bins, told(records.targets).numbers)]
    triangle = matrix[np.triu_indices(len(matrix))]
    return np.concatenate([triangle, exact_sums.column_sums(records.means(rows), chosen)])


def answer(
    question: FeatureMoments, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int
) -> FloatArray:
    """Return the means, off the diagonal times √2."""
    del argument
    one, other = np.triu_indices(plan.data.width)
    triangle = mean_moments(total[: len(one)], batch) * np.where(one == other, 1.0, math.sqrt(2.0))
    return np.concatenate([triangle, exact_sums.quotient(total[len(one) :], batch)])


def parts(plan: Plan, lower: float, upper: float, bins: int, targets: FloatArray) -> NDArray[np.int64]:
    """Return which part of the window, or which class, each row's target falls into."""
    kind = plan.loss.target_kind
    if kind == "number":
        share = (np.clip(targets, lower, upper) - lower) / (upper - lower)
        return np.clip((share * bins).astype(np.int64), 0, bins - 1)
    return ((targets + 1) / 2 if kind == "label" else targets).astype(np.int64)
