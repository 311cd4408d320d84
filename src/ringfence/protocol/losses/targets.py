"""A record's target, and its offset and weight where the schema names them: how they enter a loss.

Without these two `targets` has one number per record. With them it has a row per record: what the loss takes for a
target, then the offset o, then the weight w. The record's loss is then w·φ(u + o, y), for every loss alike; losses
are defined without the two.
"""

from typing import NamedTuple

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses.base import BaseLoss, LinearLoss, beside


class SplitTargets(NamedTuple):
    """Targets as a loss takes them, and each record's offset and weight; None if there are none."""

    targets: FloatArray
    """As a loss takes them: a number per record, or several."""
    offsets: FloatArray | None
    weights: FloatArray | None

    @property
    def numbers(self) -> FloatArray:
        """One number per record from its split target columns: the target, or its first column."""
        return self.targets if self.targets.ndim == 1 else self.targets[:, 0]


def split_targets(targets: FloatArray) -> SplitTargets:
    """Split the columns beside the features into targets, offsets and weights."""
    if targets.ndim == 1:
        return SplitTargets(targets, None, None)
    own = targets[:, 0] if targets.shape[1] == 3 else targets[:, :-2]
    return SplitTargets(own, targets[:, -2], targets[:, -1])


def shifted(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the scores plus the offsets that the target columns carry."""
    offsets = split_targets(targets).offsets
    return scores if offsets is None else scores + beside(scores, offsets)


def values_of(loss: LinearLoss, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return w·φ(u + o, y) of every record."""
    return _weighted(loss.values(shifted(scores, targets), split_targets(targets).targets), targets)


def residuals_of(loss: LinearLoss, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the derivative of w·φ(u + o, y) in the scores."""
    return _weighted(loss.residuals(shifted(scores, targets), split_targets(targets).targets), targets)


def curvatures_of(loss: BaseLoss, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the second derivative of w·φ(u + o, y) in the scores."""
    return _weighted(loss.curvatures(shifted(scores, targets), split_targets(targets).targets), targets)


def _weighted(numbers: FloatArray, targets: FloatArray) -> FloatArray:
    """Multiply losses or residuals by the record weights that the target columns carry."""
    weights = split_targets(targets).weights
    return numbers if weights is None else numbers * beside(numbers, weights)
