"""Several numbers: the figures of each target, by its share of the sensitivity, and the mean of their R²."""

from dataclasses import dataclass

import numpy as np

from ringfence.metrics import numbers
from ringfence.metrics.estimates import Found
from ringfence.metrics.intervals import NOISE, Figure
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import Domain
from ringfence.protocol.losses import Loss, Squared
from ringfence.protocol.questions import PersonRule, Unit
from ringfence.protocol.questions.base import Facts
from ringfence.protocol.questions.evaluation import number_blocks, of_target
from ringfence.protocol.schema import Schema

MEAN = "R²"
"""The mean over the targets, as scikit-learn's score is."""


@dataclass(frozen=True)
class OneTarget:
    """The facts of a plan as far as they are about one of its targets: its place among them, and what `Facts` has."""

    place: int
    name: str
    data: Schema
    loss: Loss
    domain: Domain
    dimension: int
    unit: Unit
    person_rule: PersonRule | None
    rows_per_person: int | None


def _each(facts: Facts) -> list[OneTarget]:
    rest = (facts.domain, facts.dimension, facts.unit, facts.person_rule, facts.rows_per_person)
    return [
        OneTarget(place, name, facts.data.of_one(name), Squared(), *rest)
        for place, name in enumerate(facts.data.targets)
    ]


def _of_one(found: Found, target: OneTarget) -> Found:
    """Return what was found of one target."""
    names = {of_target(block.name, target.place): block.name for block in number_blocks()}
    rounds = [{names[name]: means for name, means in told.items() if name in names} for told in found.rounds]
    return Found(target, found.records, rounds)


def figures(found: Found) -> list[Figure]:
    """Return every target's figures, in its units, and the mean of what is explained."""
    shown, explained = [], []
    for target in _each(found.facts):
        own = numbers.figures(_of_one(found, target))
        explained += [figure for figure in own if figure.name == MEAN]
        shown += [figure.model_copy(update={"name": f"{target.name}: {figure.name}"}) for figure in own]
    return [*shown, *_mean(explained)]


def _mean(explained: list[Figure]) -> list[Figure]:
    """Return the mean of R², between the means of the ends.

    The deviation of a mean is at most the mean of the deviations, however errors depend on one another: of errors that
    are about normal, as those of the intervals are taken to be, this covers as often.
    """
    if not explained:
        return []
    ends = [[getattr(figure, end) for figure in explained] for end in ("value", "low", "high")]
    if any(None in each for each in ends):
        return [Figure(name=MEAN, value=None, low=None, high=None, unknown=NOISE)]
    value, low, high = (float(np.mean(each)) for each in ends)
    return [Figure(name=MEAN, value=value, low=low, high=high, note="the mean over the targets")]


def ruler(facts: Facts, largest: float, found: Found | None) -> dict[str, FloatArray]:
    """Return every target's ruler; the whole loss is cut where all their losses are."""
    rulers, cut = dict[str, FloatArray](), np.zeros(1)
    for target in _each(facts):
        own = numbers.ruler(target, largest, None if found is None else _of_one(found, target))
        cut = cut + own.pop("loss")
        rulers |= {of_target(name, target.place): marks for name, marks in own.items()}
    return {**rulers, "loss": cut}


def shares(facts: Facts, *, last: bool) -> dict[str, float]:
    """Return how much of the sensitivity each block gets: every target alike."""
    chosen: dict[str, float] = {}
    for target in _each(facts):
        own = numbers.shares(target, last=last)
        together = chosen.get("paired", 0.0) + own.pop("paired", 0.0)
        chosen |= {of_target(name, target.place): share for name, share in own.items()}
        chosen |= {"paired": together} if together else {}
    return chosen
