"""The mean of the records' gradients, each cut to the clip; of persons, what the plan's rule makes of their rows.

Each record's term has norm at most clip/batch by construction, whatever the weights are, and the terms are added up
exactly. A record of norm 0, or whose gradient is not a finite number, contributes 0.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray, namespace, without_negligible
from ringfence.protocol.losses.told import Derivable, residuals_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Gradient
from ringfence.silo import exact_sums
from ringfence.silo.persons import Persons
from ringfence.silo.records import Records


class Residuals(Derivable, Protocol):
    """What the clipped mean needs of a loss: residuals, and how they go together with features (`Outputs`)."""

    @property
    def spare(self) -> float:
        """A power of two above what a sum of residuals may exceed their norm by."""

    def rounded(self, width: int) -> int:
        """Return how many roundings a computed length may be off by."""

    def lengths(self, residuals: FloatArray, norms: FloatArray, constants: FloatArray) -> FloatArray:
        """Return the norm of every record's gradient."""

    def spread(self, residuals: FloatArray) -> FloatArray:
        """Return what features are multiplied by."""

    def collected(self, products: FloatArray) -> FloatArray:
        """Return gradients of the weights from products of features."""


def total(
    question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up the clipped gradients at the weights in `argument`."""
    return gradient_total(plan, question.clip, argument, records, records, chosen)


def answer(question: Gradient, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int) -> FloatArray:
    """Return the mean."""
    del argument
    return mean_gradient(plan, question.clip, total, batch)


def gradient_total(
    plan: Plan, clip: float, weights: FloatArray, records: Records, along: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up the records' gradients, each cut to norm `clip`: outer(z, residual) for most, in units of `mean_gradient`.

    z are the features of `along`: the same records, perhaps seen along other axes.
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
    """Add up the rows' gradients, each cut to norm `most`, times `shares`, in units of 2⁻⁶³ times that norm.

    A row's gradient is outer(z, residual), z its features, or those of `along`; with slopes that outputs share, in
    units of `spare` times as much, since sums of residuals stand beside them.
    """
    along = along or records
    clip = most * (1 - exact_sums.slack(loss.rounded(len(weights))))

    def terms() -> Iterator[tuple[FloatArray, FloatArray, Any]]:
        limbs = exact_sums.limbs(weights)
        for part in exact_sums.parts(*records.features.shape):
            seen, cut = _cut_rows(loss, clip, limbs, records, along, part)
            factors = loss.spread(cut) * (shares[part, None] / (most * loss.spare))
            yield seen, factors, exact_sums.exponents(along.norms[part])

    with np.errstate(invalid="ignore", over="ignore"):  # such a record contributes 0
        return loss.collected(exact_sums.outer_sum(terms(), along.precision.bits))


def summed_total(
    loss: Residuals,
    most: float,
    weights: FloatArray,
    records: Records,
    persons: Persons,
    chosen: FloatArray,
    along: Records | None = None,
) -> exact_sums.Counts:
    """Add up the chosen persons' sums of gradients, each sum cut to norm `most`, in units of 2⁻⁶³ times that norm.

    A row's gradient is cut to 2¹⁰ times that norm, and rounded towards zero to 31 bits behind the point, so that a
    person's sum is a sum of whole numbers, whose norm can be told.
    """
    along, one = along or records, 2.0**exact_sums.ROW_BITS
    kept = 1 - exact_sums.slack(weights.size)
    total: Any = 0
    for part, rows in persons.parts(next(exact_sums.parts(records.rows, weights.size)).stop):
        with np.errstate(invalid="ignore", over="ignore"):  # such a row contributes 0
            seen, cut = _cut_rows(loss, 2.0**10 * most, exact_sums.limbs(weights), records, along, rows)
            products = seen.T[:, :, None] * loss.spread(cut / most)[None] * one
            collected = loss.collected(products)  # a row per feature, or weight, then per record
            terms = np.moveaxis(collected, 1, 0)
        counts = np.trunc(np.where(np.isfinite(terms), terms, 0.0)).astype(np.int64)
        sums = persons.sums(counts.reshape(len(counts), -1), part) / one
        fits = np.minimum(1.0, kept / np.maximum(exact_sums.norms(sums), TINY)) * chosen[part]
        total = total + np.trunc(sums * fits[:, None] * one).astype(np.int64).sum(axis=0).astype(object)
    result: exact_sums.Counts = total << (exact_sums.UNIT - exact_sums.ROW_BITS)
    if loss.spare > 1:
        result = result >> round(np.log2(loss.spare))
    return result


def _cut_rows(
    loss: Residuals, clip: float, limbs: FloatArray, records: Records, along: Records, rows: slice
) -> tuple[FloatArray, FloatArray]:
    """Return the rows along the axes, and their residuals at weights cut into limbs, scaled down to the clip."""
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
    lengths = loss.lengths(residuals, norms, constants)
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
    cut = clipped(loss, clip, scores=scores, norms=norms, constants=features[:, -1], targets=targets)
    factors = shares.reshape(*shares.shape, *[1] * (cut.ndim - shares.ndim))
    return loss.collected(xp.tensordot(features, loss.spread(cut * factors), axes=[[0], [0]]))
