"""Fit a silo's own model: the federation's, adapted to the silo's records. Nothing that is computed here leaves it.

Fits, strengths and scores here have no noise and are NOT private. The federation's weights w₀ are public. The silo's
own weights minimise

    mean of φ over its records + (λ/2)·‖w − w₀‖²,        λ = strength · (mean square of a scaled feature),

in the schema's scaled features: strengths do not depend on the features' scale, and a strength s counts about as much
as s·n records that agree with the federation. At an infinite strength w is w₀. Cross-validation chooses the strength:
every record is in one fold, by its number alone, and is predicted by a fit that did not see it.

Fits minimise a strictly convex function, by Newton's method where the loss has a curvature and by L-BFGS elsewhere,
starting from the next stronger fit: the same records give the same weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads its modules on first use
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol import FloatArray, Loss, Plan
from ringfence.protocol.losses.targets import curvatures_of, residuals_of, split_targets, values_of
from ringfence.protocol.plan import sections
from ringfence.silo.records.records import Records
from ringfence.silo.records.storage import Unpicklable

STRENGTHS = (math.inf, *(10.0 ** (half / 2) for half in range(4, -11, -1)))
"""The candidates, strongest first: the federation's model as it is, then 100 to 10⁻⁵."""

FOLDS = 5
FEWEST = 2 * FOLDS
"""The fewest records that can choose a strength."""

_MOST_NEWTON = 400
"""The most weights for Newton's method, which solves a linear system in all of them."""

_NARROW = 0.01
"""Width, as a share of the target's bound, over which a loss with a kink is smoothed."""


@dataclass(frozen=True, eq=False, repr=False)
class OwnRows(Unpicklable):
    """Encoded rows, each with the number of its record (or person) and a weight; a record's weights add up to 1."""

    features: FloatArray
    targets: FloatArray
    of_row: NDArray[np.int64]
    counts: FloatArray

    @classmethod
    def one_each(cls, features: FloatArray, targets: FloatArray) -> "OwnRows":
        """Return rows that are a record each, with weight 1."""
        return cls(features, targets, np.arange(len(targets)), np.ones(len(targets)))

    @classmethod
    def of(cls, records: Records, plan: Plan) -> "OwnRows":
        """Return a silo's records, weighted as in the plan."""
        of_row = np.arange(len(records.targets)) if records.persons is None else records.persons.of_row
        return cls(records.block(), records.targets, of_row, records.shares(plan, np.ones(len(records))))

    def __len__(self) -> int:
        """Return the number of records, or persons, of a silo's own fit."""
        return int(self.of_row[-1]) + 1

    def __repr__(self) -> str:
        """Show how many rows there are, and none of their values."""
        return f"<{len(self.targets)} rows, values hidden>"

    def where(self, chosen: NDArray[np.bool_]) -> "OwnRows":
        """Return the chosen rows of a silo's own fit; they keep their records' numbers."""
        return OwnRows(self.features[chosen], self.targets[chosen], self.of_row[chosen], self.counts[chosen])

    def by_record(self, values: FloatArray) -> FloatArray:
        """Return each record's weighted mean over its rows; 0 for a record without rows."""
        sums = np.bincount(self.of_row, self.counts * values, minlength=len(self))
        return sums / np.maximum(np.bincount(self.of_row, self.counts, minlength=len(self)), np.finfo(float).tiny)


@dataclass(frozen=True, repr=False)
class TunedFit:
    """Weights at the best strength, and the cross-validated mean loss at each of STRENGTHS.

    `scores` are the rows' scores at the best strength, each from the fit that did not see the row.
    """

    weights: FloatArray
    strength: float
    losses: FloatArray
    scores: FloatArray


ALONE, FEDERATION, OWN = "own records alone", "the federation's model", "the silo's own model"
"""The three models that are compared."""


def tune(loss: Loss, rows: OwnRows, start: FloatArray) -> TunedFit:
    """Fit the weights at the strength with the least cross-validated loss; of equals, the strongest."""
    fold = _folds(rows, np.ones(len(rows.targets), dtype=bool))
    scores = np.zeros((len(STRENGTHS), len(rows.targets), loss.outputs))
    for number in range(FOLDS):
        left_out = fold == number
        for place, weights in enumerate(_weights_by_strength(loss, rows.where(~left_out), start)):
            scores[place, left_out] = _scores(loss, rows.features[left_out], weights)
    losses = np.array([np.average(values_of(loss, found, rows.targets), weights=rows.counts) for found in scores])
    best = int(np.argmin(losses))
    return TunedFit(_weights_by_strength(loss, rows, start, best + 1)[best], STRENGTHS[best], losses, scores[best])


