"""The compiled engine does what the plain loop does: same release, same steps, same numbers from same draws."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol.algorithms import Accelerated, Average, Localized, MultiStage, Phase, Stage
from ringfence.protocol.domain import Ball, Box, WholeSpace
from ringfence.protocol.losses import Huber, Logistic, Softmax, Squared
from ringfence.protocol.plan import Participation, Plan
from ringfence.simulation import engine
from tests.simulation.replay import SIZES, Replay, arrays_of, compiled, plan_for, silos_for, stacked


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Compare in float64, where rounding is far below any real difference."""
    with jax.enable_x64(True):
        yield


LOSSES = [Logistic(), Softmax(classes=3), Squared(), Huber(threshold=0.4)]
SEEDS = [3, 2**32 - 1]


def assert_the_same_from_the_same_draws(plan: Plan) -> None:
    silos = silos_for(plan.loss, plan.data)
    rows = compiled(plan, silos, SEEDS)
    assert not np.allclose(rows[0], rows[1])
    for row, seed in zip(rows, SEEDS, strict=True):
        np.testing.assert_allclose(row, Replay(plan, silos, seed).run().weights, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        (LOSSES[0], {}),
        (LOSSES[0], {"sampling": "poisson"}),
        (LOSSES[0], {"sampling": "one-pass", "participation": Participation(silos=2)}),
        (LOSSES[0], {"participation": Participation(probability=0.4), "domain": Box(lower=-0.3, upper=0.3)}),
        (LOSSES[1], {"sampling": "fixed", "participation": Participation(silos=2)}),
        (LOSSES[1], {"domain": Ball(radius=0.2), "ridge": 0.1}),
        (LOSSES[2], {"sampling": "one-pass", "domain": WholeSpace()}),
        (LOSSES[3], {"sampling": "fixed", "participation": Participation(probability=0.4)}),
    ],
    ids=str,
)
def test_the_compiled_engine_and_the_plain_loop_give_the_same_weights_from_the_same_draws(
    loss: Any, changes: dict[str, Any]
) -> None:
    assert_the_same_from_the_same_draws(plan_for(loss, **changes))


PART = Participation(silos=2)
ACCELERATED = Accelerated(smoothness=1.0)
STAGES = MultiStage(smoothness=1.0, stages=(Stage(rounds=3, pace=0.0), Stage(rounds=5, pace=6.0)))
PHASES = Localized(
    smoothness=1.0,
    phases=(Phase(rounds=4, penalty=0.1), Phase(rounds=3, penalty=0.8), Phase(rounds=1, penalty=6.4)),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": ACCELERATED},
        {"algorithm": ACCELERATED, "sampling": "fixed", "domain": Ball(radius=0.1)},
        {"algorithm": ACCELERATED, "ridge": 0.2, "participation": Participation(probability=0.4)},
        {"algorithm": Accelerated(smoothness=1.0, pace=9.0, penalty=0.3, average="last"), "domain": WholeSpace()},
        {"algorithm": Accelerated(smoothness=1.0, penalty=0.3, average="tail"), "ridge": 0.2},
        {"algorithm": ACCELERATED, "sampling": "one-pass", "participation": PART},
        {"algorithm": ACCELERATED, "survey": True},
        {"algorithm": ACCELERATED, "survey": True, "sampling": "poisson", "participation": PART},
        {"algorithm": STAGES, "ridge": 0.2, "loss": Softmax(classes=3)},
        {"algorithm": STAGES, "ridge": 0.2, "participation": Participation(probability=0.3)},
        {"algorithm": STAGES, "ridge": 0.2, "sampling": "one-pass", "domain": Box(lower=-0.2, upper=0.2)},
        {"algorithm": STAGES.model_copy(update={"penalty": 0.5, "average": "tail"}), "sampling": "one-pass"},
        {"algorithm": PHASES},
        {"algorithm": PHASES, "participation": PART, "ridge": 0.1, "loss": Softmax(classes=3)},
        {"algorithm": PHASES.model_copy(update={"average": "last"}), "participation": Participation(probability=0.3)},
        {"algorithm": PHASES, "survey": True},
    ],
    ids=lambda changes: " ".join([changes["algorithm"].name, *(name for name in changes if name != "algorithm")]),
)
def test_so_they_do_for_every_accelerated_algorithm(changes: dict[str, Any]) -> None:
    assert_the_same_from_the_same_draws(plan_for(**{"loss": Logistic(), **changes}))


