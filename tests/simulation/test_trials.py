"""A simulated run of the default algorithm is that which silos and server make of the same draws."""

import math
from typing import Any

import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Logistic, Participation, Plan, Preconditioned, Softmax, Squared
from ringfence.research.experiments.trust import stand_in_keys
from ringfence.simulation import engine, trials
from ringfence.simulation.gradient import clip_of
from tests.simulation.replay import SIZES, Replay, arrays_of, plan_for, schema_for, silos_for

SEEDS = [3, 2**32 - 1, 8]
RANK_ONE = Preconditioned(axes="rank-one")


def preconditioned(loss: Any, **changes: Any) -> Plan:
    members = [Member(name, size, 8.0, 1e-6) for name, size in SIZES.items()]
    request = PlanRequest(**{"loss": loss, "algorithm": "preconditioned", **changes})
    return make_plan(schema_for(loss, "patient" if request.person_rule else None), members, request)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        (Squared(), {}),
        (Squared(), {"ridge": 0.1, "rounds": 5}),
        (Squared(), {"survey": False}),
        (Squared(), {"algorithm": RANK_ONE}),
        (Squared(), {"algorithm": RANK_ONE, "ridge": 0.1, "survey": False}),
        (Logistic(), {}),
        (Logistic(), {"survey": False}),
        (Logistic(), {"person_rule": "mean"}),
        (Logistic(), {"person_rule": "sum", "rounds": 3}),
        (Logistic(), {"person_rule": "sum", "algorithm": RANK_ONE, "rounds": 3}),
        (Softmax(classes=3), {}),
        (Softmax(classes=3), {"algorithm": RANK_ONE, "person_rule": "sum"}),
    ],
    ids=str,
)
def test_a_run_has_the_weights_that_silos_and_server_find_with_the_same_noise(
    loss: Any, changes: dict[str, Any]
) -> None:
    plan = preconditioned(loss, **changes)
    silos = silos_for(loss, plan.data)
    found = trials.simulated_weights(plan, list(silos.values()), SEEDS, np.float64)
    assert not np.allclose(found[0], found[1])
    for row, seed in zip(found, SEEDS, strict=True):
        theirs = Replay(plan, silos, seed).run().weights
        np.testing.assert_allclose(row, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("double_precision")
def test_a_run_does_not_depend_on_which_others_are_beside_it() -> None:
    plan = preconditioned(Softmax(classes=3))
    silos = arrays_of(silos_for(plan.loss, plan.data))
    together = trials.simulated_weights(plan, silos, SEEDS, np.float64)
    for row, seed in zip(together, SEEDS, strict=True):
        alone = trials.simulated_weights(plan, silos, [seed], np.float64)
        np.testing.assert_allclose(alone[0], row, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("double_precision")
def test_in_single_precision_a_survey_finds_the_same_but_for_rounding() -> None:
    """The second round's axes are eigenvectors: had they other signs, the same noise would count differently."""
    plan = preconditioned(Squared())
    silos = arrays_of(silos_for(plan.loss, plan.data))
    single, double = (trials.simulated_state(plan, silos, range(50), dtype) for dtype in (np.float32, np.float64))
    one, other = (state.findings["feature-moments"].statistic for state in (single, double))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(single.settings.step, double.settings.step, rtol=1e-4)


def test_plans_that_train_by_plain_gradients_are_compiled() -> None:
    plan = plan_for(Logistic(), sampling="poisson", participation=Participation(silos=2))
    silos = silos_for(plan.loss, plan.data)
    data = engine.federation_of(plan, list(silos.values()))
    theirs = engine.simulate(engine.Rules.of(plan), data, *engine.from_plans([plan] * len(SEEDS), SEEDS))
    np.testing.assert_array_equal(trials.simulated_weights(plan, list(silos.values()), SEEDS), theirs)


def test_a_stage_that_not_every_silo_answers_is_not_run_round_by_round() -> None:
    plan = preconditioned(Logistic())
    first, *others = plan.stages
    some = first.model_copy(update={"participation": Participation(silos=2)})
    with pytest.raises(TrainingError, match="asks every silo for the feature-moments of all its records"):
        trials.simulated_weights(
            plan.model_copy(update={"stages": (some, *others)}), arrays_of(silos_for(plan.loss, plan.data)), SEEDS
        )


def test_a_stage_that_asks_for_something_else_than_gradients_has_no_clip() -> None:
    with pytest.raises(TrainingError, match="cannot ask for the feature-moments"):
        clip_of(preconditioned(Logistic()).stages[0])


def test_through_a_shuffler_the_average_has_the_noise_of_all_silos_coins() -> None:
    """The mean of 40,000 squares has the standard error 0.7 %: 3.5 % off is a false alarm in one of a million.

    A deviation that is 5 % off moves the mean by 10 %, nine standard errors further.
    """
    members = [Member(name, size, 8.0, 1e-6) for name, size in SIZES.items()]
    request = PlanRequest(
        loss=Logistic(), trust="shuffler", keys=stand_in_keys(list(SIZES)), algorithm="preconditioned"
    )
    plan = make_plan(schema_for(Logistic(), None), members, request)
    number = plan.training_numbers[0]
    deviation = math.hypot(*(terms.weight * terms.stages[number].sigma for terms in plan.silos))
    random = np.random.default_rng(1)
    drawn = np.concatenate([trials.collected_noise(plan, number, random, 400) for _ in range(100)]) / deviation
    assert abs(np.mean(drawn**2) - 1) < 0.07 / 2
    found = trials.simulated_weights(plan, arrays_of(silos_for(plan.loss, plan.data)), SEEDS)
    assert np.isfinite(found).all()
    assert not np.allclose(found[0], found[1])
