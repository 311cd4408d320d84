"""The mechanism moves by at most 2·clip/batch when a record is replaced, whatever the weights."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import RecordsError
from ringfence.planning.prescribe import Member, make_plan
from ringfence.protocol.losses import Huber, Logistic, Softmax, Squared
from ringfence.protocol.schedule import task
from ringfence.silo.mechanism import Draws, clipped_mean, grid_exponent, release
from ringfence.silo.records import Records
from tests.support import MakePlan

LOSSES = [Logistic(), Softmax(classes=4), Squared(), Huber(threshold=0.5)]


def targets_for(loss: Any, count: int, random: np.random.Generator) -> Any:
    if isinstance(loss, Softmax):
        return random.integers(loss.classes, size=count).astype(float)
    return random.choice([-1.0, 1.0], size=count)


def mean(loss: Any, clip: float, weights: Any, features: Any, targets: Any, batch: int) -> Any:
    return clipped_mean(
        loss,
        clip,
        weights=weights.reshape(features.shape[1], -1),
        features=features,
        norms=np.sqrt((features**2).sum(axis=1)),
        targets=targets,
        shares=np.full(len(targets), 1.0 / batch),
    ).reshape(-1)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_clipping_agrees_with_per_record_gradients_clipped_one_by_one(loss: Any) -> None:
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(30, 5)), targets_for(loss, 30, random)
    weights = random.normal(size=5 * loss.outputs)
    expected = np.zeros((5, loss.outputs))
    for x, y in zip(features, targets, strict=True):
        gradient = np.outer(x, loss.residuals(x[None] @ weights.reshape(5, -1), np.array([y]))[0])
        expected += gradient * min(1.0, 0.3 / np.linalg.norm(gradient)) / 30
    np.testing.assert_allclose(mean(loss, 0.3, weights, features, targets, 30), expected.reshape(-1), atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@given(seed=st.integers(0, 2**32), clip=st.floats(0.01, 10), scale=st.sampled_from([0.0, 1.0, 1e3, 1e8]))
@settings(max_examples=60, deadline=None)
def test_replacing_any_record_moves_the_mean_by_at_most_twice_the_clip_over_the_batch(
    loss: Any, seed: int, clip: float, scale: float
) -> None:
    random = np.random.default_rng(seed)
    features, targets = (
        random.normal(size=(10, 3)) * random.choice([1e-3, 1, 100]),
        targets_for(loss, 10, random),
    )
    weights = scale * random.normal(size=3 * loss.outputs)
    before = mean(loss, clip, weights, features, targets, 10)
    features[4], targets[4] = 100 * random.normal(size=3), targets_for(loss, 1, random)[0]
    after = mean(loss, clip, weights, features, targets, 10)
    assert np.linalg.norm(after - before) <= 2 * clip / 10 * (1 + 1e-12)


def test_that_bound_is_reached_so_no_smaller_one_would_do() -> None:
    features, targets = np.array([[1e3], [0.0]]), np.array([1.0, 1.0])
    before = mean(Logistic(), 1.0, np.zeros(1), features, targets, 2)
    after = mean(Logistic(), 1.0, np.zeros(1), -features, targets, 2)
    assert np.linalg.norm(after - before) == pytest.approx(2 * 1.0 / 2)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_configurations_side_by_side_give_what_each_gives_alone(loss: Any) -> None:
    random = np.random.default_rng(1)
    features, targets = random.normal(size=(30, 5)), targets_for(loss, 30, random)
    weights, clips = random.normal(size=(5, 3, loss.outputs)), np.array([0.1, 0.5, 9.0])
    together = clipped_mean(
        loss,
        clips,
        weights=weights,
        features=features,
        norms=np.sqrt((features**2).sum(axis=1)),
        targets=targets,
        shares=np.full(30, 1 / 30),
    )
    for place, clip in enumerate(clips):
        alone = mean(loss, clip, weights[:, place], features, targets, 30)
        np.testing.assert_allclose(together[:, place].reshape(-1), alone, atol=1e-15)


def test_released_numbers_lie_on_the_grid_exactly(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of()
    terms = plan.silos[0]
    grid = 2.0 ** grid_exponent(terms.sigma)
    noise = grid * np.array([3.0, -(2.0**31), 0.0, 2.0**34])
    work = task(plan, terms, 0, 0)
    vector = release(plan, work, np.full(4, 0.3), records, Draws(np.ones(40), noise))
    assert np.all(vector / grid == np.round(vector / grid))
    without = release(plan, work, np.full(4, 0.3), records, Draws(np.ones(40), np.zeros(4)))
    assert np.all(vector - without == noise)


@given(st.floats(1e-6, 1e6))
def test_the_grid_is_a_power_of_two_at_least_2_to_30_times_finer_than_the_noise(sigma: float) -> None:
    grid = 2.0 ** grid_exponent(sigma)
    assert math.frexp(grid)[0] == 0.5
    assert sigma * 2.0**-31 < grid <= sigma * 2.0**-30


def test_nobody_taking_part_releases_the_noise_alone(plan_of: MakePlan, records: Records) -> None:
    plan = plan_of(sampling="poisson")
    noise = 2.0 ** grid_exponent(plan.silos[0].sigma) * np.arange(4.0)
    work = task(plan, plan.silos[0], 0, 0)
    vector = release(plan, work, np.zeros(4), records, Draws(np.zeros(40), noise))
    assert np.array_equal(vector, noise)


def test_a_record_of_norm_zero_contributes_nothing() -> None:
    features, targets = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0])
    np.testing.assert_allclose(mean(Logistic(), 1.0, np.zeros(2), features, targets, 2), [-0.25, 0.0])


def test_records_show_no_value_and_cannot_be_pickled(records: Records) -> None:
    assert repr(records) == "<40 records of 4 features, values hidden>"
    with pytest.raises(RecordsError, match="stay in the silo"):
        pickle.dumps(records)


def test_a_plan_with_noise_too_small_to_add_exactly_is_refused() -> None:
    from ringfence.errors import PlanError
    from ringfence.protocol.schema import parse_schema

    columns = {
        "x": {"type": "numeric", "lower": 0, "upper": 1},
        "y": {"type": "numeric", "lower": 0, "upper": 1},
    }
    with pytest.raises(PlanError, match="protects nobody"):
        make_plan(parse_schema({"columns": columns}, target="y"), [Member("s", 10**9, 1e6, 1e-6)], rounds=1)
