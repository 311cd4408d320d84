"""The compiled engine does what the plain loop does: same release, same steps, same numbers from same draws."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.planning.prescribe import Member, make_plan
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import Ball, Box, WholeSpace
from ringfence.protocol.losses import Huber, Logistic, Softmax, Squared
from ringfence.protocol.messages import Answer, NoisyUpdate, RoundRequest, pack, unpack
from ringfence.protocol.plan import MinibatchSGD, Participation, Plan
from ringfence.protocol.schema import Schema, parse_schema
from ringfence.server import rounds
from ringfence.silo import mechanism
from ringfence.silo.records import Records
from ringfence.simulation import engine

SIZES = {"north": 40, "south": 25, "west": 31}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Compare in float64, where rounding is far below any real difference."""
    with jax.enable_x64(True):
        yield


def schema_for(loss: Any) -> Schema:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target: Any = number
    if isinstance(loss, Logistic):
        target = {"type": "categorical", "categories": ["no", "yes"]}
    elif isinstance(loss, Softmax):
        target = {"type": "categorical", "categories": [f"class{i}" for i in range(loss.classes)]}
    return parse_schema({"columns": {"a": number, "b": number, "c": number, "y": target}}, target="y")


def silos_for(loss: Any, schema: Schema) -> dict[str, Records]:
    random = np.random.default_rng(4)
    silos = {}
    for name, size in SIZES.items():
        features = np.concatenate([random.uniform(-1, 1, (size, 3)), np.ones((size, 1))], axis=1)
        if isinstance(loss, Softmax):
            targets = random.integers(loss.classes, size=size).astype(float)
        else:
            targets = random.choice([-1.0, 1.0], size=size)
        silos[name] = Records(schema, features, targets)
    return silos


def plan_for(loss: Any, **changes: Any) -> Plan:
    members = [Member(name, size, 2.0, 1e-6) for name, size in SIZES.items()]
    algorithm = MinibatchSGD(step=0.5, momentum=0.5, skip=2, growth=1.1)
    return make_plan(schema_for(loss), members, loss=loss, **{"rounds": 8, "algorithm": algorithm, **changes})


def plain_loop(plan: Plan, silos: dict[str, Records], seed: int) -> FloatArray:
    """Run the plan through `release` and the server's loop, silo by silo, with the engine's draws."""
    rules, data = engine.Rules.of(plan), stacked(plan, silos)
    streams, _ = engine.from_plans([plan], [seed], dtype=np.float64)
    stream = engine.Streams(streams.seed[0], streams.batch[0])
    draw = jax.jit(partial(engine.draws, rules, data, stream))
    answered = np.zeros(len(silos), dtype=int)
    starts = np.cumsum([0, *SIZES.values()])

    def ask(request: RoundRequest, names: Sequence[str]) -> dict[str, Answer]:
        drawn = draw(jnp.asarray(answered), request.round)
        available = np.array(drawn.available)
        weights = np.array([terms.weight for terms in plan.silos])
        rates = available * weights * len(silos) / max(1, available.sum())
        scale = np.sqrt(sum((rate * t.sigma) ** 2 for rate, t in zip(rates, plan.silos, strict=True)))
        answers: dict[str, Answer] = {}
        for place, (name, records) in enumerate(silos.items()):
            if available[place]:
                taking_part = np.array(drawn.participation)[starts[place] : starts[place + 1]]
                # Noises that add up to the average's: each silo gets the same one.
                noise = scale * np.array(drawn.noise) / rates.sum()
                draws = mechanism.Draws(taking_part, noise)
                vector = mechanism.release(plan, plan.silos[place], unpack(request.weights), records, draws)
                answers[name] = NoisyUpdate(plan=request.plan, round=request.round, silo=name, vector=pack(vector))
        answered[:] += available
        return answers

    everybody = plan.model_copy(update={"participation": Participation()})  # the draws decide who answers
    return rounds.run(everybody, ask).weights


def stacked(plan: Plan, silos: dict[str, Records]) -> engine.Federation:
    arrays = [(records.features, records.targets) for records in silos.values()]
    return engine.federation(arrays, [terms.weight for terms in plan.silos], dtype=np.float64)


LOSSES = [Logistic(), Softmax(classes=3), Squared(), Huber(threshold=0.4)]


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
    plan = plan_for(loss, **changes)
    silos = silos_for(loss, plan.data)
    seeds = [3, 2**32 - 1]
    streams, runs = engine.from_plans([plan] * 2, seeds, dtype=np.float64)
    compiled = np.asarray(engine.simulate(engine.Rules.of(plan), stacked(plan, silos), streams, runs))
    assert not np.allclose(compiled[0], compiled[1])
    for row, seed in zip(compiled, seeds, strict=True):
        np.testing.assert_allclose(row, plain_loop(plan, silos, seed), rtol=1e-6, atol=1e-6)


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
