"""Means of the features and of their squared length, and how targets are spread over the request's window."""

import numpy as np

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.losses.told import told
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import FeatureMeans
from ringfence.protocol.questions.feature_moments import WEIGHT
from ringfence.silo import exact_sums
from ringfence.silo.questions.feature_moments import parts
from ringfence.silo.records import Records


def total(
    question: FeatureMeans, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up features, their squares, and which of the target's parts records fall into, times `WEIGHT`."""
    bins, window = question.bins(plan), without_negligible(argument)
    columns = records.bounded_features(plan.data.feature_norm)
    shares = WEIGHT * np.eye(bins)[parts(plan, window[0], window[1], bins, told(records.targets).numbers)]
    return exact_sums.column_sums(records.means(np.concatenate([columns, columns**2, shares], axis=1)), chosen)


def answer(
    question: FeatureMeans, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int
) -> FloatArray:
    """Return the means, the squares' as one number."""
    del question, argument
    means, squares, shares = np.split(total, [plan.data.width, 2 * plan.data.width])
    return exact_sums.quotient(np.concatenate([means, [squares.sum()], shares]), batch)
