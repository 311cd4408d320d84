"""The compiled engine does what the plain loop does: same release, same steps, same numbers from same draws."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol import (
    Accelerated,
    Average,
    Ball,
    Box,
    Curvature,
    FixedSize,
    Full,
    Gradient,
    Huber,
    Localized,
    Logistic,
    MultiSquared,
    MultiStage,
    OnePass,
    OwnNoise,
    Participation,
    Phase,
    Plan,
    Poisson,
    Restart,
    SiloTerms,
    Softmax,
    Squared,
    Stage,
    StageTerms,
    WholeSpace,
)
from ringfence.server.state import ServerState
from ringfence.simulation import engine
from ringfence.simulation.trials import simulated_state
from tests.simulation.replay import SIZES, Replay, arrays_of, compiled, drawn, plan_for, silos_for, stacked

pytestmark = pytest.mark.usefixtures("double_precision")


LOSSES = [Logistic(), Softmax(classes=3), Squared(), Huber(threshold=0.4), MultiSquared(targets=2)]
SEEDS = [3, 2**32 - 1]


def assert_the_same_from_the_same_draws(plan: Plan) -> None:
    silos = silos_for(plan.loss, plan.data)
    rows = compiled(plan, silos, SEEDS)
    assert not np.allclose(rows[0], rows[1])
    for row, seed in zip(rows, SEEDS, strict=True):
        np.testing.assert_allclose(row, Replay(plan, silos, seed).run().weights, rtol=1e-6, atol=1e-6)


PART, LUCKY = Participation(silos=2), Participation(probability=0.4)
ACCELERATED = Accelerated(smoothness=1.0)
STAGES = MultiStage(smoothness=1.0, stages=(Restart(rounds=3, upsilon=0.0), Restart(rounds=5, upsilon=6.0)))
PHASES = Localized(
    smoothness=1.0,
    phases=(Phase(rounds=4, penalty=0.1), Phase(rounds=3, penalty=0.8), Phase(rounds=1, penalty=6.4)),
)
CANCELLING: dict[str, Any] = {"loss": Squared(), "sampling": "one-pass", "correlation": 0.4}
PERSON = {"clip": 0.4}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sampling": "poisson"},
        {"sampling": "one-pass", "participation": PART},
        {"participation": LUCKY, "domain": Box(lower=-0.3, upper=0.3)},
        {"loss": LOSSES[1], "sampling": "fixed", "participation": PART},
        {"loss": LOSSES[1], "domain": Ball(radius=0.2), "ridge": 0.1},
        {"loss": LOSSES[1], "domain": Ball(radius=0.2), "ridge": 0.1, "lasso": 0.03},
        {"loss": LOSSES[2], "sampling": "one-pass", "domain": WholeSpace()},
        {"loss": LOSSES[3], "sampling": "fixed", "participation": LUCKY},
        {"loss": LOSSES[4], "sampling": "fixed", "participation": PART, "lasso": 0.02},
        {"algorithm": ACCELERATED},
        {"algorithm": ACCELERATED, "sampling": "fixed", "domain": Ball(radius=0.1)},
        {"algorithm": ACCELERATED, "lasso": 0.05, "domain": Box(lower=-0.3, upper=0.3)},
        {"algorithm": ACCELERATED, "ridge": 0.2, "participation": LUCKY},
        {"algorithm": Accelerated(smoothness=1.0, upsilon=9.0, penalty=0.3, average="last"), "domain": WholeSpace()},
        {"algorithm": Accelerated(smoothness=1.0, penalty=0.3, average="tail"), "ridge": 0.2},
        {"algorithm": ACCELERATED, "sampling": "one-pass", "participation": PART},
        {"algorithm": ACCELERATED, "survey": True},
        {"algorithm": ACCELERATED, "survey": True, "sampling": "poisson", "participation": PART},
        {"algorithm": STAGES, "ridge": 0.2, "loss": LOSSES[1]},
        {"algorithm": STAGES, "ridge": 0.2, "participation": Participation(probability=0.3)},
        {"algorithm": STAGES, "ridge": 0.2, "sampling": "one-pass", "domain": Box(lower=-0.2, upper=0.2)},
        {"algorithm": STAGES.model_copy(update={"penalty": 0.5, "average": "tail"}), "sampling": "one-pass"},
        {"algorithm": PHASES},
        {"algorithm": PHASES, "participation": PART, "ridge": 0.1, "loss": LOSSES[1]},
        {"algorithm": PHASES.model_copy(update={"average": "last"}), "participation": Participation(probability=0.3)},
        {"algorithm": PHASES, "survey": True},
        CANCELLING,
        {**CANCELLING, "algorithm": ACCELERATED},
        {**CANCELLING, "algorithm": STAGES, "ridge": 0.2},
        {**CANCELLING, "algorithm": ACCELERATED, "survey": True},
        {**PERSON, "person_rule": "mean", "sampling": "poisson"},
        {**PERSON, "person_rule": "mean", "algorithm": ACCELERATED, "survey": True, "participation": PART},
        {**PERSON, "person_rule": "rows", "rows_per_person": 3, "sampling": "one-pass", "correlation": 0.4},
        {**PERSON, "person_rule": "sum", "sampling": "fixed", "participation": PART},
        {**PERSON, "person_rule": "sum", "loss": LOSSES[1]},
    ],
    ids=str,
)
def test_the_compiled_engine_and_the_plain_loop_give_the_same_weights_from_the_same_draws(
    changes: dict[str, Any],
) -> None:
    assert_the_same_from_the_same_draws(plan_for(**{"loss": Logistic(), **changes}))


def test_a_plan_about_persons_is_not_simulated_on_rows_that_are_nobody_s() -> None:
    plan = plan_for(Logistic(), person_rule="mean")
    rows = engine.federation(arrays_of(silos_for(plan.loss, plan.data)), dtype=np.float64)
    with pytest.raises(TrainingError, match="which person each row belongs to"):
        engine.simulate(engine.Rules.of(plan), rows, *engine.from_plans([plan], SEEDS[:1], dtype=np.float64))


def test_correlation_makes_a_difference_from_the_second_round_on() -> None:
    for rounds, alike in ((1, True), (2, False)):
        plan = plan_for(Squared(), sampling="one-pass", correlation=0.4, algorithm=ACCELERATED, rounds=rounds)
        (stage,) = plan.stages
        independent = plan.model_copy(update={"stages": (stage.model_copy(update={"channel": OwnNoise()}),)})
        silos = silos_for(plan.loss, plan.data)
        one, other = (compiled(either, silos, SEEDS) for either in (plan, independent))
        assert np.allclose(one, other, rtol=1e-3) == alike


@pytest.mark.parametrize("participation", [PART, Participation(probability=0.5)], ids=str)
def test_correlated_noise_with_part_of_the_silos_is_refused(participation: Participation) -> None:
    plan = plan_for(Logistic(), sampling="one-pass", correlation=0.4, participation=participation)
    with pytest.raises(TrainingError, match="every silo answers every round: leave the participation out"):
        engine.Rules.of(plan)


def test_a_survey_finds_what_the_server_finds_and_changes_the_steps() -> None:
    plan = plan_for(Logistic(), algorithm=ACCELERATED, survey=True)
    silos = silos_for(plan.loss, plan.data)
    for seed in SEEDS:
        known = simulated_state(plan, arrays_of(silos), seed)
        found, theirs = known.findings["curvature"], Replay(plan, silos, seed).run().findings["curvature"]
        np.testing.assert_allclose(found.statistic, theirs.statistic, rtol=1e-6)
        assert (found.noise, found.weight) == (theirs.noise, theirs.weight)
        largest = plan.data.feature_norm**2
        bound = min(theirs.statistic[0] + 2.0 * theirs.noise, largest) / largest
        np.testing.assert_allclose(known.settings.upsilon, 2 * plan.constants.smoothness * bound, rtol=1e-6)
    unsurveyed = engine.from_plans([plan], [3], dtype=np.float64)
    rules, data = engine.Rules.of(plan), stacked(plan, silos)
    assert not np.allclose(engine.simulate(rules, data, *unsurveyed)[0], compiled(plan, silos, [3])[0], rtol=1e-3)


def test_a_plan_that_begins_with_training_teaches_nothing_before() -> None:
    plan = plan_for(Logistic(), algorithm=ACCELERATED)
    known = simulated_state(plan, arrays_of(silos_for(plan.loss, plan.data)), 1)
    assert known.findings == {}
    assert str(known.settings) == str(ServerState.initial(plan).settings)


def in_stages(*changes: dict[str, Any], after: Sequence[Stage] = ()) -> Plan:
    """Return a plan that trains in a stage for each of the changes, then asks what `after` says."""
    plan = plan_for(Logistic(), rounds=4)
    (stage,) = plan.stages
    stages = tuple(stage.model_copy(update=change) for change in changes)

    def terms(own: SiloTerms) -> SiloTerms:
        (now,) = own.stages
        batches = [
            own.records if stage.sampling.takes_all else own.records // (2 * stage.rounds)
            for stage in (*stages, *after)
        ]
        louder = [StageTerms(batch=batch, sigma=(number + 1) * now.sigma) for number, batch in enumerate(batches)]
        return own.model_copy(update={"stages": tuple(louder)})

    made = plan.model_copy(update={"stages": (*stages, *after), "silos": tuple(terms(own) for own in plan.silos)})
    return Plan.model_validate(made.model_dump())


@pytest.mark.parametrize(
    "changes",
    [
        [{}, {"rounds": 3}],
        [{}, {"query": Gradient(clip=0.05)}],
        [{}, {"participation": PART, "rounds": 5}],
        [{"sampling": Poisson()}, {}, {"sampling": OnePass()}],
        [
            {"participation": PART, "sampling": FixedSize()},
            {"channel": OwnNoise(correlation=0.4), "sampling": OnePass()},
        ],
    ],
    ids=["rounds", "clip", "participation", "sampling", "channel"],
)
def test_stages_that_differ_follow_each_other_as_in_the_plain_loop(changes: list[dict[str, Any]]) -> None:
    assert_the_same_from_the_same_draws(in_stages(*changes))


def test_a_plan_that_asks_something_else_after_training_is_refused() -> None:
    late = Stage(query=Curvature(), rounds=1, sampling=Full())
    with pytest.raises(TrainingError, match="The simulator takes only plans"):
        engine.Rules.of(in_stages({}, after=[late]))


def test_phases_take_disjoint_halves_of_what_is_left_in_every_silo() -> None:
    plan = plan_for(Logistic(), algorithm=PHASES)
    silos = silos_for(Logistic(), plan.data)
    parts = [np.asarray(drawn(plan, silos, 5, [0] * 3, step).participation) for step in range(plan.steps)]
    owner = np.repeat(np.arange(3), list(SIZES.values()))
    for first, last, phase in ((0, 4, 1), (4, 7, 2), (7, 8, 3)):
        for part in parts[first:last]:
            np.testing.assert_array_equal(part, parts[first])
            counts = [part[owner == silo].sum() for silo in range(3)]
            assert counts == [size >> phase for size in SIZES.values()]
    assert np.max(parts[0] + parts[4] + parts[7]) == 1.0


def staged(smoothness: float, upsilon: float, average: Average) -> dict[str, Any]:
    stages = (Restart(rounds=3, upsilon=upsilon), Restart(rounds=5, upsilon=2 * upsilon))
    return {"algorithm": MultiStage(smoothness=smoothness, stages=stages, average=average), "ridge": 0.1}


@pytest.mark.parametrize(
    "settings",
    [
        [{"clip": clip, "rounds": 5} for clip in (0.1, 0.5, 2.0)],
        [staged(0.5, 0.0, "weighted"), staged(1.0, 5.0, "last"), staged(2.0, 9.0, "tail")],
    ],
    ids=["clips", "accelerated"],
)
def test_configurations_side_by_side_give_what_each_gives_alone(settings: list[dict[str, Any]]) -> None:
    plans = [plan_for(Logistic(), **own) for own in settings]
    silos = silos_for(Logistic(), plans[0].data)
    rules, data = engine.Rules.of(plans[0]), stacked(plans[0], silos)
    together = engine.simulate(rules, data, *engine.from_plans(plans, [1, 2, 3], dtype=np.float64))
    for place, plan in enumerate(plans):
        np.testing.assert_allclose(together[place], compiled(plan, silos, [place + 1])[0], rtol=1e-9)


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
    silos = silos_for(Logistic(), plan.data)
    owner = np.repeat(np.arange(3), list(SIZES.values()))
    used = np.zeros(sum(SIZES.values()))
    for step in range(plan.steps):
        chosen = np.asarray(drawn(plan, silos, 5, [step] * 3, step).participation)
        assert [chosen[owner == i].sum() for i in range(3)] == [terms.stages[0].batch for terms in plan.silos]
        used += chosen
    assert used.max() == 1.0 if sampling == "one-pass" else used.max() > 1.0


def test_errors_and_losses_are_those_of_the_model() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(50, 3))
    for loss in LOSSES[:4]:
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


def test_the_error_of_several_targets_is_the_mean_of_theirs() -> None:
    random, loss = np.random.default_rng(0), MultiSquared(targets=2)
    features, weights = random.normal(size=(50, 3)), random.normal(size=(2, 6))
    own = random.normal(size=(50, 2))
    values, errors = engine.evaluate(loss, weights, features, np.column_stack([own, np.zeros(50), np.ones(50)]))
    for row in range(2):
        squares = (features @ weights[row].reshape(3, 2) - own) ** 2
        np.testing.assert_allclose(values[row], squares.sum(axis=1).mean() / 2)
        np.testing.assert_allclose(errors[row], squares.mean())
