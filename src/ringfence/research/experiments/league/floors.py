"""Models without privacy that are not linear: what a federation gives up by a linear model, apart from privacy.

Both get the features that all methods of the league get, of all records in one place. Additive splines are the linear
model on spline bases of every feature; knots and ridge are chosen by cross-validation on training records. Boosted
trees have scikit-learn's default settings.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from ringfence.protocol import FloatArray, Loss
from ringfence.research.experiments.league.central import ridged
from ringfence.research.experiments.league.own import Scored
from ringfence.research.experiments.league.tables import LeagueTable

KNOTS = (3, 5, 10, 20)
"""Evenly spaced knots of a cubic spline that are tried, from the least to the greatest value of a feature."""
RIDGES = (0.1, 1.0, 10.0)
"""Ridges that are tried, in records."""
FOLDS = 3
SEED = 0
"""The seed of folds, and of the records that stop the trees' boosting early."""

Scores = Callable[[FloatArray], FloatArray]
"""A fitted model: from features to scores, a column for each output."""


def boosted_trees(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Scored]:
    """Fit gradient-boosted trees with default settings, once: nothing depends on ε, or on seeds."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    features, targets = table.pooled
    kind = HistGradientBoostingRegressor if table.is_number else HistGradientBoostingClassifier
    with threadpool_limits(limits=1):  # the tables are small: threads would wait for each other
        model = kind(random_state=SEED).fit(features, targets)
        held_out = table.held_out[0]
        scores = model.predict(held_out) if table.is_number else model.decision_function(held_out)
    return [Scored(np.asarray(scores, dtype=np.float64).reshape(len(held_out), -1), 0, "default")] * len(seeds)


def additive_splines(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Scored]:
    """Fit the linear model on spline bases, once, with the setting that cross-validation chose."""
    features, targets = table.pooled
    folds = np.random.default_rng(SEED).permutation(len(targets)) % FOLDS

    def left_out(setting: tuple[int, float]) -> float:
        """Return the loss on records that did not fit the model, summed over folds."""
        total = 0.0
        for fold in range(FOLDS):
            inside, outside = folds != fold, folds == fold
            scores = spline_model(table.loss, features[inside], targets[inside], *setting)(features[outside])
            total += float(np.sum(table.loss.values(scores, targets[outside])))
        return total

    knots, ridge = min(itertools.product(KNOTS, RIDGES), key=left_out)
    scores = spline_model(table.loss, features, targets, knots, ridge)(table.held_out[0])
    return [Scored(scores, 0, f"{knots} knots, ridge {ridge:g}")] * len(seeds)


def spline_model(loss: Loss, features: FloatArray, targets: FloatArray, knots: int, ridge: float) -> Scores:
    """Fit a linear model on spline bases of every feature that has more than two values."""
    from sklearn.preprocessing import SplineTransformer

    curved = np.array([len(np.unique(column)) > 2 for column in features.T])
    bases = SplineTransformer(knots, knots="uniform", extrapolation="constant", include_bias=False)
    bases = bases.fit(features[:, curved]) if curved.any() else None

    def mapped(rows: FloatArray) -> FloatArray:
        """Put the splines of curved features beside the others as they are."""
        columns = [rows[:, ~curved], *([] if bases is None else [bases.transform(rows[:, curved])])]
        return np.concatenate(columns, axis=1)

    weights = ridged(loss, mapped(features), targets, ridge)
    return lambda rows: np.asarray(mapped(rows) @ weights, dtype=np.float64)
