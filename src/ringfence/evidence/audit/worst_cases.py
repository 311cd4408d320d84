"""Worst cases of queries that a single canary moves: two records that change the answer most, among others.

A coin decides between the two. Where a server may choose the argument, it chooses the one that shows the canary best.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ringfence.evidence.audit.adversary import Observation, read_difference
from ringfence.protocol import (
    Comparison,
    Evaluation,
    FeatureMeans,
    FeatureMoments,
    FloatArray,
    Plan,
    PreconditionedGradient,
    Query,
    Schema,
    SecondMoments,
    Section,
    Statistics,
    SurvivalCurve,
    parse_schema,
)
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.plan import task
from ringfence.protocol.queries.feature_moments import FeatureMomentsArgument
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.protocol.schema.encoding import features_of, read_cells, target_of
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

CanaryRecords: TypeAlias = Callable[[Plan, FloatArray], Records]
"""The silo's records for given coins."""


def canary_pair(
    heads: tuple[float, float, float], tails: tuple[float, float, float], section: Section | None = None
) -> CanaryRecords:
    """Return a worst case of one of two records, each two features and a target, among zeros: the section's first."""

    def records(plan: Plan, coins: FloatArray) -> Records:
        """Return the worst case's records: the canary that the coin chose, among zeros."""
        count = plan.silos[0].records
        rows = np.zeros((count, 3))
        rows[sections.members(section, count, plan.held_out)[0]] = heads if coins[0] > 0 else tails
        return Records(plan.data, rows[:, :2], rows[:, 2])

    return records


