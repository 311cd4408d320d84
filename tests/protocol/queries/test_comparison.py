"""The comparison: whatever models and bin_edges a request has, no record moves the answer by more than 1/n."""

import math
from typing import Literal

import numpy as np
import pytest

from ringfence.protocol import Comparison, FloatArray, Plan
from ringfence.protocol.queries.evaluation import CURVE
from ringfence.silo.queries import compute
from tests.protocol.queries import neighbours
from tests.protocol.queries.neighbours import Record, Setting
from tests.protocol.queries.test_evaluation import plan_with

PARTS: tuple[Literal["sizes"], Literal["losses"]] = ("sizes", "losses")


def drawn_request(query: Comparison, plan: Plan, random: np.random.Generator) -> FloatArray:
    """Any models, alike or far apart, and bin edges of any size in no order."""
    around = random.normal(size=plan.dimension)
    spread = random.choice([0.0, 0.01, 3.0])
    models = [plan.domain.project(around + spread * random.normal(size=plan.dimension)) for _ in range(query.models)]
    bin_edges = random.normal(size=query.bin_edges) * 10.0 ** random.integers(-3, 2)
    return np.concatenate([*models, bin_edges])


@pytest.mark.parametrize(("part", "edge", "other"), [("losses", 1e-6, (1.0, -1.0)), ("sizes", 1e-3, (0.0, 1.0))])
def test_some_pair_moves_it_exactly_as_far_as_claimed(
    part: Literal["sizes", "losses"], edge: float, other: tuple[float, float]
) -> None:
    """Two models that are wrong where the other is right: a record's target decides which of them is better."""
    plan, query = plan_with("logistic"), Comparison(models=2, part=part)
    along, features = np.eye(plan.dimension)[0], np.eye(plan.data.width)[0]
    setting = Setting(plan, query, np.concatenate([along, -along, np.full(query.bin_edges, edge)]), [], 1)
    moved = setting.moves(Record(features, 1.0), Record(other[0] * features, other[1]))
    assert moved == pytest.approx(setting.limit(), rel=1e-8)


def test_a_vector_beside_its_squared_length_moves_no_further_than_the_vector_alone() -> None:
    """Two vectors of lengths r and s are at most r + s apart, and their squares r² − s²."""
    r = np.linspace(0, 1, 801)
    moved = (r[:, None] + r) ** 2 + CURVE**2 * (r[:, None] ** 2 - r**2) ** 2
    assert moved.max() == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("part", "weight", "cut"), [("losses", 1e99, 1e-99), ("losses", 1e-99, 1e-99), ("sizes", 1e99, 0.0)]
)
def test_losses_beyond_all_bounds_and_cuts_of_nothing_keep_it_too(
    part: Literal["sizes", "losses"], weight: float, cut: float
) -> None:
    plan = plan_with("squared")
    query = Comparison(models=3, part=part)
    argument = np.concatenate([weight * np.arange(3 * plan.dimension), np.full(query.bin_edges, cut)])
    setting = Setting(plan, query, argument, [], 1)
    random = np.random.default_rng(2)
    moved, *_ = neighbours.worst(setting, neighbours.candidates(setting, random, drawn=20))
    assert moved <= setting.limit()


def test_losses_that_differ_by_less_than_the_clip_are_unchanged() -> None:
    plan, random = plan_with("logistic"), np.random.default_rng(3)
    query = Comparison(models=3, part="losses")
    models = 0.1 * random.normal(size=(3, plan.dimension))
    records = neighbours.records_of(plan, [neighbours.draw_record(plan, random) for _ in range(20)])
    argument = np.concatenate([models.reshape(-1), [10.0]])
    answer = compute(query, plan, argument, records, np.ones(20), 20) / query.scale
    losses = np.array(
        [plan.loss.values(records.features @ own.reshape(plan.data.width, -1), records.targets) for own in models]
    )
    differences = losses - losses.mean(axis=0)
    assert 10.0 * answer[:3] == pytest.approx(differences.mean(axis=1), abs=1e-7)
    assert 100.0 * answer[3] / CURVE == pytest.approx(np.mean(np.sum(differences**2, axis=0)), abs=1e-6)


def test_a_request_with_models_outside_of_the_domain_or_without_finite_bin_edges_is_refused() -> None:
    plan, query = plan_with("logistic"), Comparison(models=2, part="losses")
    fine = drawn_request(query, plan, np.random.default_rng(0))
    assert query.accepts(plan, fine)
    for place, value in [(-1, math.nan), (-1, math.inf), (0, math.inf), (plan.dimension, 1e101)]:
        spoilt = fine.copy()
        spoilt[place] = value
        assert not query.accepts(plan, spoilt)
