"""Comparison of candidate models: where to clip their differences, the losses with intervals, and the choice.

`Choice` is the document that a model carries: the candidates, their settings, and how far each is from the best.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from ringfence.estimates.answers import BlockMeans, NoisyAnswer, leaf_shares_of_all, log_quantiles
from ringfence.estimates.intervals import COVERAGE, Interval, bonferroni_critical_value
from ringfence.estimates.metrics import Metric, bounded_metric, clipping_note
from ringfence.protocol import Comparison, EmbeddedPlan, Facts, FloatArray, Public, Unit
from ringfence.protocol.arrays import TINY
from ringfence.protocol.queries.comparison import SIZE_LEVELS
from ringfence.protocol.queries.evaluation import CURVE

ABOVE = "loss above the best candidate's"


def difference_edges(facts: Facts, models: FloatArray) -> FloatArray:
    """Return the first bin edges for sizes of loss differences: powers of √2, up to the largest possible size.

    A record's losses under two models differ by L·|w − w'| at most, with L over weights as large as these.
    """
    reach = float(np.max(np.linalg.norm(models, axis=1)))
    lipschitz = facts.loss.constants_on(facts.data, reach).lipschitz
    largest = lipschitz * float(np.linalg.norm(models - models.mean(axis=0)))
    return np.asarray(max(largest, TINY) * 2.0 ** (-np.arange(2**SIZE_LEVELS - 2, -1, -1) / 2))


def difference_clip(query: Comparison, edges: FloatArray, sizes: NoisyAnswer, sigma: float) -> float:
    """Return where to clip loss differences, from noisy counts of their sizes between the edges.

    Each record beyond the clip loses about the clip's length, and the noise of the next query, `sigma` per number, is
    proportional to the clip. So the share beyond may be as large as the noise, or as what the counts cannot resolve;
    never more than half.
    """
    tree = BlockMeans(sizes.vector / query.scale, sizes.sigma / query.scale, edges)
    cells = leaf_shares_of_all(sizes.records, tree)
    upper_half = (np.arange(2**SIZE_LEVELS) >= 2 ** (SIZE_LEVELS - 1)) * 1.0
    beyond = max(2 * sigma * math.sqrt(query.models - 1), math.sqrt(cells.noise_variance(upper_half)))
    return float(log_quantiles(edges, cells.shares, np.array([1 - min(beyond, 0.5)]))[0])


def _pairwise_critical_value(models: int) -> float:
    """Return the critical value for all pairs of compared models together."""
    return bonferroni_critical_value(models * (models - 1) / 2)


def hidden_difference(models: int, sigma: float) -> float:
    """Return the difference of two models' losses that noise alone may hide, relative to the clip."""
    return _pairwise_critical_value(models) * math.sqrt(2) * sigma / Comparison(models=models, part="losses").scale


@dataclass(frozen=True)
class ComparedLosses:
    """The models' mean losses up to a common constant, clipped, with the noise in each, and the mean square of a
    record's differences."""

    records: int
    clip: float
    losses: FloatArray
    noise: float
    square: float

    @classmethod
    def of(cls, query: Comparison, clip: float, answer: NoisyAnswer) -> "ComparedLosses":
        """Read an answer to a comparison's query for losses."""
        numbers = answer.vector / query.scale
        noise, square = answer.sigma / query.scale, max(float(numbers[-1]) / CURVE, 0.0)
        return cls(answer.records, clip, clip * numbers[:-1], clip * noise, clip**2 * square)

    @property
    def best(self) -> int:
        """The number of the compared model with the least loss."""
        return int(np.argmin(self.losses))

    def above_best(self, model: int) -> Metric:
        """Return how far a compared model's loss is above the best one's.

        With probability `COVERAGE` the intervals of all pairs of models cover (Bonferroni), so those of pairs with the
        best do, although the same records chose it. The variance of a difference over records is at most twice the
        mean square of all differences; this bound may make an interval too wide.
        """
        z = _pairwise_critical_value(len(self.losses))
        reach = z * math.sqrt(2 * (self.noise**2 + self.square / self.records)) if model != self.best else 0.0
        value, most = float(self.losses[model] - self.losses[self.best]), math.sqrt(2) * self.clip
        interval = Interval(value - reach, value + reach)
        metric = bounded_metric(ABOVE, value, interval, least=-most, most=most, precise="any")
        return metric.noted(clipping_note(self.clip, "vector of differences"))


Setting: TypeAlias = bool | int | float | str | None
"""An option of a candidate; None stands for the planner's choice."""


def settings_text(settings: Mapping[str, Setting]) -> str:
    """Write a candidate as the command line would name it."""
    return ", ".join(f"{name}={_setting_text(value)}" for name, value in settings.items())


def _setting_text(value: Setting) -> str:
    """Write one setting of a candidate as the command line would."""
    return "auto" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Candidate(Public):
    """One candidate: its settings, the digest of the plan that trained it, and its loss above the best one's."""

    settings: Mapping[str, Setting]
    plan: str
    above: Metric

    def __str__(self) -> str:
        """Return the candidate's settings as the command line would name them."""
        return settings_text(self.settings)


class Choice(Public):
    """The choice among several candidates.

    `best` is the number of the one that the model comes from. They were compared on so many held-out `records`
    (persons, where they are the unit). All intervals cover together with probability `coverage`, although the same
    records chose. `plans` are all other plans of the choice, the comparison last; each is part of its cost.
    """

    kind: Literal["ringfence-choice"] = "ringfence-choice"
    format: Literal[1] = 1
    unit: Unit
    coverage: float = COVERAGE
    records: int
    best: int = Field(ge=0)
    candidates: tuple[Candidate, ...] = Field(min_length=2)
    plans: tuple[EmbeddedPlan, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _has_a_best(self) -> Self:
        """Refuse a choice whose best candidate is not among its candidates."""
        if self.best >= len(self.candidates):
            raise ValueError("the best candidate is not among them")
        return self

    @property
    def equals(self) -> list[Candidate]:
        """The candidates, other than the best, that cannot be distinguished from it."""
        return [
            one
            for number, one in enumerate(self.candidates)
            if number != self.best and (one.above.low is None or one.above.low <= 0)
        ]

    def sentences(self) -> list[str]:
        """Return which candidate was chosen, how sure that is, and what the intervals allow for."""
        best, equals, others = self.candidates[self.best], len(self.equals), len(self.candidates) - 1
        rest = f"{equals} of the {others} others cannot be distinguished from it" if equals else "all others are worse"
        if equals == others:
            rest = "none of the others can be distinguished from it"
        return [
            f"Of {others + 1} candidates, {best} has the least loss on {self.records} held-out {self.unit}s; {rest}.",
            f"All intervals hold together with probability {self.coverage:.0%}, which accounts for the choice.",
        ]