@pytest.mark.parametrize(
    "changes",
    [{}, {"algorithm": ACCELERATED}, {"algorithm": STAGES, "ridge": 0.2}, {"algorithm": ACCELERATED, "survey": True}],
    ids=["minibatch-sgd", "accelerated", "multi-stage", "accelerated survey"],
)
def test_so_they_do_with_noise_that_cancels_in_part(changes: dict[str, Any]) -> None:
    assert_the_same_from_the_same_draws(plan_for(Squared(), sampling="one-pass", correlation=0.4, **changes))


def test_correlation_makes_a_difference_from_the_second_round_on() -> None:
    for rounds, alike in ((1, True), (2, False)):
        plan = plan_for(Squared(), sampling="one-pass", correlation=0.4, algorithm=ACCELERATED, rounds=rounds)
        independent, silos = plan.model_copy(update={"correlation": 0.0}), silos_for(plan.loss, plan.data)
        one, other = (compiled(either, silos, SEEDS) for either in (plan, independent))
        assert np.allclose(one, other, rtol=1e-3) == alike


@pytest.mark.parametrize("participation", [PART, Participation(probability=0.5)], ids=str)
def test_correlated_noise_with_part_of_the_silos_is_refused(participation: Participation) -> None:
    plan = plan_for(Logistic(), sampling="one-pass", correlation=0.4, participation=participation)
    with pytest.raises(TrainingError, match="every silo answers every round: leave the participation out"):
        engine.Rules.of(plan)


def test_a_surveyed_smoothness_is_what_the_server_finds_and_changes_the_steps() -> None:
    plan = plan_for(Logistic(), algorithm=ACCELERATED, survey=True)
    silos = silos_for(plan.loss, plan.data)
    for seed in SEEDS:
        found = engine.surveyed_smoothness(plan, arrays_of(silos), seed)
        findings = Replay(plan, silos, seed).run().findings
        assert found is not None
        assert findings is not None
        largest = plan.data.feature_norm**2
        bound = min(findings.statistic[0] + 2.0 * findings.noise, largest) / largest
        np.testing.assert_allclose(found, plan.constants.smoothness * bound, rtol=1e-6)
    unsurveyed = engine.from_plans([plan], [3], dtype=np.float64)
    rules, data = engine.Rules.of(plan), stacked(plan, silos)
    assert not np.allclose(engine.simulate(rules, data, *unsurveyed)[0], compiled(plan, silos, [3])[0], rtol=1e-3)


def test_a_plan_without_a_survey_has_no_surveyed_smoothness() -> None:
    plan = plan_for(Logistic(), algorithm=ACCELERATED)
    assert engine.surveyed_smoothness(plan, arrays_of(silos_for(plan.loss, plan.data)), 1) is None


def test_phases_take_disjoint_halves_of_what_is_left_in_every_silo() -> None:
    plan = plan_for(Logistic(), algorithm=PHASES)
    data = stacked(plan, silos_for(Logistic(), plan.data))
    streams, _ = engine.from_plans([plan], [5], dtype=np.float64)
    stream = engine.Streams(streams.seed[0], streams.batch[0])
    parts = [
        np.asarray(engine.draws(engine.Rules.of(plan), data, stream, jnp.zeros(3, dtype=int), round).participation)
        for round in range(plan.rounds)
    ]
    for first, last, phase in ((0, 4, 1), (4, 7, 2), (7, 8, 3)):
        for part in parts[first:last]:
            np.testing.assert_array_equal(part, parts[first])
            counts = [part[np.asarray(data.silo) == silo].sum() for silo in range(3)]
            assert counts == [size >> phase for size in SIZES.values()]
    assert np.max(parts[0] + parts[4] + parts[7]) == 1.0


