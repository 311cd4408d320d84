"""Quantiles of shares that noise has made ragged."""

import numpy as np
from scipy.optimize import isotonic_regression

from ringfence.protocol.arrays import FloatArray


def reached(shares: FloatArray) -> FloatArray:
    """Return how much lies below each edge, from 0 to 1 and never falling: the nearest to what was found."""
    total = max(float(shares.sum()), 1e-9)
    below = isotonic_regression(np.cumsum(shares)[:-1] / total).x
    inside: FloatArray = np.concatenate([[0.0], np.clip(below, 0.0, 1.0), [1.0]])
    return inside + np.linspace(0.0, 1e-6, len(inside))  # so that every level is reached somewhere


def log_quantiles(edges: FloatArray, shares: FloatArray, levels: FloatArray) -> FloatArray:
    """Return what the levels of numbers above 0 lie below; within a cell they lie evenly on a logarithmic scale."""
    known = np.log(np.concatenate([[edges[0] / 2], edges, [edges[-1] * 2]]))
    found: FloatArray = np.exp(np.interp(levels, reached(shares), known))
    return found
