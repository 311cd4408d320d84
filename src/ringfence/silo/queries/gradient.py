"""The mean of the records' gradients, each clipped, perhaps along axes; for persons, by the plan's rule for rows.

Each record's term has norm at most clip/batch by construction, whatever the weights are, and the terms are added up
exactly. A record of norm 0, or whose gradient is not a finite number, contributes 0.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ringfence.protocol import FloatArray, Plan
from ringfence.protocol.arrays import TINY, namespace, row_norms, without_negligible
from ringfence.protocol.losses.base import LinearLoss
from ringfence.protocol.losses.targets import residuals_of
from ringfence.protocol.queries.gradient import GradientQuery
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.persons import Persons
from ringfence.silo.records.records import Records


def total(query: GradientQuery, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
    """Add up the gradients at the request's weights, each clipped to the query's norm, in units of `answer`.

    A gradient is outer(z, residual) for most losses; z are the features, along the request's axes if it has any.
    """
    weights, axes = query.read(plan, without_negligible(argument))
    matrix, clip = plan.loss.matrix(weights, plan.data.width), query.record_norm(plan)
    along = records if axes is None else records.along(axes)
    if plan.person_rule == "sum" and records.persons is not None:
        return summed_total(plan.loss, clip, matrix, records, records.persons, chosen, along)
    return clipped_total(plan.loss, clip, matrix, records, records.shares(plan, chosen), along)


def answer(query: GradientQuery, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the mean over the batch, of a `total` in units of 2⁻⁶³ times the clip and the loss's `spare`."""
    return exact_sums.quotient(total, batch, query.record_norm(plan) * plan.loss.spare).reshape(-1)


def clipped_total(
    loss: LinearLoss, most: float, weights: FloatArray, records: Records, shares: FloatArray, along: Records
) -> Counts:
    """Add up the rows' gradients, each clipped to norm `most`, times `shares`, in units of 2⁻⁶³ times that norm.

    A row's gradient is outer(z, residual), z its features in `along`; with slopes that outputs share, in
    units of `spare` times as much, since sums of residuals stand beside them.
    """
    clip = most * (1 - exact_sums.slack(loss.rounded(len(weights))))

    def terms() -> Iterator[tuple[FloatArray, FloatArray, Any]]:
        """Yield rows, the factors of their clipped gradients and their exponents, a part at a time."""
        limbs = exact_sums.limbs(weights)
        for part in exact_sums.parts(*records.features.shape):
            seen, residuals = _clipped_rows(loss, clip, limbs, records, along, part)
            factors = loss.residual_columns(residuals) * (shares[part, None] / (most * loss.spare))
            yield seen, factors, exact_sums.exponents(along.norms[part])

    with np.errstate(invalid="ignore", over="ignore"):  # such a record contributes 0
        return loss.weight_gradients(exact_sums.outer_sum(terms(), along.precision.row_bits + 1))


def summed_total(
    loss: LinearLoss,
    most: float,
    weights: FloatArray,
    records: Records,
    persons: Persons,
    chosen: FloatArray,
    along: Records,
) -> Counts:
    """Add up the chosen persons' sums of gradients, each sum clipped to norm `most`, in units of 2⁻⁶³ times that norm.

    A row's gradient is clipped to 2¹⁰ times that norm, and rounded towards zero to 31 bits behind the point, so that a
    person's sum is a sum of whole numbers, whose norm is exact.
    """
    one, kept = 2.0**exact_sums.ROW_BITS, 1 - exact_sums.slack(weights.size)
    total: Any = 0
    for part, rows in persons.parts(next(exact_sums.parts(records.rows, weights.size)).stop):
        with np.errstate(invalid="ignore", over="ignore"):  # such a row contributes 0
            seen, residuals = _clipped_rows(loss, 2.0**10 * most, exact_sums.limbs(weights), records, along, rows)
            products = seen.T[:, :, None] * loss.residual_columns(residuals / most)[None] * one
            collected = loss.weight_gradients(products)  # a row per feature, or weight, then per record
            terms = np.moveaxis(collected, 1, 0)
        counts = np.trunc(np.where(np.isfinite(terms), terms, 0.0)).astype(np.int64)
        sums = persons.sums(counts.reshape(len(counts), -1), part) / one
        fits = np.minimum(1.0, kept / np.maximum(row_norms(sums), TINY)) * chosen[part]
        total = total + np.trunc(sums * fits[:, None] * one).astype(np.int64).sum(axis=0).astype(object)
    result: Counts = total << (exact_sums.UNIT - exact_sums.ROW_BITS)
    if loss.spare > 1:
        result = result >> round(np.log2(loss.spare))
    return result


def _clipped_rows(
    loss: LinearLoss, clip: float, limbs: FloatArray, records: Records, along: Records, rows: slice
) -> tuple[FloatArray, FloatArray]:
    """Return the rows along the axes, and their clipped residuals at weights split into limbs."""
    own = records.block(rows)
    seen = own if along is records else along.block(rows)
    products, outputs = exact_sums.product(own, limbs), limbs.shape[1] // 2
    scores = products[:, :outputs] + products[:, outputs:]
    norms, targets = along.norms[rows], records.targets[rows]
    return seen, clipped(loss, clip, scores=scores, norms=norms, constants=seen[:, -1], targets=targets)


def clipped(
    loss: LinearLoss,
    clip: FloatArray | float,
    *,
    scores: FloatArray,
    norms: FloatArray,
    constants: FloatArray,
    targets: FloatArray,
) -> FloatArray:
    """Return the records' residuals, scaled down where a gradient is longer than the clip.

    A record's gradient is linear in its residual: outer(x, residual), of norm ‖x‖·‖residual‖, for most losses. So
    scaling the residual clips it, with the record's weight in it. Between the records and the outputs of `scores` there
    may be axes of configurations, as in `clip`. `constants` are the last of every record's features.
    """
    xp = namespace(scores)
    residuals = residuals_of(loss, scores, targets)
    lengths = loss.gradient_norms(residuals, norms, constants)
    kept = xp.minimum(1.0, clip / xp.maximum(lengths, TINY))  # of each gradient's length; 1 where it fits
    result: FloatArray = residuals * kept[..., None]
    return result


def clipped_mean(
    loss: LinearLoss,
    clip: FloatArray | float,
    *,
    weights: FloatArray,
    features: FloatArray,
    norms: FloatArray,
    targets: FloatArray,
    shares: FloatArray,
) -> FloatArray:
    """Add up the records' clipped gradients in floating point, each times its share: for public data only.

    The weights have one row per feature and, last, one column per output; between them, as in `clip` and behind
    the records in `shares`, there may be axes of configurations, which the simulator runs side by side.
    """
    xp = namespace(features)
    scores = xp.tensordot(features, weights, axes=1)
    kept = clipped(loss, clip, scores=scores, norms=norms, constants=features[:, -1], targets=targets)
    factors = shares.reshape(*shares.shape, *[1] * (kept.ndim - shares.ndim))
    return loss.weight_gradients(xp.tensordot(features, loss.residual_columns(kept * factors), axes=[[0], [0]]))