def test_accelerated_runs_with_settings_of_their_own_go_side_by_side() -> None:
    variants: list[tuple[float, float, Average]] = [(0.5, 0.0, "weighted"), (1.0, 5.0, "last"), (2.0, 9.0, "tail")]
    specs = [
        MultiStage(
            smoothness=beta, stages=(Stage(rounds=3, pace=pace), Stage(rounds=5, pace=2 * pace)), average=average
        )
        for beta, pace, average in variants
    ]
    plans = [plan_for(Logistic(), algorithm=spec, ridge=0.1) for spec in specs]
    silos = silos_for(Logistic(), plans[0].data)
    rules, data = engine.Rules.of(plans[0]), stacked(plans[0], silos)
    together = engine.simulate(rules, data, *engine.from_plans(plans, [1, 2, 3], dtype=np.float64))
    for place, plan in enumerate(plans):
        np.testing.assert_allclose(together[place], compiled(plan, silos, [place + 1])[0], rtol=1e-9)


def test_configurations_side_by_side_give_what_each_gives_alone() -> None:
    plans = [plan_for(Logistic(), clip=clip, rounds=5) for clip in (0.1, 0.5, 2.0)]
    silos = silos_for(Logistic(), plans[0].data)
    rules, data = engine.Rules.of(plans[0]), stacked(plans[0], silos)
    together = engine.simulate(rules, data, *engine.from_plans(plans, [1, 2, 3], dtype=np.float64))
    for place, plan in enumerate(plans):
        alone = engine.simulate(rules, data, *engine.from_plans([plan], [place + 1], dtype=np.float64))
        np.testing.assert_allclose(together[place], alone[0], rtol=1e-9)


def test_runs_of_one_stream_see_the_same_noise() -> None:
    plan = plan_for(Logistic())
    data = stacked(plan, silos_for(Logistic(), plan.data))
    streams, runs = engine.from_plans([plan, plan], [1, 2], dtype=np.float64)
    shared = runs._replace(stream=jnp.zeros(2, dtype=int))
    weights = engine.simulate(engine.Rules.of(plan), data, streams, shared)
    np.testing.assert_array_equal(weights[0], weights[1])


@pytest.mark.parametrize("sampling", ["fixed", "one-pass"])
def test_batches_have_the_plan_s_size_in_every_silo(sampling: Any) -> None:
    plan = plan_for(Logistic(), sampling=sampling)
    data = stacked(plan, silos_for(Logistic(), plan.data))
    streams, _ = engine.from_plans([plan], [5], dtype=np.float64)
    stream = engine.Streams(streams.seed[0], streams.batch[0])
    used = np.zeros(sum(SIZES.values()))
    for round in range(plan.rounds):
        answered = jnp.full(3, round)
        chosen = np.asarray(engine.draws(engine.Rules.of(plan), data, stream, answered, round).participation)
        assert [chosen[np.asarray(data.silo) == i].sum() for i in range(3)] == [t.batch for t in plan.silos]
        used += chosen
    assert used.max() == 1.0 if sampling == "one-pass" else used.max() > 1.0


def test_errors_and_losses_are_those_of_the_model() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(50, 3))
    for loss in LOSSES:
        weights = random.normal(size=(2, 3 * loss.outputs))
        silo: Any = random.integers(3, size=50) * 1.0 if isinstance(loss, Softmax) else random.choice([-1.0, 1.0], 50)
        values, errors = engine.evaluate(loss, weights, features, silo)
        for row in range(2):
            scores = features @ weights[row].reshape(3, -1)
            np.testing.assert_allclose(values[row], loss.values(scores, silo).mean())
            if isinstance(loss, Softmax):
                expected = np.mean(scores.argmax(axis=1) != silo)
            elif isinstance(loss, Logistic):
                expected = np.mean(np.sign(scores[:, 0]) != silo)
            else:
                expected = np.mean((scores[:, 0] - silo) ** 2)
            np.testing.assert_allclose(errors[row], expected)
