"""Means and mean squares of all features, and of a numeric target."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from ringfence.protocol.schema import Categorical
from ringfence.silo.records import Records


def compute(question: Moments, plan: Plan, argument: FloatArray, records: Records, shares: FloatArray) -> FloatArray:
    """Return the moments in public units, of features and targets cut to their public bounds once more."""
    del question, argument, shares  # every record takes part
    largest, bound = plan.data.feature_norm, plan.data.target_bound
    columns = records.bounded_features(largest) / largest
    if not isinstance(plan.data.target_column, Categorical):
        columns = np.column_stack([columns, np.clip(records.targets, -bound, bound) / bound])
    return np.concatenate([columns.mean(axis=0), (columns**2).mean(axis=0)])
