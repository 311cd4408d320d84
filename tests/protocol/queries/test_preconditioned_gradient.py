"""The preconditioned gradient: no record moves the mean by more than two over the batch, along any axes."""

import numpy as np
import pytest

from ringfence.protocol import FloatArray, Gradient, Plan, PreconditionedGradient, RankOneAxes
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from tests.protocol.plan_document import plan_of
from tests.protocol.queries.neighbours import ROUNDING, draw_setting, farthest, targets_of
from tests.protocol.queries.test_gradient import LOSSES

QUERY = PreconditionedGradient()
RANK_ONE = PreconditionedGradient(axes="rank-one")

every_loss = pytest.mark.parametrize("loss", [name for name in LOSSES if name not in ("survival", "ordinal")])


def asked(plan: Plan, random: np.random.Generator) -> FloatArray:
    """Ask at weights in the domain, along axes of any length and shape that a hostile server may like."""
    width = plan.data.width
    weights = plan.domain.project(random.normal(size=plan.dimension) * random.choice([0.0, 0.1, 3.0]))
    axes = random.normal(size=(width, width)) * np.exp(random.normal(scale=4.0, size=(width, 1)))
    return np.concatenate([weights, axes.reshape(-1)])


def asked_of_rank_one(plan: Plan, random: np.random.Generator) -> FloatArray:
    """Ask along axes of any scale, with a direction of any length."""
    weights = plan.domain.project(random.normal(size=plan.dimension) * random.choice([0.0, 0.1, 3.0]))
    direction = random.normal(size=plan.data.width) * np.exp(random.normal(scale=3.0))
    return np.concatenate([weights, RankOneAxes(np.exp(random.normal(scale=4.0)), direction).packed()])


def thirty_records(plan: Plan, random: np.random.Generator) -> tuple[Records, FloatArray]:
    """Draw ordinary records, and weights in the domain."""
    targets = np.array([targets_of(plan, random) for _ in range(30)])
    records = Records(plan.data, random.normal(size=(30, plan.data.width)), targets)
    return records, plan.domain.project(0.1 * random.normal(size=plan.dimension))


@every_loss
def test_some_record_moves_it_as_far_as_that(loss: str) -> None:
    plan, random = plan_of(LOSSES[loss]), np.random.default_rng(4)
    axes = 1e3 * np.eye(plan.data.width)
    setting = draw_setting(plan, QUERY, random, records=5)
    setting = setting._replace(argument=np.concatenate([np.zeros(plan.dimension), axes.reshape(-1)]))
    assert 0.8 * setting.limit() < farthest(setting, random) <= setting.limit() * ROUNDING


@every_loss
def test_along_the_features_own_axes_it_is_the_gradient_in_units_of_the_clip(loss: str) -> None:
    plan, random, clip = plan_of(LOSSES[loss]), np.random.default_rng(6), 0.5
    records, weights = thirty_records(plan, random)
    everybody = np.ones(30), 30
    plain = compute(Gradient(clip=clip), plan, weights, records, *everybody)
    axes = np.eye(plan.data.width) / clip
    argument = np.concatenate([weights, axes.reshape(-1)])
    along = compute(QUERY, plan, argument, records, *everybody)
    assert np.allclose(clip * along, plain, atol=1e-8)


@every_loss
def test_along_axes_of_rank_one_it_is_what_their_matrix_would_give(loss: str) -> None:
    plan, random = plan_of(LOSSES[loss]), np.random.default_rng(8)
    records, weights = thirty_records(plan, random)
    axes = RankOneAxes(1.5, random.normal(size=plan.data.width) / 2)
    matrix = axes.turned(np.eye(plan.data.width))
    rank_one, whole = (
        compute(query, plan, np.concatenate([weights, numbers]), records, np.ones(30), 30)
        for query, numbers in ((RANK_ONE, axes.packed()), (QUERY, matrix.reshape(-1)))
    )
    assert np.allclose(rank_one, whole, atol=1e-8)


def test_a_records_row_along_axes_of_rank_one_depends_on_nothing_beside_it() -> None:
    plan, random = plan_of({}), np.random.default_rng(9)
    features = random.normal(size=(64, plan.data.width))
    axes = RankOneAxes(1.5, random.normal(size=plan.data.width) / 2)
    together = Records(plan.data, features, np.zeros(64)).along(axes)
    for row in range(64):
        alone = Records(plan.data, features[row : row + 1], np.zeros(1)).along(axes)
        assert np.array_equal(alone.features[0], together.features[row])


def test_a_request_is_refused_with_weights_outside_of_the_domain_or_axes_nobody_can_compute_with() -> None:
    plan, random = plan_of({}), np.random.default_rng(7)
    fine = asked(plan, random)
    assert len(fine) == QUERY.argument_length(plan)
    assert not QUERY.accepts(plan, np.concatenate([fine[: plan.dimension] + 1e6, fine[plan.dimension :]]))
    for bad in (np.nan, np.inf, 2.0**101):
        assert not QUERY.accepts(plan, np.append(fine[:-1], bad))
