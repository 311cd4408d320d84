"""Curvature, gradient and scatter of gradients, of the loss at the request's weights, along the request's axes.

A record's numbers are a function of the record and the request alone, and those of a record whose numbers are not
finite are 0.
"""

import math
from collections.abc import Iterator

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray, without_negligible
from ringfence.protocol.losses import Loss
from ringfence.protocol.losses.told import curvatures_of, residuals_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.questions.second_moments import Asked
from ringfence.silo import exact_sums
from ringfence.silo.records import Records


def total(
    question: SecondMoments, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up all records' numbers, of a few records at a time: each has as many as there are pairs of features."""
    asked = question.asked(plan, without_negligible(argument))
    weights, axes = exact_sums.limbs(asked.weights[:, None]), exact_sums.limbs(asked.axes.T)

    def terms() -> Iterator[tuple[FloatArray, FloatArray, int]]:
        for part in exact_sums.parts(len(records), question.length(plan)):
            some = records.take(np.arange(len(records))[part])
            scores, along = (_product(some.block(), limbs) for limbs in (weights, axes))
            values = row_values(plan.loss, asked, scores=scores, along=along, targets=some.targets)
            yield chosen[part, None], some.means(values), 0

    result: exact_sums.Counts = exact_sums.outer_sum(terms())[0]
    return result


def answer(
    question: SecondMoments, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int
) -> FloatArray:
    """Return the means."""
    del question, plan, argument
    return exact_sums.quotient(total, batch)


def _product(features: FloatArray, limbs: FloatArray) -> FloatArray:
    high, low = np.split(features @ limbs, 2, axis=1)
    return high + low


def row_values(loss: Loss, asked: Asked, *, scores: FloatArray, along: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the numbers of every row, none larger than 1, of its score and its features along the axes."""
    with np.errstate(invalid="ignore", over="ignore"):  # such a row counts as 0
        v, bend, pull = factors(loss, asked, scores=scores, along=along, targets=targets)
        one, other = np.triu_indices(v.shape[1])
        squares = v[:, one] * v[:, other] * np.where(one == other, math.sqrt(0.5), 1.0)
        values = np.concatenate([bend[:, None] * squares, pull[:, None] * v, (pull**2)[:, None] * squares], axis=1)
    return np.where(np.isfinite(values), values, 0.0)


def factors(
    loss: Loss, asked: Asked, *, scores: FloatArray, along: FloatArray, targets: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return v, h and ρ of every row (`protocol.questions.second_moments`)."""
    kept = 1 - exact_sums.slack(along.shape[1])
    share = kept * np.minimum(1.0, 1.0 / np.maximum(exact_sums.norms(along), TINY))
    residuals = residuals_of(loss, scores, targets)[:, 0] / asked.residual
    bend = np.clip(curvatures_of(loss, scores, targets)[:, 0] / asked.curvature, 0.0, 1.0) * (np.abs(residuals) < 1)
    return along * share[:, None], bend, np.clip(residuals, -1.0, 1.0) * share
