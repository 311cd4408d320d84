"""Means and mean squares of all features, and of a numeric target."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.told import told
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from ringfence.silo import exact_sums
from ringfence.silo.records import Records


def total(
    question: Moments, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up features, targets and their squares in public units, cut to their public bounds once more."""
    del argument
    columns, bound = records.bounded_features(plan.data.feature_norm), plan.data.target_bound
    if question.length(plan) > 2 * plan.data.width:  # the target is a number
        columns = np.column_stack([columns, np.clip(told(records.targets).numbers, -bound, bound) / bound])
    return exact_sums.column_sums(records.means(np.concatenate([columns, columns**2], axis=1)), chosen)


def answer(question: Moments, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the means."""
    del question, plan, argument
    return exact_sums.quotient(total, batch)
