"""Simulated records that fit a schema: no record of any silo is read.

Numbers spread around a centre of their own within their bounds, some categories are more frequent than others, and all
columns have something in common. A linear function of the features, of random direction and without surveyed curves,
explains part of the target.
The constants that the planner does not share were chosen on the league's tables, and `SCALED` on insurance, so that a
model that is expected to beat guessing does; `ringfence reproduce looking` shows how often, also on other tables.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads its modules on first use
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from ringfence.protocol import FloatArray, LogLink, Plan
from ringfence.protocol.losses.targets import shifted, split_targets, values_of
from ringfence.protocol.schema.columns.base import ReadColumn, Reading
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.encoding import features_of, offsets_of
from ringfence.server.algorithms.survey import DEVIATIONS, EXPLAINED, SCORE_VARIANCE
from ringfence.silo.records.records import Records

SPREAD = 0.25
"""Median standard deviation of a number, in half the width of its bounds; its logarithm has the deviation `VARIED`."""

VARIED = 0.5

OFF_CENTRE = 0.5
"""The farthest that a number's mean lies from the middle of its bounds, in half their width."""

SCALED = 0.75
"""Standard deviation of a number whose schema states a `scale`, in that scale."""

COMMON = 0.6
"""Share of the variance that columns have in common."""

EMPTY = 0.05
"""Share of empty cells where a schema allows them."""

ODDS = 1.5
"""Log odds of the more frequent of two classes for a typical record: the other has about a fifth of all records."""

CLASS_VARIANCE = 25.0
"""Variance of the scores of several classes, which tables separate better than two."""

LOG_SPREAD = 0.5
"""Standard deviation of the logarithm of a target with a log link."""

_SAMPLE = 1000
"""Records that standardise the scores."""

_UNKNOWN_SIZE = 100.0
"""Typical size of a number whose bounds are not known."""


@dataclass(frozen=True)
class _Law:
    """How simulated cells of a column are distributed: centre and spread of a number, or shares of categories.

    `sign` is that of the correlation with what all columns have in common.
    """

    sign: float
    centre: float = 0.0
    spread: float = 0.0
    shares: FloatArray | None = None


class Population:
    """A simulated population that fits a plan's schema, from which records are drawn."""

    def __init__(self, plan: Plan, random: np.random.Generator, weights: FloatArray | None = None) -> None:
        """Draw how columns are distributed, and how the target depends on the features: as in a model with `weights`,
        for one label or number, if they are given.
        """
        self._plan, self._random, self._data = plan, random, plan.data
        self._straight = plan.data.without_open_curves()
        self._kind = None if self._data.target is None else plan.loss.target_kind
        self._laws = {name: _law(column, random) for name, column in self._data.used.items()}
        features = self._features(_SAMPLE)[1]
        self._centre = features.mean(axis=0)
        self._slopes = random.standard_normal((self._straight.width, plan.loss.outputs if self._kind else 0))
        self._slopes /= np.maximum(((features - self._centre) @ self._slopes).std(axis=0), 1e-12)
        self._odds = ODDS * float(random.choice([-1.0, 1.0]))
        follows = self._kind in ("label", "number") and not isinstance(plan.loss, LogLink)
        self._model = None if weights is None or not follows else plan.loss.matrix(weights, self._data.width)

    def records(self, count: int) -> Records:
        """Draw records, or persons with a row each."""
        readings, features = self._features(count)
        self._add_targets(readings, self._scores(features))
        of_row = None if self._data.person is None else np.arange(count)
        return Records.of_cells(self._data, readings, of_row=of_row)

    def gain(self, weights: FloatArray, test: Records) -> float:
        """Return by which share of guessing's error the model's error is smaller on test records; negative if larger.

        Errors are shares of wrong classes, root mean square errors of numbers, and the mean loss of others. Guessing
        has the largest class, or the best constant; several classes are equally frequent.
        """
        loss, targets = self._plan.loss, test.targets
        scores, numbers = test.features @ loss.matrix(weights, self._data.width), split_targets(targets).numbers
        if self._kind == "label":
            positive = float(np.mean(numbers > 0))
            wrong = (shifted(scores, targets)[:, 0] > 0) != (numbers > 0)
            return 1 - float(np.mean(wrong)) / max(min(positive, 1 - positive), 1e-9)
        if self._kind == "class":
            return 1 - float(np.mean(np.argmax(scores, axis=1) != numbers)) / (1 - 1 / loss.categories)
        if loss.is_squared_error and targets.ndim == 1:
            return 1 - math.sqrt(float(np.mean((scores[:, 0] - targets) ** 2)) / max(float(targets.var()), 1e-30))

        def mean_loss(of: FloatArray) -> float:
            """Return the mean loss of simulated test records with these scores, or with a constant for each output."""
            return float(np.mean(values_of(loss, np.broadcast_to(of, scores.shape), targets)))

        guess = float(scipy.optimize.minimize(mean_loss, np.zeros(loss.outputs)).fun)
        return (guess - mean_loss(scores)) / max(abs(guess), 1e-9)

    def _scores(self, features: FloatArray) -> FloatArray:
        """Return the part of the simulated targets that features explain: with variance 1, or a model's scores."""
        return np.asarray((features - self._centre) @ self._slopes if self._model is None else features @ self._model)

    def _features(self, count: int) -> tuple[dict[str, Reading], FloatArray]:
        """Draw the cells of all columns, and return the features that they make."""
        common = self._random.standard_normal(count)
        readings = {
            name: _drawn(column, self._laws[name], common, self._random) for name, column in self._data.used.items()
        }
        return readings, features_of(self._straight, readings)

    def _add_targets(self, readings: dict[str, Reading], scores: FloatArray) -> None:
        """Replace the simulated cells of targets by ones that depend on the scores."""
        data, random, count, offsets = self._data, self._random, len(scores), offsets_of(self._data, readings)
        if self._kind == "label":
            drawn = math.sqrt(SCORE_VARIANCE) * scores[:, 0] + self._odds
            chance = expit((drawn if self._model is None else scores[:, 0]) + offsets)
            readings[str(data.target)] = Reading((random.random(count) < chance).astype(np.int64), None)
        elif self._kind == "class":
            luck = math.sqrt(CLASS_VARIANCE) * scores + random.gumbel(size=scores.shape)
            readings[str(data.target)] = Reading(np.argmax(luck, axis=1), None)
        elif self._model is not None:
            errors = math.sqrt(1 / EXPLAINED - 1) * scores.std() * random.standard_normal(count)
            values = np.clip(scores[:, 0] + errors + offsets, *_ends(data.target_column))
            readings[str(data.target)] = Reading(values, None)
        elif self._kind in ("number", "numbers"):
            for place, name in enumerate(data.targets):
                errors = math.sqrt(1 - EXPLAINED) * random.standard_normal(count)
                latent = errors + math.sqrt(EXPLAINED) * scores[:, place]
                readings[name] = Reading(self._numbers(name, latent, offsets), None)
        elif self._kind == "time" and data.event is not None:
            (low, high), rates = _ends(data.target_column), np.exp(scores[:, 0] + offsets)
            times = low + (high - low) / 2 * random.exponential(size=count) / rates
            readings[str(data.target)] = Reading(np.minimum(times, high), None)
            readings[data.event] = Reading((times < high).astype(np.int64), None)

    def _numbers(self, name: str, latent: FloatArray, offsets: FloatArray) -> FloatArray:
        """Return simulated numeric targets from standard normal ones; with a log link they are log-normal."""
        law, (low, high) = self._laws[name], _ends(self._data.used[name])
        if isinstance(self._plan.loss, LogLink):
            return np.clip(low + (high - low) / 4 * np.exp(LOG_SPREAD * latent + offsets), low, high)
        return np.clip(law.centre + law.spread * latent + offsets, low, high)