CURVATURE_PAIR = canary_pair((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
"""A record of the largest norm, or of none: the eigenvalue is X²/n or 0."""

_SCORED = (1 - 2.0**-20, 0.0, 1.0), (1 - 2.0**-20, 0.0, -1.0)
EVALUATION_PAIR, COMPARISON_PAIR = canary_pair(*_SCORED), canary_pair(*_SCORED, section="held-out")
"""A score just below the bound, and the one bound or the other for a target."""

SECOND_MOMENTS_PAIR = canary_pair((1.0, 0.0, 0.5 - 2.0**-30), (1.0, 0.0, -1.0))
"""A record of the largest norm: its target just inside the unit, or far beyond the other way."""

FEATURE_MOMENTS_PAIR = canary_pair((1.0, 0.0, -1.0), (0.0, 1.0, 1.0))
"""Along the one axis with the least target, or along the other with the largest."""

FEATURE_MEANS_PAIR = canary_pair((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0))
"""A record of the largest norm along an axis with the largest target, or its negative."""

PRECONDITIONED_PAIR = canary_pair((1.0, 0.0, 1.0), (1.0, 0.0, -1.0))
"""A record of the largest norm, with the one bound or the other for a target."""


def server_argument(plan: Plan, stage: int) -> FloatArray:
    """Return the argument with which a server sees the canary best in a stage; weights of 0 if any will do.

    At weights of 0 the residual is the target; axes are so long that every record or gradient is clipped.
    """
    query, weights, axes = plan.stages[stage].query, np.zeros(plan.dimension), np.eye(plan.data.width)
    match query:
        case Evaluation():
            return _evaluation_argument(plan, query)
        case Comparison():
            return _comparison_argument(plan, query)
        case SecondMoments():  # in units of half of the target's bound
            return MomentsArgument(weights, 0.5, 1.0, axes).packed()
        case FeatureMoments():
            return FeatureMomentsArgument(4.0 * axes, -1.0, 1.0).packed()
        case FeatureMeans():
            return np.array([-1.0, 1.0])
        case PreconditionedGradient():
            return np.concatenate([weights, 4.0 * axes.reshape(-1)])
    return weights


def _evaluation_argument(plan: Plan, query: Evaluation) -> FloatArray:
    """Ask all blocks alike, with bin edges by which one pair of records moves each as far as any pair can."""
    blocks = query.blocks(plan)
    bin_edges = {"squared": [2.0], "absolute": [2.0], "loss": [2.0], "target": [0.0, 1.0]}
    numbers = [
        bin_edges.get(block.name, np.linspace(-0.9, 0.9, block.bin_edges) + (block.name == "residuals"))
        for block in blocks
    ]
    shares = np.full(len(blocks), 1.0 / len(blocks) - 2.0**-50)
    return np.concatenate([np.eye(plan.dimension)[0], *numbers, shares])


def _comparison_argument(plan: Plan, query: Comparison) -> FloatArray:
    """Return models that differ by much for one target and by little for the other, for sizes.

    For losses, the last model is the opposite of the others.
    """
    along, models = np.eye(plan.dimension)[0], np.zeros((query.models, plan.dimension))
    if query.part == "sizes":
        models[0] = along
        return np.concatenate([models.reshape(-1), np.full(query.bin_edges, 0.7)])
    models[:-1], models[-1] = along, -along
    return np.concatenate([models.reshape(-1), [1e-3]])


@dataclass(frozen=True)
class CellsCase:
    """A query about cells, and three cells of each column: the canary's for either coin, and everybody else's."""

    query: Query
    schema: Schema
    cells: Mapping[str, tuple[str, str, str]]

    def records(self, plan: Plan, coins: FloatArray) -> Records:
        """Return a worst case of cell counts: one record in the coin's cells, among others that are all alike."""
        canary, others = (0 if coins[0] > 0 else 1), plan.silos[0].records - 1
        table = {name: [three[canary], *[three[2]] * others] for name, three in self.cells.items()}
        cells = read_cells(plan.data.used, table, source="the audit")
        return Records(plan.data, features_of(plan.data, cells), target_of(plan.data, cells), cells=cells)


STATISTICS = CellsCase(
    Statistics(columns=("dose", "label", "size"), bins=16),
    parse_schema(
        {
            "columns": {
                "dose": {"type": "numeric", "lower": 0.0, "upper": 1.0, "missing": 0.0},
                "label": {"type": "categorical", "categories": ["a", "b", "c"]},
                "size": {"type": "numeric", "lower": -1.0, "upper": 1.0},
            }
        },
        target="size",
    ),
    {"dose": ("1", "0", ""), "label": ("a", "c", "b"), "size": ("1", "-1", "0.5")},
)
"""The canary is at one end of every column or at the other."""

SURVIVAL_CURVE = CellsCase(
    SurvivalCurve(time="days", event="died", cuts=(2.0, 5.0)),
    parse_schema(
        {
            "columns": {
                "days": {"type": "numeric", "lower": 0.0, "upper": 9.0},
                "died": {"type": "categorical", "categories": ["no", "yes"]},
            }
        },
        target="days",
    ),
    {"days": ("1", "9", "3"), "died": ("yes", "no", "no")},
)
"""The canary's time ends early, by an event, or is observed to its bound without one."""


def read_pair(plan: Plan, answers: Sequence[FloatArray], *, records: CanaryRecords) -> Observation:
    """Tell the two records of a worst case apart by all numbers of all rounds.

    A server that knows all the others computes what the silo would answer without noise with either record.
    """
    worlds = [records(plan, np.array([coin])) for coin in (1.0, -1.0)]
    exact = [[_exact_answer(plan, number, own) for own in worlds] for number in range(len(plan.stages))]
    seen = [
        read_difference(answer, task(plan, plan.silos[0], round, 0).sigma, *exact[plan.place(round).number])
        for round, answer in enumerate(answers)
    ]
    return Observation(np.concatenate([one.numbers for one in seen]), np.concatenate([one.strength for one in seen]))


def _exact_answer(plan: Plan, number: int, records: Records) -> FloatArray:
    """Return the answer of a silo with a worst case's records in a stage, without noise."""
    stage, terms = plan.stages[number], plan.silos[0]
    chosen = np.zeros(terms.records)
    chosen[sections.members(stage.section, terms.records, plan.held_out)] = 1.0
    return compute(stage.query, plan, server_argument(plan, number), records, chosen, terms.stages[number].batch)
