"""The mean of the records' gradients, each clipped; for persons, by the plan's rule for their rows.

Each record's term has norm at most clip/batch by construction, whatever the weights are, and the terms are added up
exactly. A record of norm 0, or whose gradient is not a finite number, contributes 0.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ringfence.protocol import FloatArray, Gradient, Plan
from ringfence.protocol.arrays import TINY, namespace, row_norms, without_negligible
from ringfence.protocol.losses.targets import Derivable, residuals_of
from ringfence.silo.records import exact_sums
from ringfence.silo.records.persons import Persons
from ringfence.silo.records.records import Records


class Residuals(Derivable, Protocol):
    """What the clipped mean needs of a loss: residuals, and how they combine with features (`Outputs`)."""

    @property
    def spare(self) -> float:
        """A power of two above what a sum of a gradient's residuals may exceed their norm by."""

    def rounded(self, width: int) -> int:
        """Return how many roundings a gradient's computed length may be off by."""

    def gradient_norms(self, residuals: FloatArray, norms: FloatArray, constants: FloatArray) -> FloatArray:
        """Return the norm of every record's gradient."""

    def residual_columns(self, residuals: FloatArray) -> FloatArray:
        """Return the factors by which features are multiplied in a gradient."""

    def weight_gradients(self, products: FloatArray) -> FloatArray:
        """Return gradients of the weights from products of features."""


def total(query: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> exact_sums.Counts:
    """Add up the clipped gradients at the weights in `argument`."""
    return gradient_total(plan, query.clip, argument, records, records, chosen)


def answer(query: Gradient, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the mean."""
    return mean_gradient(plan, query.clip, total, batch)


def gradient_total(
    plan: Plan, clip: float, weights: FloatArray, records: Records, along: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up the records' gradients, each clipped to norm `clip`, in units of `mean_gradient`.

    A gradient is outer(z, residual) for most losses; z are the features of `along`: the same records, perhaps along
    other axes.
    """
    matrix = plan.loss.matrix(without_negligible(weights), plan.data.width)
    if plan.person_rule == "sum" and records.persons is not None:
        return summed_total(plan.loss, clip, matrix, records, records.persons, chosen, along)
    return clipped_total(plan.loss, clip, matrix, records, records.shares(plan, chosen), along)


def mean_gradient(plan: Plan, clip: float, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the mean over the batch, of a `gradient_total` in units of 2⁻⁶³ times the clip and the loss's `spare`."""
    return exact_sums.quotient(total, batch, clip * plan.loss.spare).reshape(-1)


def clipped_total(
    loss: Residuals,
    most: float,
    weights: FloatArray,
    records: Records,
    shares: FloatArray,
    along: Records | None = None,
) -> exact_sums.Counts:
    """Add up the rows' gradients, each clipped to norm `most`, times `shares`, in units of 2⁻⁶³ times that norm.

    A row's gradient is outer(z, residual), z its features, or those of `along`; with slopes that outputs share, in
    units of `spare` times as much, since sums of residuals stand beside them.
    """
    along = along or records
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
    loss: Residuals,
    most: float,
    weights: FloatArray,
    records: Records,
    persons: Persons,
    chosen: FloatArray,
    along: Records | None = None,
) -> exact_sums.Counts:
    """Add up the chosen persons' sums of gradients, each sum clipped to norm `most`, in units of 2⁻⁶³ times that norm.

    A row's gradient is clipped to 2¹⁰ times that norm, and rounded towards zero to 31 bits behind the point, so that a
    person's sum is a sum of whole numbers, whose norm is exact.
    """
    along, one = along or records, 2.0**exact_sums.ROW_BITS
    kept = 1 - exact_sums.slack(weights.size)
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
    result: exact_sums.Counts = total << (exact_sums.UNIT - exact_sums.ROW_BITS)
    if loss.spare > 1:
        result = result >> round(np.log2(loss.spare))
    return result


def _clipped_rows(
    loss: Residuals, clip: float, limbs: FloatArray, records: Records, along: Records, rows: slice
) -> tuple[FloatArray, FloatArray]:
    """Return the rows along the axes, and their clipped residuals at weights split into limbs."""
    own = records.block(rows)
    seen = own if along is records else along.block(rows)
    products, outputs = own @ limbs, limbs.shape[1] // 2
    scores = products[:, :outputs] + products[:, outputs:]
    norms, targets = along.norms[rows], records.targets[rows]
    return seen, clipped(loss, clip, scores=scores, norms=norms, constants=seen[:, -1], targets=targets)


def clipped(
    loss: Residuals,
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
    loss: Residuals,
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
