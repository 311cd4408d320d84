"""The mean of the records' gradients, each cut to the clip.

Each record's term has norm at most clip/batch by construction, whatever the weights are. A record of norm 0
contributes 0.
"""

from typing import Protocol

from ringfence.protocol.arrays import TINY, FloatArray, namespace, without_negligible
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Gradient
from ringfence.silo.records import Records


class Residuals(Protocol):
    """What the clipped mean needs of a loss."""

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of every record's loss in its scores."""


def compute(question: Gradient, plan: Plan, argument: FloatArray, records: Records, shares: FloatArray) -> FloatArray:
    """Return the clipped mean gradient at the weights in `argument`."""
    mean = clipped_mean(
        plan.loss,
        question.clip,
        weights=without_negligible(argument).reshape(plan.data.width, -1),
        features=records.features,
        norms=records.norms,
        targets=records.targets,
        shares=shares,
    )
    return mean.reshape(-1)


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
    """Add up the records' clipped gradients, each times its share: not private by itself.

    A record's gradient is outer(x, residual), of norm ‖x‖·‖residual‖, so scaling the residual clips it. The
    weights have one row per feature and, last, one column per output; between them, as in `clip` and behind
    the records in `shares`, there may be axes of configurations, which the simulator runs side by side.
    """
    xp = namespace(features)
    residuals = loss.residuals(xp.tensordot(features, weights, axes=1), targets)
    lengths = norms.reshape(-1, *[1] * (weights.ndim - 2)) * xp.sqrt(xp.sum(residuals * residuals, axis=-1))
    kept = xp.minimum(1.0, clip / xp.maximum(lengths, TINY))  # of each gradient's length; 1 where it fits
    factors = shares.reshape(*shares.shape, *[1] * (lengths.ndim - shares.ndim)) * kept
    result: FloatArray = xp.tensordot(features, residuals * factors[..., None], axes=[[0], [0]])
    return result