def score_spread(plan: Plan) -> float:
    """Return the assumed standard deviation of scores: coefficients that are less precise say nothing."""
    if plan.loss.target_kind == "number" and not isinstance(plan.loss, LogLink):
        return math.sqrt(EXPLAINED) * plan.data.target_bound / DEVIATIONS
    return LOG_SPREAD if isinstance(plan.loss, LogLink) else math.sqrt(SCORE_VARIANCE)


def _law(column: ReadColumn, random: np.random.Generator) -> _Law:
    """Draw how the simulated cells of a column are distributed."""
    sign = float(random.choice([-1.0, 1.0]))
    if column.classes:
        shares = 1.0 / np.arange(1, len(column.classes) + 1)
        return _Law(sign, shares=random.permutation(shares / shares.sum()))
    if not isinstance(column, Scaled):
        return _Law(sign)
    if column.is_unbounded:
        return _Law(sign, 0.0, _UNKNOWN_SIZE / column.unit)
    low, high = _ends(column)
    half = (high - low) / 2
    centre = 0.0 if column.center is not None else low + half * (1 + random.uniform(-OFF_CENTRE, OFF_CENTRE))
    spread = half * SPREAD * math.exp(VARIED * random.standard_normal())
    return _Law(sign, centre, spread if column.scale is None else SCALED)


def _drawn(column: ReadColumn, law: _Law, common: FloatArray, random: np.random.Generator) -> Reading:
    """Draw simulated cells of a column: scaled numbers, places of categories, or vectors."""
    count = len(common)
    empty = random.random(count) < EMPTY if column.may_be_empty else None
    latent = law.sign * math.sqrt(COMMON) * common + math.sqrt(1 - COMMON) * random.standard_normal(count)
    if law.shares is not None:
        values: NDArray[Any] = np.searchsorted(np.cumsum(law.shares)[:-1], ndtr(latent))
        absent = -1.0 if column.stand_in is None else column.stand_in
    elif isinstance(column, Scaled):
        values = _within(column, law, latent)
        absent = 0.0 if column.stand_in is None else (column.stand_in - column.offset) / column.unit
    else:
        values = random.standard_normal((count, len(column.scaling) - bool(column.indicator)))
        values *= column.bound / np.linalg.norm(values, axis=1, keepdims=True)
        absent = 0.0
    if empty is not None:
        values[empty] = absent
    return Reading(values, empty)


def _within(column: ReadColumn, law: _Law, latent: FloatArray) -> FloatArray:
    """Return simulated numbers between a column's bounds, scaled, from standard normal ones."""
    return np.clip(law.centre + law.spread * latent, *_ends(column))


def _ends(column: ReadColumn) -> tuple[float, float]:
    """Return the bounds of a number, scaled."""
    assert isinstance(column, Scaled)  # noqa: S101 (every number is)
    return (column.low - column.offset) / column.unit, (column.high - column.offset) / column.unit