def predict_unseen(
    loss: Loss, rows: OwnRows, federation: FloatArray, measured: NDArray[np.bool_]
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Predict the measured rows, fold by fold, with fits to all other rows.

    Returns two mappings from the three compared models: scores, with a row for each measured row, and losses, with a
    number for each measured record.

    The fit to the silo's records alone is pulled towards 0, where every prediction is the middle of the bounds.
    """
    fold = _folds(rows, measured)
    scores = {name: np.zeros((len(rows.targets), loss.outputs)) for name in (ALONE, FEDERATION, OWN)}
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
    scores = {name: found[measured] for name, found in scores.items()}
    return scores, {
        name: unseen.by_record(values_of(loss, found, unseen.targets))[numbers] for name, found in scores.items()
    }


def require_enough(rows: OwnRows) -> None:
    """Raise RecordsError if a silo has too few records to choose a strength for its own fit."""
    if (number := len(np.unique(rows.of_row))) < FEWEST:
        raise RecordsError(
            f"How strongly a model is pulled is chosen by cross-validation, which needs {FEWEST} records or persons, "
            f"but there are {number}: use the federation's model as it is, or wait for more records."
        )


def require_comparable(rows: OwnRows, measured: NDArray[np.bool_]) -> None:
    """Raise RecordsError if there are too few records to compare models on, or to fit them."""
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


def _folds(rows: OwnRows, measured: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the fold of each measured row, by its record's rank among the measured ones; −1 for other rows."""
    numbers, places = np.unique(rows.of_row[measured], return_inverse=True)
    fold = np.full(len(rows.targets), -1)
    fold[measured] = sections.folds(len(numbers), FOLDS)[places]
    return fold


def _weights_by_strength(loss: Loss, rows: OwnRows, start: FloatArray, count: int = len(STRENGTHS)) -> list[FloatArray]:
    """Return the weights at each of the first `count` strengths."""
    found = [start]
    for strength in STRENGTHS[1:count]:
        found.append(_fit(loss, rows, start, strength, found[-1]))
    return found


def _fit(loss: Loss, rows: OwnRows, center: FloatArray, strength: float, begin: FloatArray) -> FloatArray:
    """Fit a silo's own weights at one strength of the pull towards `center`."""
    total, smooth = rows.counts.sum(), _without_kinks(loss, rows)
    pull = strength * max(float(rows.counts @ np.mean(rows.features**2, axis=1) / total), np.finfo(float).tiny)

    def objective(moved: FloatArray) -> tuple[float, FloatArray]:
        """Return the own fit's loss with its pull towards the federation's weights, and its gradient."""
        scores = _scores(loss, rows.features, center + moved)
        value = rows.counts @ values_of(smooth, scores, rows.targets) / total + 0.5 * pull * np.sum(moved * moved)
        residuals = rows.counts[:, None] * residuals_of(smooth, scores, rows.targets)
        slope = loss.weight_gradients(rows.features.T @ loss.residual_columns(residuals)).reshape(-1) / total
        return float(value), slope + pull * moved

    begin = begin - center
    if smooth.is_curved and len(begin) <= _MOST_NEWTON:

        def hessian(moved: FloatArray) -> FloatArray:
            """Return the Hessian of the own fit's loss with its pull."""
            scores = _scores(loss, rows.features, center + moved)
            weights = rows.counts[:, None] * curvatures_of(smooth, scores, rows.targets)
            curved: FloatArray = rows.features.T @ (rows.features * weights) / total + pull * np.eye(len(moved))
            return curved

        return center + _newton(objective, hessian, begin)
    options: Any = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-11, "gtol": 1e-8}
    return center + scipy.optimize.minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x


def _scores(loss: Loss, features: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the linear scores of the silo's rows."""
    return features @ loss.matrix(weights, features.shape[1])


def _newton(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    hessian: Callable[[FloatArray], FloatArray],
    at: FloatArray,
) -> FloatArray:
    """Minimise the loss of a silo's own fit, smooth and strictly convex, by Newton's method with backtracking."""
    for _ in range(100):
        value, slope = objective(at)
        step = np.linalg.solve(hessian(at), slope)
        gain = float(slope @ step)
        if gain <= 1e-14 * (1.0 + abs(value)):
            break
        length = 1.0
        while objective(at - length * step)[0] > value - 0.25 * length * gain and length > 1e-9:
            length /= 2
        at = at - length * step
    return at


def _without_kinks(loss: Loss, rows: OwnRows) -> Loss:
    """Return the loss of a silo's own fit, with kinks smoothed over a narrow width."""
    if not loss.has_kinks:
        return loss
    width = _NARROW * max(1.0, float(np.max(np.abs(split_targets(rows.targets).numbers))))
    return loss.smoothed(1.0, 1.0 / width)
