"""Means and mean squares of all features, and of a numeric target."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from ringfence.silo import exact_sums
from ringfence.silo.records import Records


def compute(
    question: Moments, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the moments in public units, of features and targets cut to their public bounds once more."""
    del argument
    columns, bound = records.bounded_features(plan.data.feature_norm), plan.data.target_bound
    if question.length(plan) > 2 * plan.data.width:  # the target is a number
        columns = np.column_stack([columns, np.clip(records.targets, -bound, bound) / bound])
    return exact_sums.mean(records.means(np.concatenate([columns, columns**2], axis=1)), chosen, batch)
