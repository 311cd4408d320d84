"""What the insurance and the obesity experiment share: trials from a table with a public schema."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray, Loss
from ringfence.research.datasets import Encoded
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.curves import TrialData
from ringfence.research.experiments.panels import Trial

Rows = Sequence[NDArray[np.int64]]


def _problem(
    features: FloatArray,
    targets: FloatArray,
    training: Rows,
    held_out: Rows,
    *,
    geometry: Geometry,
    loss: Loss,
    rounds: int,
    asked: int,
) -> TrialData:
    """Return rows of a table as silos; an error of a number is relative to guessing the training mean."""
    test = np.concatenate(list(held_out))
    unit = 1.0
    if loss.name == "squared":
        mean = targets[np.concatenate(list(training))].mean()
        unit = float(np.mean((targets[test] - mean) ** 2))
    return TrialData(
        geometry=geometry,
        loss=loss,
        silos=[(features[silo], targets[silo]) for silo in training],
        test=(features[test], targets[test]),
        rounds=rounds,
        asked=asked,
        delta=1 / max(map(len, training)) ** 2,
        error_unit=unit,
    )


def trial(
    ours: Encoded,
    paper_features: FloatArray,
    paper_targets: FloatArray,
    training: Rows,
    held_out: Rows,
    *,
    paper_bound: float,
    paper_clips: Sequence[float] = (),
    loss: Loss,
    rounds: int,
    asked: int,
) -> Trial:
    """Return a split of a table in both preparations; the paper's clip is twice the largest norm, unless given."""
    largest = float(np.linalg.norm(paper_features, axis=1).max())
    geometry = Geometry(paper_features.shape[1], largest, paper_bound)

    def seen(features: FloatArray, targets: FloatArray, geometry: Geometry) -> TrialData:
        return _problem(features, targets, training, held_out, geometry=geometry, loss=loss, rounds=rounds, asked=asked)

    return Trial(
        seen(ours.features, ours.targets, Geometry.of(ours.schema)),
        seen(paper_features, paper_targets, geometry),
        paper_clips or (2 * largest,),
    )


def standardised(table: Encoded, names: Sequence[str]) -> FloatArray:
    """Return the features with these columns as (values − mean)/deviation, as in the paper.

    Mean and deviation are read from the data, which is not private.
    """
    features = table.features.copy()
    for place in (table.schema.feature_names.index(name) for name in names):
        features[:, place] = (features[:, place] - features[:, place].mean()) / features[:, place].std()
    return features
