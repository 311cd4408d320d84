"""What the insurance and the obesity experiment share: trials from a table with a public schema."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringfence.experiments.curves import Problem
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import Loss
from ringfence.protocol.schema import Geometry

Rows = Sequence[NDArray[np.int64]]


def problem(
    features: FloatArray,
    targets: FloatArray,
    training: Rows,
    held_out: Rows,
    *,
    geometry: Geometry,
    loss: Loss,
    rounds: int,
    asked: int,
) -> Problem:
    """Make a trial of rows of a table; an error of a number is relative to guessing the training mean."""
    test = np.concatenate(list(held_out))
    unit = 1.0
    if loss.name == "squared":
        mean = targets[np.concatenate(list(training))].mean()
        unit = float(np.mean((targets[test] - mean) ** 2))
    return Problem(
        geometry=geometry,
        loss=loss,
        silos=[(features[silo], targets[silo]) for silo in training],
        test=(features[test], targets[test]),
        rounds=rounds,
        asked=asked,
        delta=1 / max(map(len, training)) ** 2,
        error_unit=unit,
    )


def standardised(values: FloatArray) -> FloatArray:
    """Return (values − mean)/deviation, both read from the data: as the paper does it, and not private."""
    result: FloatArray = (values - values.mean()) / values.std()
    return result
