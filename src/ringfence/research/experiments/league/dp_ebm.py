"""DP-EBM by a curator: additive models of stumps that InterpretML boosts with noise, at a matched replace-one epsilon.

Its own accounting is for a record that is added or removed: bins' counts move by 1, and sums of residuals by the
target's range. For a replaced record, counts move by √2, in two bins, and sums by 2 ranges, in one. The epsilon that
the package is given is the one whose noise is exact for that, both parts together. Nothing is tuned.
"""

import math
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray
from ringfence.research.experiments.league.own import Scored
from ringfence.research.experiments.league.tables import LeagueTable

BINNING = 0.1
"""The package's share of epsilon for binning; the rest is for boosting, and δ is halved."""
COUNTS, SUMS = math.sqrt(2), 2.0
"""By how much replacing a record moves counts and sums, in units of what adding one does."""


@lru_cache(maxsize=64)
def package_epsilon(epsilon: float, delta: float) -> float:
    """Return the epsilon to ask the package for, so that its model is (ε, δ)-DP for a replaced record."""
    limit = gaussian_shift(epsilon, delta)

    def excess(asked: float) -> float:
        """Return by how much the shift of all counts and sums is too large."""
        counts, sums = (gaussian_shift(part * asked, delta / 2) for part in (BINNING, 1 - BINNING))
        return math.hypot(COUNTS * counts, SUMS * sums) - limit

    return float(brentq(excess, 1e-3 * epsilon, epsilon))


def runs(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Scored]:
    """Fit all records in one place, with the largest δ of the silos, once for each seed."""
    delta = max(table.deltas.values())
    asked = package_epsilon(epsilon, delta)
    chosen = f"the package's epsilon is {asked:.3g}"
    return [Scored(_scores(table, fitted(table, asked, delta, seed)), 1, chosen) for seed in seeds]


def fitted(table: LeagueTable, asked: float, delta: float, seed: int) -> Any:
    """Return the package's model of all records, with its own epsilon and the schema's bounds."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    features, targets = table.pooled
    bounds = {
        place: tuple((end - offset) / unit for end in limits[:2])
        for place, column in enumerate(table.schema.features.values())
        for (offset, unit), limits in zip(column.scaling, column.limits, strict=True)
        if len(column.scaling) == 1
    }
    shared: dict[str, Any] = {
        "feature_types": ["continuous" if block.width == 1 else "nominal" for block in table.schema.blocks],
        "privacy_bounds": bounds,
        "epsilon": asked,
        "delta": delta,
        "bin_budget_frac": BINNING,
        "random_state": seed,
        "n_jobs": 1,
    }
    largest = table.schema.target_bound
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns that seeded noise is not secure: this is a simulation
        if table.is_number:
            model = DPExplainableBoostingRegressor(privacy_target_min=-largest, privacy_target_max=largest, **shared)
        else:
            model = DPExplainableBoostingClassifier(**shared)
        return model.fit(_columns(table, features), targets)


def _scores(table: LeagueTable, model: Any) -> FloatArray:
    """Score the held-out records."""
    columns = _columns(table, table.held_out[0])
    scores = model.predict(columns) if table.is_number else model.decision_function(columns)
    return np.asarray(scores, dtype=np.float64)[:, None]


def _columns(table: LeagueTable, features: FloatArray) -> FloatArray:
    """Return a column for each of the table's: its one feature, or the place of its category.

    The league's schemas have neither maps nor indicators, so features of one block are categories.
    """
    blocks = table.schema.blocks
    parts = np.split(features, np.cumsum([block.width for block in blocks]), axis=1)[: len(blocks)]
    return np.column_stack([own[:, 0] if own.shape[1] == 1 else np.argmax(own, axis=1) for own in parts])
