"""The mean of the records' gradients, each cut to the clip; of persons, what the plan's rule makes of their rows.

Each record's term has norm at most clip/batch by construction, whatever the weights are, and the terms are added up
exactly. A record of norm 0, or whose gradient is not a finite number, contributes 0.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray, namespace, without_negligible
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Gradient
from ringfence.silo import exact_sums
from ringfence.silo.persons import Persons
from ringfence.silo.records import Records


class Residuals(Protocol):
    """What the clipped mean needs of a loss."""

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of every record's loss in its scores."""


def compute(
    question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the clipped mean gradient at the weights in `argument`."""
    return mean_gradient(plan, question.clip, argument, records, records, chosen, batch)


def mean_gradient(
    plan: Plan, clip: float, weights: FloatArray, records: Records, along: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the mean over the batch of outer(z, residual), cut to norm `clip`, of the records' residuals.

    z are the features of `along`: the same records, perhaps seen along other axes.
    """
    matrix = without_negligible(weights).reshape(plan.data.width, -1)
    if plan.person_rule == "sum" and records.persons is not None:
        total = summed_total(plan.loss, clip, matrix, records, records.persons, chosen, along)
    else:
        total = clipped_total(plan.loss, clip, matrix, records, records.shares(plan, chosen), along)
    return exact_sums.quotient(total, batch, clip).reshape(-1)


def clipped_total(
    loss: Residuals,
    most: float,
    weights: FloatArray,
    records: Records,
    shares: FloatArray,
    along: Records | None = None,
) -> exact_sums.Counts:
    """Add up the rows' gradients, each cut to norm `most`, times `shares`, in units of 2⁻⁶³ times that norm.

    A row's gradient is outer(z, residual), z its features, or those of `along`.
    """
    along = along or records
    clip = most * (1 - exact_sums.slack(sum(weights.shape)))

    def terms() -> Iterator[tuple[FloatArray, FloatArray, Any]]:
        limbs = exact_sums.limbs(weights)
        for part in exact_sums.parts(*records.features.shape):
            cut = _cut_rows(loss, clip, limbs, records, along, part)
            yield along.features[part], cut * (shares[part, None] / most), exact_sums.exponents(along.norms[part])

    with np.errstate(invalid="ignore", over="ignore"):  # such a record contributes 0
        return exact_sums.outer_sum(terms())


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
    for part, rows in persons.parts(weights.size):
        with np.errstate(invalid="ignore", over="ignore"):  # such a row contributes 0
            cut = _cut_rows(loss, 2.0**10 * most, exact_sums.limbs(weights), records, along, rows) / most
            terms = along.features[rows, :, None] * cut[:, None, :] * one
        counts = np.trunc(np.where(np.isfinite(terms), terms, 0.0)).astype(np.int64)
        sums = persons.sums(counts.reshape(len(counts), -1), part) / one
        fits = np.minimum(1.0, kept / np.maximum(exact_sums.norms(sums), TINY)) * chosen[part]
        total = total + np.trunc(sums * fits[:, None] * one).astype(np.int64).sum(axis=0).astype(object)
    result: exact_sums.Counts = total << (exact_sums.UNIT - exact_sums.ROW_BITS)
    return result


def _cut_rows(
    loss: Residuals, clip: float, limbs: FloatArray, records: Records, along: Records, rows: slice
) -> FloatArray:
    """Return the residuals of the rows, at weights cut into limbs, scaled down to the clip."""
    products, outputs = records.features[rows] @ limbs, limbs.shape[1] // 2
    scores = products[:, :outputs] + products[:, outputs:]
    return clipped(loss, clip, scores=scores, norms=along.norms[rows], targets=records.targets[rows])


def clipped(
    loss: Residuals, clip: FloatArray | float, *, scores: FloatArray, norms: FloatArray, targets: FloatArray
) -> FloatArray:
    """Return the records' residuals, scaled down where a gradient is longer than the clip.

    A record's gradient is outer(x, residual), of norm ‖x‖·‖residual‖, so scaling the residual clips it. Between the
    records and the outputs of `scores` there may be axes of configurations, as in `clip`.
    """
    xp = namespace(scores)
    residuals = loss.residuals(scores, targets)
    lengths = norms.reshape(-1, *[1] * (scores.ndim - 2)) * xp.sqrt(xp.sum(residuals * residuals, axis=-1))
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
    cut = clipped(loss, clip, scores=xp.tensordot(features, weights, axes=1), norms=norms, targets=targets)
    factors = shares.reshape(*shares.shape, *[1] * (cut.ndim - shares.ndim))
    result: FloatArray = xp.tensordot(features, cut * factors, axes=[[0], [0]])
    return result
