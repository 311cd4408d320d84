"""Small federations, and plans run through the silos' mechanism and the server's loop with the engine's draws."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.planning.prescribe import Member, make_plan
from ringfence.protocol.algorithms import MinibatchSGD
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import Logistic, Softmax
from ringfence.protocol.messages import Answer, NoisyUpdate, RoundRequest, pack, unpack
from ringfence.protocol.plan import Participation, Plan
from ringfence.protocol.schedule import Task, task
from ringfence.protocol.schema import Schema, parse_schema
from ringfence.server import rounds
from ringfence.silo import mechanism
from ringfence.silo.records import Records
from ringfence.simulation import engine

SIZES = {"north": 40, "south": 25, "west": 31}

_draws = jax.jit(engine.draws, static_argnums=0)


def schema_for(loss: Any) -> Schema:
    """Return a schema of three numbers and a target that suits the loss."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target: Any = number
    if isinstance(loss, Logistic):
        target = {"type": "categorical", "categories": ["no", "yes"]}
    elif isinstance(loss, Softmax):
        target = {"type": "categorical", "categories": [f"class{i}" for i in range(loss.classes)]}
    return parse_schema({"columns": {"a": number, "b": number, "c": number, "y": target}}, target="y")


def silos_for(loss: Any, schema: Schema) -> dict[str, Records]:
    """Draw records for silos of unequal sizes."""
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
    """Make a plan of eight rounds of minibatch SGD, unless told otherwise."""
    members = [Member(name, size, 2.0, 1e-6) for name, size in SIZES.items()]
    algorithm = MinibatchSGD(step=0.5, momentum=0.5, skip=2, growth=1.1)
    return make_plan(schema_for(loss), members, loss=loss, **{"rounds": 8, "algorithm": algorithm, **changes})


def stacked(plan: Plan, silos: dict[str, Records]) -> engine.Federation:
    """Put the silos' records into the engine's form."""
    return engine.federation(arrays_of(silos), [terms.weight for terms in plan.silos], dtype=np.float64)


def arrays_of(silos: dict[str, Records]) -> list[tuple[FloatArray, FloatArray]]:
    """Return every silo's features and targets."""
    return [(records.features, records.targets) for records in silos.values()]


def compiled(plan: Plan, silos: dict[str, Records], seeds: Sequence[int]) -> FloatArray:
    """Run the plan in the engine, with its survey if it has one; one row per seed."""
    found = [engine.surveyed_smoothness(plan, arrays_of(silos), seed) for seed in seeds]
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, dtype=np.float64, smoothness=found)
    return np.asarray(engine.simulate(engine.Rules.of(plan), stacked(plan, silos), streams, runs))


class Replay:
    """Silos that answer by `release`, one by one, with the engine's draws of one seed.

    The engine draws one noise for the server's average, scaled to what the answering silos' noises add up to; here
    every answering silo adds the same vector, such that their average has just that noise. With correlated noise the
    vector is the block's fresh Z. What the engine takes from its own copy of the schedule is compared with the plan's.
    """

    def __init__(self, plan: Plan, silos: dict[str, Records], seed: int) -> None:
        self.plan, self.silos = plan, silos
        streams, _ = engine.from_plans([plan], [seed], dtype=np.float64)
        stream = engine.Streams(streams.seed[0], streams.batch[0])
        self._draw = partial(_draws, engine.Rules.of(plan), stacked(plan, silos), stream)
        self._survey_noise = np.random.default_rng(seed).standard_normal(len(silos))
        self._answered = np.zeros(len(silos), dtype=int)
        self._blocks = [mechanism.Block() if plan.correlation else None for _ in silos]
        self._ends = np.cumsum(list(SIZES.values()))

    def run(self) -> rounds.Trained:
        """Train; the draws decide who answers."""
        everybody = self.plan.model_copy(update={"participation": Participation()})
        return rounds.run(everybody, self.ask)

    def ask(self, request: RoundRequest, names: Sequence[str]) -> dict[str, Answer]:
        """Answer a round."""
        assert names == list(self.silos)
        works = [
            task(self.plan, terms, request.round, answered)
            for terms, answered in zip(self.plan.silos, self._answered.tolist(), strict=True)
        ]
        surveys = request.round < self.plan.preliminaries
        draws = self._survey_draws(works) if surveys else self._gradient_draws(request, works)
        answers: dict[str, Answer] = {}
        for place, own in draws.items():
            name, records = list(self.silos.items())[place]
            weights, block = unpack(request.weights), self._blocks[place]
            vector = mechanism.release(self.plan, works[place], weights, records, own, block)
            answers[name] = NoisyUpdate(plan=request.plan, round=request.round, silo=name, vector=pack(vector))
        return answers

    def _survey_draws(self, works: list[Task]) -> dict[int, mechanism.Draws]:
        noises = [
            noise * np.full(work.length, work.sigma) for noise, work in zip(self._survey_noise, works, strict=True)
        ]
        sizes = SIZES.values()
        return {i: mechanism.Draws(np.ones(n), z) for i, (n, z) in enumerate(zip(sizes, noises, strict=True))}

    def _gradient_draws(self, request: RoundRequest, works: list[Task]) -> dict[int, mechanism.Draws]:
        drawn = self._draw(jnp.asarray(self._answered), request.round - self.plan.preliminaries)
        available, loudness = np.array(drawn.available), np.array(drawn.loudness)
        assert np.array(drawn.batch).tolist() == [work.batch for work in works]
        sigmas = loudness * [terms.sigma for terms in self.plan.silos]
        # The plan's later phases are louder by a millionth, which covers rounding.
        np.testing.assert_allclose([work.sigma for work in works], sigmas, rtol=1.01e-6)
        rates = available * [terms.weight for terms in self.plan.silos] * len(self.silos) / max(1, available.sum())
        noise = np.sqrt(np.sum((rates * sigmas) ** 2)) * np.array(drawn.noise) / max(rates.sum(), 1e-300)
        parts = np.split(np.array(drawn.participation), self._ends[:-1])
        self._answered += available
        for part, work in zip(parts, works, strict=True):
            assert part.sum() == work.batch or self.plan.sampling == "poisson"
        return {int(place): mechanism.Draws(parts[place], noise) for place in np.flatnonzero(available)}
