"""A silo's own model: the federation's, fitted on to the silo's own records. Nothing that is computed here leaves.

What never leaves needs no noise: fits, strengths and scores here are exact, and NOT private. The federation's weights
w₀ are public. The silo's own are the least of

    mean of φ over its records + (λ/2)·‖w − w₀‖²,        λ = strength · (mean square of a scaled feature),

in the schema's scaled features: so strengths are free of the features' scale, and a strength s counts about as much as
s·n records that agree with the federation. At an infinite strength w is w₀. Cross-validation chooses the strength:
every record is in one fold, by its number alone, and is predicted by a fit that did not see it.

Fits are of a strictly convex function, by Newton's method where the loss tells its curvature and L-BFGS elsewhere, from
the next stronger one: the same records give the same weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ringfence.errors import RecordsError
from ringfence.protocol import sections
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import Loss
from ringfence.protocol.losses.told import curvatures_of, residuals_of, told, values_of
from ringfence.protocol.plan import Plan
from ringfence.silo.records import Records
from ringfence.silo.unpicklable import Unpicklable

STRENGTHS = (math.inf, *(10.0 ** (half / 2) for half in range(4, -11, -1)))
"""What cross-validation chooses from, the strongest pull first: the federation's model as it is, then 100 to 10⁻⁵."""

FOLDS = 5
FEWEST = 2 * FOLDS
"""Fewer records do not choose a strength."""

_MOST_NEWTON = 400
"""The most weights that Newton's method is for: it solves for all of them at once."""

_NARROW = 0.01
"""Over what part of the target's bound a loss that still has its kink is smoothed, so that gradients find the least."""


class Rows(Unpicklable):
    """Encoded rows, the record (or person) that each is of, and what each row counts for; a record's add up to 1."""

    __slots__ = ("counts", "features", "of_row", "targets")

    def __init__(
        self,
        features: FloatArray,
        targets: FloatArray,
        of_row: NDArray[np.int64] | None = None,
        counts: FloatArray | None = None,
    ) -> None:
        self.features, self.targets = features, targets
        self.of_row = np.arange(len(targets)) if of_row is None else of_row
        self.counts = np.ones(len(targets)) if counts is None else counts

    @classmethod
    def of(cls, records: Records, plan: Plan) -> "Rows":
        """Return a silo's records as the plan counts them."""
        of_row = None if records.persons is None else records.persons.of_row
        return cls(records.block(), records.targets, of_row, records.shares(plan, np.ones(len(records))))

    def __len__(self) -> int:
        return int(self.of_row[-1]) + 1

    def __repr__(self) -> str:
        return f"<{len(self.targets)} rows, values hidden>"

    def where(self, chosen: NDArray[np.bool_]) -> "Rows":
        """Return the rows that are chosen; they keep their records' numbers."""
        return Rows(self.features[chosen], self.targets[chosen], self.of_row[chosen], self.counts[chosen])

    def by_record(self, values: FloatArray) -> FloatArray:
        """Return each record's mean, by what its rows count for; a record without rows has none, and gets 0."""
        sums = np.bincount(self.of_row, self.counts * values, minlength=len(self))
        return sums / np.maximum(np.bincount(self.of_row, self.counts, minlength=len(self)), np.finfo(float).tiny)


@dataclass(frozen=True, repr=False)
class Tuned:
    """Weights at the strength that predicts best, and the mean loss in cross-validation at every one of STRENGTHS.

    `scores` are every row's at that strength, by the fit that did not see it.
    """

    weights: FloatArray
    strength: float
    losses: FloatArray
    scores: FloatArray


@dataclass(frozen=True, repr=False)
class Predicted:
    """Scores of records by fits that did not see them: of the silo's records alone, the federation's, and its own.

    `measured` tells which rows these are; `scores` has a matrix for each, and `losses` one number per record.
    """

    measured: NDArray[np.bool_]
    scores: dict[str, FloatArray]
    losses: dict[str, FloatArray]


ALONE, FEDERATION, OWN = "own records alone", "the federation's model", "the silo's own model"
"""What is compared."""


def tune(loss: Loss, rows: Rows, start: FloatArray) -> Tuned:
    """Fit the weights, towards the public ones, at the strength that cross-validation finds best: of equals, the
    strongest."""
    require_enough(rows)
    fold = _folds(rows, np.ones(len(rows.targets), dtype=bool))
    scores = np.zeros((len(STRENGTHS), len(rows.targets), loss.outputs))
    for number in range(FOLDS):
        left_out = fold == number
        for place, weights in enumerate(_path(loss, rows.where(~left_out), start)):
            scores[place, left_out] = _scores(loss, rows.features[left_out], weights)
    losses = np.array([np.average(values_of(loss, found, rows.targets), weights=rows.counts) for found in scores])
    best = int(np.argmin(losses))
    return Tuned(_path(loss, rows, start, best + 1)[best], STRENGTHS[best], losses, scores[best])


