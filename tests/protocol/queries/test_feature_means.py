"""The feature means: no record moves means, length and shares together by more than √4.5/n, whatever the window."""

import math

import numpy as np
import pytest

from ringfence.protocol import FeatureMeans, Plan
from ringfence.silo.queries import compute
from tests.protocol.plan_document import plan_of
from tests.protocol.queries.neighbours import Record, Setting, draw_setting, fifty_records
from tests.protocol.queries.test_gradient import LOSSES

QUERY = FeatureMeans()
PLANS = {name: plan_of(LOSSES[name]) for name in ("squared", "logistic", "softmax")}
every_target = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
BOUND = math.sqrt(4.5)


def setting_of(plan: Plan, random: np.random.Generator, records: int) -> Setting:
    lower = random.normal()
    window = np.array([lower, lower + np.exp(random.normal(scale=2.0))])
    return draw_setting(plan, QUERY, random, records=records)._replace(argument=window)


@every_target
def test_two_opposite_records_move_them_as_far_as_that(plan: Plan) -> None:
    setting = setting_of(plan, np.random.default_rng(3), 5)._replace(argument=np.array([-1.0, 1.0]))
    one = np.eye(plan.data.width)[0] * plan.data.feature_norm
    low, high = (0.0, 1.0) if plan.loss.target_kind == "class" else (-1.0, 1.0)
    moved = 5 * setting.moves(Record(one, low), Record(-one, high))
    assert moved == pytest.approx(BOUND, rel=1e-8)
    assert moved <= 5 * setting.limit() == pytest.approx(BOUND)


def test_a_mean_and_a_squared_length_together_move_no_further_than_the_mean() -> None:
    # (2 − t)²(1 + t²) for lengths 1 and 1 − t: the largest that |v − v'|² + (|v|² − |v'|²)² can be.
    gaps = np.linspace(0, 1, 10_001)
    assert np.max((2 - gaps) ** 2 * (1 + gaps**2)) == 4.0


@every_target
def test_they_are_the_means_and_shares_that_they_are_said_to_be(plan: Plan) -> None:
    width, records = plan.data.width, fifty_records(plan, np.random.default_rng(5))
    answer = compute(QUERY, plan, np.array([-0.5, 0.75]), records, np.ones(50), 50)
    means, square, shares = np.split(answer, [width, width + 1])
    cut = records.features / np.maximum(plan.data.feature_norm, np.linalg.norm(records.features, axis=1))[:, None]
    assert np.allclose(means, cut.mean(axis=0), atol=1e-8)
    assert square[0] == pytest.approx(np.mean(np.sum(cut**2, axis=1)), abs=1e-8)
    assert len(answer) == QUERY.length(plan)
    assert np.sum(shares) == pytest.approx(0.5, abs=1e-8)
    assert np.allclose(shares * 100, np.rint(shares * 100), atol=1e-6)
    assert np.max(np.abs(answer)) <= QUERY.largest(plan)


def test_a_request_is_refused_that_nobody_can_compute_with() -> None:
    plan = PLANS["squared"]
    assert QUERY.argument_length(plan) == 2
    assert QUERY.accepts(plan, np.array([-1.0, 1.0]))
    for bad in ([1.0, -1.0], [0.0, math.nan], [0.0, math.inf], [2.0**101, 2.0**102]):
        with np.errstate(invalid="ignore"):
            assert not QUERY.accepts(plan, np.array(bad))
