"""The largest eigenvalue of the features' second-moment matrix."""

import math
from collections.abc import Iterator

import numpy as np

from ringfence.protocol import Curvature, FloatArray, Plan
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records

SQUARINGS = 48
"""Then the eigenvalue is exact to a factor of d^(2⁻⁴⁹), but for rounding."""


def total(query: Curvature, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
    """Add up the second moments of features, clipped to their public norm once more."""
    return second_moments(records.spread_features(plan.data.feature_norm, chosen))


def answer(query: Curvature, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the eigenvalue."""
    return np.array([plan.data.feature_norm**2 * largest_eigenvalue(mean_moments(total, batch))])


def second_moments(features: FloatArray) -> Counts:
    """Return Σ xxᵀ of features that are multiples of 2⁻³¹ and at most 1: exactly, in units of 2⁻⁷⁹."""
    width = features.shape[1]

    def terms() -> Iterator[tuple[FloatArray, FloatArray, int]]:
        """Yield the features split into limbs of 16 bits, beside the features, for the curvature's sum."""
        for part in exact_sums.parts(len(features), 2 * width):
            scaled = features[part] * 2.0**16
            high = np.trunc(scaled)
            yield np.concatenate([high * 2.0**-16, scaled - high], axis=1), features[part], 0  # limbs of 16 bits each

    total = exact_sums.outer_sum(terms(), bits=16)
    result: Counts = (total[:width] << 16) + total[width:]
    return result


def mean_moments(total: Counts, divisor: int) -> FloatArray:
    """Return Σ xxᵀ/divisor of a sum of second moments, rounded once."""
    return exact_sums.quotient(total, divisor << 16)


def largest_eigenvalue(matrix: FloatArray) -> float:
    """Return the largest absolute eigenvalue of a symmetric matrix, by repeated squaring.

    ‖B‖ = s·‖B/s‖ and ‖C‖ = ‖CCᵀ‖^½, so the norm is s₀·√(s₁·√(s₂·…)) with the Frobenius norms of the squared matrices.
    Products, quotients and roots have known errors: (d + 4)²·2⁻⁵³ in all.
    """
    scales = []
    for _ in range(SQUARINGS):
        scales.append(float(np.sqrt(np.sum(matrix * matrix))))
        if scales[-1] == 0.0:
            return 0.0
        matrix = matrix / scales[-1]
        matrix = matrix @ matrix.T
    result = float(np.sqrt(np.sum(matrix * matrix)))
    for scale in reversed(scales):
        result = scale * math.sqrt(result)
    return result
