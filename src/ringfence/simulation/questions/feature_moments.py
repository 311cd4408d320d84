"""Second moments of features along axes, and how targets are spread: a product with the rows for each argument."""

import math
from collections.abc import Sequence

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.told import told
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import FeatureMoments
from ringfence.protocol.questions.feature_moments import WEIGHT
from ringfence.silo.questions.feature_moments import parts
from ringfence.simulation.questions import Rows


def means(question: FeatureMoments, plan: Plan, arguments: Sequence[FloatArray], rows: Rows) -> Sequence[FloatArray]:
    """Return the triangles and shares."""
    return [_mean(question, plan, argument, rows) for argument in arguments]


def _mean(question: FeatureMoments, plan: Plan, argument: FloatArray, rows: Rows) -> FloatArray:
    viewed, bins = question.viewed(plan, argument), question.bins(plan)
    along = rows.features @ viewed.axes.T
    norms = np.sqrt(np.sum(along * along, axis=1))
    along *= (np.sqrt(rows.shares) / np.maximum(norms, 1.0))[:, None]
    matrix = along.T @ along
    one, other = np.triu_indices(len(matrix))
    triangle = matrix[one, other] * np.where(one == other, 1.0, math.sqrt(2.0))
    spread = np.bincount(parts(plan, viewed.lower, viewed.upper, bins, told(rows.targets).numbers), rows.shares, bins)
    return np.concatenate([triangle, WEIGHT * spread])
