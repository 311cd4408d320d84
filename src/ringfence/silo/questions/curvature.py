"""The largest eigenvalue of the features' second-moment matrix."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Curvature
from ringfence.silo.records import Records


def compute(question: Curvature, plan: Plan, argument: FloatArray, records: Records, shares: FloatArray) -> FloatArray:
    """Return the eigenvalue, of features cut to their public norm once more."""
    del question, argument, shares  # every record takes part
    return np.array([largest_eigenvalue(records.bounded_features(plan.data.feature_norm))])


def largest_eigenvalue(features: FloatArray) -> float:
    """Return the largest eigenvalue of (1/n)·Σ xxᵀ: not private by itself."""
    return float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])