def predict_unseen(
    loss: Loss, rows: Rows, federation: FloatArray, measured: NDArray[np.bool_] | None = None
) -> Predicted:
    """Predict the measured rows (all of them, by default), fold by fold, with fits of all other rows.

    Of the silo's records alone, weights are pulled towards 0, where every prediction is the middle of the bounds.
    """
    measured = np.ones(len(rows.targets), dtype=bool) if measured is None else measured
    require_comparable(rows, measured)
    fold = _folds(rows, measured)
    shape = (len(rows.targets), loss.outputs)
    scores = {name: np.zeros(shape) for name in (ALONE, FEDERATION, OWN)}
    for number in range(FOLDS):
        others, left_out = rows.where(fold != number), fold == number
        for name, weights in (
            (ALONE, tune(loss, others, np.zeros_like(federation)).weights),
            (FEDERATION, federation),
            (OWN, tune(loss, others, federation).weights),
        ):
            scores[name][left_out] = _scores(loss, rows.features[left_out], weights)
    unseen = rows.where(measured)
    numbers = np.unique(unseen.of_row)
    losses = {
        name: unseen.by_record(values_of(loss, found[measured], unseen.targets))[numbers]
        for name, found in scores.items()
    }
    return Predicted(measured, {name: found[measured] for name, found in scores.items()}, losses)


def require_enough(rows: Rows) -> None:
    """Refuse rows of so few records that they cannot choose a strength."""
    if (number := len(np.unique(rows.of_row))) < FEWEST:
        raise RecordsError(
            f"How strongly a model is pulled is chosen by cross-validation, which needs {FEWEST} records or persons, "
            f"but there are {number}: use the federation's model as it is, or wait for more records."
        )


def require_comparable(rows: Rows, measured: NDArray[np.bool_]) -> None:
    """Refuse to compare models on so few records that they tell nothing, or where too few are left to fit."""
    if (number := len(np.unique(rows.of_row[measured]))) < FEWEST:
        raise RecordsError(
            f"Comparing models needs at least {FEWEST} held-out records or persons, but there are {number}: train "
            "with a larger --held-out, or wait for more records."
        )
    if (number := len(np.unique(rows.of_row))) < 2 * FEWEST:
        raise RecordsError(
            f"Comparing models by nested cross-validation needs {2 * FEWEST} records or persons, but there are "
            f"{number}: wait for more records."
        )


def _folds(rows: Rows, measured: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the fold of each measured row, by its record's place among those that are measured; −1 of others."""
    numbers, places = np.unique(rows.of_row[measured], return_inverse=True)
    fold = np.full(len(rows.targets), -1)
    fold[measured] = sections.folds(len(numbers), FOLDS)[places]
    return fold


def _path(loss: Loss, rows: Rows, start: FloatArray, count: int = len(STRENGTHS)) -> list[FloatArray]:
    """Return the weights of the first that many strengths."""
    found = [start]
    for strength in STRENGTHS[1:count]:
        found.append(_fit(loss, rows, start, strength, found[-1]))
    return found


def _fit(loss: Loss, rows: Rows, center: FloatArray, strength: float, begin: FloatArray) -> FloatArray:
    total, smooth = rows.counts.sum(), _without_kinks(loss, rows)
    pull = strength * max(float(rows.counts @ np.mean(rows.features**2, axis=1) / total), np.finfo(float).tiny)

    def objective(moved: FloatArray) -> tuple[float, FloatArray]:
        scores = _scores(loss, rows.features, center + moved)
        value = rows.counts @ values_of(smooth, scores, rows.targets) / total + 0.5 * pull * np.sum(moved * moved)
        residuals = rows.counts[:, None] * residuals_of(smooth, scores, rows.targets)
        slope = loss.collected(rows.features.T @ loss.spread(residuals)).reshape(-1) / total
        return float(value), slope + pull * moved

    begin = begin - center
    if smooth.is_curved and len(begin) <= _MOST_NEWTON:

        def bend(moved: FloatArray) -> FloatArray:
            scores = _scores(loss, rows.features, center + moved)
            weights = rows.counts[:, None] * curvatures_of(smooth, scores, rows.targets)
            curved: FloatArray = rows.features.T @ (rows.features * weights) / total + pull * np.eye(len(moved))
            return curved

        return center + _newton(objective, bend, begin)
    options: Any = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-11, "gtol": 1e-8}
    fitted: FloatArray = center + minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x
    return fitted


def _scores(loss: Loss, features: FloatArray, weights: FloatArray) -> FloatArray:
    result: FloatArray = features @ loss.matrix(weights, features.shape[1])
    return result


def _newton(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    bend: Callable[[FloatArray], FloatArray],
    at: FloatArray,
) -> FloatArray:
    """Return where a smooth, strictly convex function is least; a step is halved until it descends as it should."""
    for _ in range(100):
        value, slope = objective(at)
        step = np.linalg.solve(bend(at), slope)
        gain = float(slope @ step)
        if gain <= 1e-14 * (1.0 + abs(value)):
            break
        length = 1.0
        while objective(at - length * step)[0] > value - 0.25 * length * gain and length > 1e-9:
            length /= 2
        at = at - length * step
    return at


def _without_kinks(loss: Loss, rows: Rows) -> Loss:
    if not loss.has_kinks:
        return loss
    width = _NARROW * max(1.0, float(np.max(np.abs(told(rows.targets).numbers))))
    return loss.smoothed(1.0, 1.0 / width)
