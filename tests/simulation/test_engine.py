"""The compiled engine does what the plain loop does: same release, same steps, same numbers from same draws."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.errors import TrainingError
from ringfence.protocol.algorithms import Accelerated, Average, Localized, MultiStage, Phase, Restart
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.domain import Ball, Box, WholeSpace
from ringfence.protocol.losses import Huber, Logistic, MultiSquared, Softmax, Squared
from ringfence.protocol.plan import Participation, Plan, SiloTerms, Stage, StageTerms
from ringfence.protocol.questions import Gradient, Moments
from ringfence.protocol.sampling import FixedSize, Full, OnePass, Poisson
from ringfence.server.learned import Learned
from ringfence.simulation import engine
from ringfence.simulation.preliminary import learned
from tests.simulation.replay import SIZES, Replay, arrays_of, compiled, drawn, plan_for, silos_for, stacked


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Compare in float64, where rounding is far below any real difference."""
    with jax.enable_x64(True):
        yield


LOSSES = [Logistic(), Softmax(classes=3), Squared(), Huber(threshold=0.4), MultiSquared(targets=2)]
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
        (LOSSES[1], {"domain": Ball(radius=0.2), "ridge": 0.1, "lasso": 0.03}),
        (LOSSES[2], {"sampling": "one-pass", "domain": WholeSpace()}),
        (LOSSES[3], {"sampling": "fixed", "participation": Participation(probability=0.4)}),
        (LOSSES[4], {"sampling": "fixed", "participation": Participation(silos=2), "lasso": 0.02}),
    ],
    ids=str,
)
def test_the_compiled_engine_and_the_plain_loop_give_the_same_weights_from_the_same_draws(
    loss: Any, changes: dict[str, Any]
) -> None:
    assert_the_same_from_the_same_draws(plan_for(loss, **changes))


PART = Participation(silos=2)
ACCELERATED = Accelerated(smoothness=1.0)
STAGES = MultiStage(smoothness=1.0, stages=(Restart(rounds=3, pace=0.0), Restart(rounds=5, pace=6.0)))
PHASES = Localized(
    smoothness=1.0,
    phases=(Phase(rounds=4, penalty=0.1), Phase(rounds=3, penalty=0.8), Phase(rounds=1, penalty=6.4)),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": ACCELERATED},
        {"algorithm": ACCELERATED, "sampling": "fixed", "domain": Ball(radius=0.1)},
        {"algorithm": ACCELERATED, "lasso": 0.05, "domain": Box(lower=-0.3, upper=0.3)},
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


@pytest.mark.parametrize(
    "changes",
    [
        {"person_rule": "mean", "sampling": "poisson"},
        {"person_rule": "mean", "algorithm": ACCELERATED, "survey": True, "participation": PART},
        {"person_rule": "rows", "rows_per_person": 3, "sampling": "one-pass", "correlation": 0.4},
        {"person_rule": "sum", "sampling": "fixed", "participation": PART},
        {"person_rule": "sum", "loss": Softmax(classes=3)},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_so_they_do_where_a_record_is_a_person(changes: dict[str, Any]) -> None:
    assert_the_same_from_the_same_draws(plan_for(**{"loss": Logistic(), "clip": 0.4, **changes}))


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
        known = learned(plan, arrays_of(silos), seed)
        found, theirs = known.findings["curvature"], Replay(plan, silos, seed).run().findings["curvature"]
        np.testing.assert_allclose(found.statistic, theirs.statistic, rtol=1e-6)
        assert (found.noise, found.weight) == (theirs.noise, theirs.weight)
        largest = plan.data.feature_norm**2
        bound = min(theirs.statistic[0] + 2.0 * theirs.noise, largest) / largest
        np.testing.assert_allclose(known.settings.pace, 2 * plan.constants.smoothness * bound, rtol=1e-6)
    unsurveyed = engine.from_plans([plan], [3], dtype=np.float64)
    rules, data = engine.Rules.of(plan), stacked(plan, silos)
    assert not np.allclose(engine.simulate(rules, data, *unsurveyed)[0], compiled(plan, silos, [3])[0], rtol=1e-3)


def test_a_plan_that_begins_with_training_teaches_nothing_before() -> None:
    plan = plan_for(Logistic(), algorithm=ACCELERATED)
    known = learned(plan, arrays_of(silos_for(plan.loss, plan.data)), 1)
    assert known.findings == {}
    assert str(known.settings) == str(Learned.nothing(plan).settings)


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
        [{}, {"question": Gradient(clip=0.05)}],
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
    late = Stage(question=Moments(), rounds=1, sampling=Full())
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


def test_accelerated_runs_with_settings_of_their_own_go_side_by_side() -> None:
    variants: list[tuple[float, float, Average]] = [(0.5, 0.0, "weighted"), (1.0, 5.0, "last"), (2.0, 9.0, "tail")]
    specs = [
        MultiStage(
            smoothness=beta, stages=(Restart(rounds=3, pace=pace), Restart(rounds=5, pace=2 * pace)), average=average
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
