"""Means of the features and of their squared norm, and the target's histogram."""

import numpy as np

from ringfence.protocol import FeatureMeans, FloatArray, Plan
from ringfence.protocol.arrays import without_negligible
from ringfence.protocol.queries.feature_moments import WEIGHT
from ringfence.silo.queries.feature_moments import target_bin
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records


def total(query: FeatureMeans, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
    """Add up features, their squares, and the target's bins times `WEIGHT`."""
    bins, window = query.bins(plan), without_negligible(argument)
    columns = records.bounded_features(plan.data.feature_norm)
    shares = WEIGHT * np.eye(bins)[target_bin(plan, window[0], window[1], bins, records.targets)]
    return exact_sums.column_sums(records.means(np.concatenate([columns, columns**2, shares], axis=1)), chosen)


def answer(query: FeatureMeans, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the means, and that of the squared norms as one number."""
    means, squares, shares = np.split(total, [plan.data.width, 2 * plan.data.width])
    return exact_sums.quotient(np.concatenate([means, [squares.sum()], shares]), batch)
