"""The terms of second moments: curvature, gradient and squared gradient at the request's weights, along its axes.

Numbers that are not finite count as 0.
"""

import math

import numpy as np

from ringfence.protocol import FloatArray, Loss, Plan, SecondMoments
from ringfence.protocol.arrays import TINY, row_norms, without_negligible
from ringfence.protocol.losses.targets import curvatures_of, residuals_of
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.silo.records import exact_sums
from ringfence.silo.records.records import Records, exact_product


def terms(query: SecondMoments, plan: Plan, argument: FloatArray, records: Records) -> FloatArray:
    """Return every row's triangle of h·vvᵀ, ρ·v, and triangle of ρ²·vvᵀ, none larger than 1."""
    asked = query.read(plan, without_negligible(argument))
    scores, along = (exact_product(records.block(), columns) for columns in (asked.weights[:, None], asked.axes.T))
    with np.errstate(invalid="ignore", over="ignore"):  # such a row counts as 0
        v, curvature, residual = factors(plan.loss, asked, scores=scores, along=along, targets=records.targets)
        one, other = np.triu_indices(v.shape[1])
        squares = v[:, one] * v[:, other] * np.where(one == other, math.sqrt(0.5), 1.0)
        values = np.concatenate(
            [curvature[:, None] * squares, residual[:, None] * v, (residual**2)[:, None] * squares], axis=1
        )
    return np.where(np.isfinite(values), values, 0.0)


def factors(
    loss: Loss, asked: MomentsArgument, *, scores: FloatArray, along: FloatArray, targets: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return v, h and ρ of every row (`protocol.queries.second_moments`)."""
    kept = 1 - exact_sums.slack(along.shape[1])
    share = kept * np.minimum(1.0, 1.0 / np.maximum(row_norms(along), TINY))
    residuals = residuals_of(loss, scores, targets)[:, 0] / asked.residual
    curvature = np.clip(curvatures_of(loss, scores, targets)[:, 0] / asked.curvature, 0.0, 1.0) * (
        np.abs(residuals) < 1
    )
    return along * share[:, None], curvature, np.clip(residuals, -1.0, 1.0) * share
