"""Data sets that differ in one record, and how far that moves a query's exact answer: what sensitivities bound."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from ringfence.protocol import FloatArray, Plan, Query
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

ROUNDING = 1 + 1e-9
"""What double precision may add; the accountant charges for it apart (`accounting.sampling.shift_of`)."""


class Record(NamedTuple):
    """One record: its features and its target, or all values beside them."""

    features: FloatArray
    target: Any


class Setting(NamedTuple):
    """A query, the plan that asks it, where, and the records that do not change."""

    plan: Plan
    query: Query
    argument: FloatArray
    others: list[Record]
    batch: int
    """How many records an answer is the mean over; more may take part, by chance."""

    def answer(self, record: Record, takes_part: bool = True) -> FloatArray:
        """Return the exact answer over the given record and the others."""
        records = records_of(self.plan, [record, *self.others])
        chosen = np.ones(len(records))
        chosen[0] = takes_part
        return compute(self.query, self.plan, self.argument, records, chosen, self.batch)

    def moves(self, one: Record, other: Record) -> float:
        """Return how far the answer moves if the one record is replaced by the other."""
        return float(np.linalg.norm(self.answer(one) - self.answer(other)))

    def limit(self) -> float:
        """Return how far it may move: the query's own claim."""
        return self.query.sensitivity(self.plan, self.batch)


def records_of(plan: Plan, rows: Sequence[Record]) -> Records:
    return Records(plan.data, np.array([row.features for row in rows]), np.array([row.target for row in rows]))


def fifty_records(plan: Plan, random: np.random.Generator) -> Records:
    """Draw ordinary records with targets of every class, or within the bounds."""
    features = random.normal(size=(50, plan.data.width))
    targets = {"number": random.uniform(-1, 1, 50), "label": random.choice([-1.0, 1.0], 50), "class": np.arange(50) % 3}
    return Records(plan.data, features, np.asarray(targets[plan.loss.target_kind], dtype=np.float64))


def targets_of(plan: Plan, random: np.random.Generator) -> float | tuple[float, ...]:
    """Draw a target of the kind that the plan's loss wants, with an offset and a weight if the schema has them."""
    kind, bound = plan.loss.target_kind, plan.data.target_bound
    drawn = {
        "number": [random.uniform(-bound, bound)],
        "numbers": list(random.uniform(-bound, bound, plan.loss.outputs) / np.sqrt(plan.loss.outputs)),
        "time": [random.uniform(-bound, bound), random.choice([0.0, 1.0])],
        "class": [random.integers(plan.loss.categories)],
        "label": [random.choice([-1.0, 1.0])],
    }[kind]
    if not plan.data.has_roles:
        return float(drawn[0])
    offset = random.uniform(-plan.data.offset_bound, plan.data.offset_bound)
    return (*map(float, drawn), offset, random.uniform(0.0, plan.data.weight_bound))


def extreme_targets(plan: Plan) -> list[float | tuple[float, ...]]:
    """Return the targets that lie farthest apart."""
    bound, far, weight = plan.data.target_bound, plan.data.offset_bound, plan.data.weight_bound
    plain = [-bound, 0.0, bound] if plan.loss.target_kind in ("number", "time") else [0.0, 1.0, -1.0]
    if plan.loss.target_kind == "numbers":
        each = bound / np.sqrt(plan.loss.outputs)
        return [(*one, 0.0, weight) for one in itertools.product((-each, 0.0, each), repeat=plan.loss.outputs)]
    if not plan.data.has_roles:
        return [*plain]
    events: list[tuple[float, ...]] = [(0.0,), (1.0,)] if plan.loss.target_kind == "time" else [()]
    return [(one, *event, sign * far, weight) for one in plain for event in events for sign in (-1.0, 1.0)]


def draw_record(plan: Plan, random: np.random.Generator, *, stretch: float = 1.0) -> Record:
    """Draw a record of up to `stretch` times the largest feature norm, often of exactly that length."""
    direction = random.normal(size=plan.data.width) * random.integers(0, 2, plan.data.width)
    length = stretch * plan.data.feature_norm * random.choice([0.0, 1e-3, random.uniform(), 1.0, 1.0])
    norm = float(np.linalg.norm(direction))
    return Record(direction * (length / norm if norm else 0.0), targets_of(plan, random))


def draw_setting(
    plan: Plan, query: Query, random: np.random.Generator, *, records: int, batch: int | None = None
) -> Setting:
    """Draw the records that do not change, some of them longer than the schema allows, and a place in the domain."""
    others = [draw_record(plan, random, stretch=random.choice([0.0, 1.0, 1.0, 10.0])) for _ in range(records - 1)]
    argument = plan.domain.project(random.normal(size=query.argument_length(plan)) * random.choice([0.0, 0.1, 3.0]))
    return Setting(plan, query, argument, others, batch or records)


def corners(plan: Plan) -> list[Record]:
    """Return records at the ends of what the schema allows, and beyond: along one feature or all, either way."""
    axes = np.eye(plan.data.width)
    directions = [axes[0], axes[-1], np.ones(plan.data.width) / np.sqrt(plan.data.width)]
    ends = [length * direction for direction in directions for length in (1.0, -1.0, 100.0, -100.0)]
    return [
        Record(plan.data.feature_norm * end, target)
        for end in [*ends, np.zeros(plan.data.width)]
        for target in extreme_targets(plan)
        if targets_fit(plan, target)
    ]


def targets_fit(plan: Plan, target: float | tuple[float, ...]) -> bool:
    """Tell whether the plan's loss can have such a target."""
    kind, own = plan.loss.target_kind, target[0] if isinstance(target, tuple) else target
    return kind in ("number", "numbers", "time") or (own >= 0 if kind == "class" else own != 0)


def candidates(setting: Setting, random: np.random.Generator, drawn: int = 40) -> list[Record]:
    """Return records of which each may replace each other: corners, and random ones."""
    return corners(setting.plan) + [
        draw_record(setting.plan, random, stretch=random.choice([1.0, 5.0])) for _ in range(drawn)
    ]


def worst(setting: Setting, records: list[Record]) -> tuple[float, Record, Record]:
    """Return how far the answer moves at most if one of these records replaces another, and which two they are."""
    answers = np.array([setting.answer(record) for record in records])
    distances = pdist(answers)
    place = int(np.argmax(distances))
    one, other = (int(side[place]) for side in np.triu_indices(len(records), 1))
    return float(distances[place]), records[one], records[other]


def farthest(setting: Setting, random: np.random.Generator, steps: int = 200) -> float:
    """Search for the worst pair of records that there is, uphill from the worst candidates."""
    best, *pair = worst(setting, candidates(setting, random))
    for step in range(steps):
        size = setting.plan.data.feature_norm * 0.5 * 0.97**step
        tried = [Record(row.features + size * random.normal(size=len(row.features)), row.target) for row in pair]
        moved = setting.moves(*tried)
        if moved > best:
            best, pair = moved, tried
    return best
