"""What a loss is given of a record besides its features: its target and, where the schema names them, an offset and a
weight.

Without these two `targets` has one number per record. With them it has a row per record: what the loss takes for a
target, then the offset o, then the weight w. The record's loss is then w·φ(u + o, y), for every loss alike: no loss
knows of either.
"""

from typing import NamedTuple, Protocol

from ringfence.protocol.arrays import FloatArray


class Told(NamedTuple):
    """Targets as a loss takes them, and each record's offset and weight; None if there are none."""

    targets: FloatArray
    """As a loss takes them: a number per record, or several."""
    offsets: FloatArray | None
    weights: FloatArray | None

    @property
    def numbers(self) -> FloatArray:
        """One number per record: the target, or the first of what it has."""
        return self.targets if self.targets.ndim == 1 else self.targets[:, 0]

    @property
    def events(self) -> FloatArray:
        """Whether an event ended each time, of targets that are times."""
        return self.targets[:, 1]


class Derivable(Protocol):
    """What is needed of a loss: one of this room, or somebody's own."""

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the loss of every record."""

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return its derivative in the scores."""


class Curved(Derivable, Protocol):
    """A loss with second derivatives."""

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the second derivative in the scores."""


def told(targets: FloatArray) -> Told:
    """Take apart what stands beside the features."""
    if targets.ndim == 1:
        return Told(targets, None, None)
    own = targets[:, 0] if targets.shape[1] == 3 else targets[:, :-2]
    return Told(own, targets[:, -2], targets[:, -1])


def shifted(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the scores with the records' offsets."""
    offsets = told(targets).offsets
    return scores if offsets is None else scores + offsets.reshape(-1, *[1] * (scores.ndim - 1))


def values_of(loss: Derivable, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return w·φ(u + o, y) of every record."""
    own = told(targets)
    values = loss.values(shifted(scores, targets), own.targets)
    return values if own.weights is None else values * own.weights.reshape(-1, *[1] * (values.ndim - 1))


def residuals_of(loss: Derivable, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return its derivative in the scores."""
    own = told(targets)
    residuals = loss.residuals(shifted(scores, targets), own.targets)
    return residuals if own.weights is None else residuals * own.weights.reshape(-1, *[1] * (scores.ndim - 1))


def curvatures_of(loss: Curved, scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Return its second derivative in the scores."""
    own = told(targets)
    curvatures = loss.curvatures(shifted(scores, targets), own.targets)
    return curvatures if own.weights is None else curvatures * own.weights.reshape(-1, *[1] * (scores.ndim - 1))
