"""The feature moments: no record moves matrix and shares together by more than √2.5/n, wherever a server looks."""

import math

import numpy as np
import pytest

from ringfence.protocol import FeatureMoments, Plan
from ringfence.protocol.queries.feature_moments import LARGEST_ARGUMENT, FeatureMomentsArgument
from ringfence.server.queries.feature_moments import matrix_of_triangle
from ringfence.silo.queries import compute
from tests.protocol.plan_document import plan_of
from tests.protocol.queries.neighbours import Record, Setting, draw_setting, fifty_records
from tests.protocol.queries.test_gradient import LOSSES

QUERY = FeatureMoments()
PLANS = {name: plan_of(LOSSES[name]) for name in ("squared", "logistic", "softmax")}
every_target = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
BOUND = math.sqrt(2.5)


def draw_view(plan: Plan, random: np.random.Generator) -> FeatureMomentsArgument:
    """Look anywhere that a hostile server may like: along axes of any length and shape, at any window."""
    width = plan.data.width
    axes = random.normal(size=(width, width)) * np.exp(random.normal(scale=3.0, size=(width, 1)))
    lower = random.normal()
    return FeatureMomentsArgument(axes, lower, lower + np.exp(random.normal(scale=2.0)))


def setting_of(
    plan: Plan, random: np.random.Generator, records: int, view: FeatureMomentsArgument | None = None
) -> Setting:
    setting = draw_setting(plan, QUERY, random, records=records)
    return setting._replace(argument=(view or draw_view(plan, random)).packed())


@every_target
def test_two_records_move_them_as_far_as_that(plan: Plan) -> None:
    width = plan.data.width
    setting = setting_of(plan, np.random.default_rng(3), 5, FeatureMomentsArgument(np.eye(width) * 100, -1.0, 1.0))
    one, other = np.eye(width)[0], np.eye(width)[1]
    low, high = (0.0, 1.0) if plan.loss.target_kind == "class" else (-1.0, 1.0)
    moved = 5 * setting.moves(Record(one, low), Record(other, high))
    assert moved == pytest.approx(BOUND, rel=1e-8)
    assert moved <= 5 * setting.limit() == pytest.approx(BOUND)


@every_target
def test_they_are_the_moments_and_shares_that_they_are_said_to_be(plan: Plan) -> None:
    width, view = plan.data.width, draw_view(plan, np.random.default_rng(6))
    records = fifty_records(plan, np.random.default_rng(5))
    answer = compute(QUERY, plan, view.packed(), records, np.ones(50), 50)
    triangle, shares = np.split(answer, [width * (width + 1) // 2])
    along = records.features @ view.axes.T
    along /= np.maximum(1.0, np.linalg.norm(along, axis=1, keepdims=True))
    assert np.allclose(matrix_of_triangle(triangle, width), along.T @ along / 50, atol=1e-8)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(along.T @ along / 50), rel=1e-8)
    assert len(answer) == QUERY.length(plan)
    assert np.sum(shares) == pytest.approx(0.5, abs=1e-8)
    assert np.allclose(shares * 100, np.rint(shares * 100), atol=1e-6)
    assert np.max(np.abs(answer)) <= QUERY.largest(plan)


def test_a_request_is_refused_that_nobody_can_compute_with() -> None:
    plan = PLANS["squared"]
    fine = FeatureMomentsArgument(np.eye(plan.data.width), -1.0, 1.0)
    assert QUERY.accepts(plan, fine.packed())
    assert len(fine.packed()) == QUERY.argument_length(plan)
    for bad in (
        fine._replace(upper=-1.0),
        fine._replace(upper=math.nan),
        fine._replace(axes=fine.axes * 4 * LARGEST_ARGUMENT),
        fine._replace(axes=np.full_like(fine.axes, math.inf)),
    ):
        with np.errstate(invalid="ignore"):
            assert not QUERY.accepts(plan, bad.packed())
