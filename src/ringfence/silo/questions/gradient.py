"""The mean of the records' gradients, each cut to the clip.

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
from ringfence.silo.records import Records


class Residuals(Protocol):
    """What the clipped mean needs of a loss."""

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of every record's loss in its scores."""


def compute(
    question: Gradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the clipped mean gradient at the weights in `argument`."""
    total = clipped_total(
        plan.loss, question.clip, without_negligible(argument).reshape(plan.data.width, -1), records, chosen
    )
    return exact_sums.quotient(total, batch, question.clip).reshape(-1)


def clipped_total(
    loss: Residuals, most: float, weights: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Add up the chosen records' gradients, each cut to norm `most`, in units of 2⁻⁶³ times that norm."""
    outputs = weights.shape[1]
    clip = most * (1 - exact_sums.slack(sum(weights.shape)))

    def terms() -> Iterator[tuple[FloatArray, FloatArray, Any]]:
        limbs = exact_sums.limbs(weights)
        for part in exact_sums.parts(*records.features.shape):
            features, norms = records.features[part], records.norms[part]
            products = features @ limbs
            scores = products[:, :outputs] + products[:, outputs:]
            cut = clipped(loss, clip, scores=scores, norms=norms, targets=records.targets[part])
            yield features, cut * (chosen[part, None] / most), exact_sums.exponents(norms)

    with np.errstate(invalid="ignore", over="ignore"):  # such a record contributes 0
        return exact_sums.outer_sum(terms())


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
