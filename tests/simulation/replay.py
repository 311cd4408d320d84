"""Small federations, and plans run through the silos' mechanism and the server's loop with the engine's draws."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    Answer,
    FloatArray,
    Logistic,
    MinibatchSGD,
    MultiSquared,
    NoisyUpdate,
    Plan,
    RoundRequest,
    Schema,
    Softmax,
    Task,
    pack,
    parse_schema,
    unpack,
)
from ringfence.protocol.plan.plan import EVERYBODY, task
from ringfence.server import rounds
from ringfence.silo.channels import SENDERS
from ringfence.silo.gate import mechanism
from ringfence.silo.records.records import Records
from ringfence.simulation import engine
from ringfence.simulation.gradient import StackedSilos
from ringfence.simulation.trials import simulated_state

SIZES = {"north": 40, "south": 25, "west": 31}

_draws = jax.jit(engine.draws, static_argnums=(0, 1))


def schema_for(loss: Any, person: str | None = None) -> Schema:
    """Return a schema of three numbers and a target that suits the loss."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target: Any = number
    if isinstance(loss, Logistic):
        target = {"type": "categorical", "categories": ["no", "yes"]}
    elif isinstance(loss, Softmax):
        target = {"type": "categorical", "categories": [f"class{i}" for i in range(loss.classes)]}
    columns = {"a": number, "b": number, "c": number, "y": target}
    if isinstance(loss, MultiSquared):
        columns |= {"z": number}
    return parse_schema({"columns": columns, "person": person}, target=["y", "z"] if "z" in columns else "y")


def silos_for(loss: Any, schema: Schema) -> dict[str, Records]:
    """Draw records for silos of unequal sizes; where the schema tells persons apart, they have up to six rows."""
    random = np.random.default_rng(4)
    silos = {}
    for name, records in SIZES.items():
        of_row = np.repeat(np.arange(records), random.integers(1, 7, records)) if schema.person else None
        size = records if of_row is None else len(of_row)
        features = np.concatenate([random.uniform(-1, 1, (size, 3)), np.ones((size, 1))], axis=1)
        if isinstance(loss, Softmax):
            targets = random.integers(loss.classes, size=size).astype(float)
        elif isinstance(loss, MultiSquared):
            targets = np.column_stack([random.uniform(-1, 1, (size, 2)), np.zeros(size), np.ones(size)])
        else:
            targets = random.choice([-1.0, 1.0], size=size)
        silos[name] = Records(schema, features, targets, of_row=of_row)
    return silos


def plan_for(loss: Any, **changes: Any) -> Plan:
    """Make a plan of eight rounds of minibatch SGD, by default."""
    members = [Member(name, size, 2.0, 1e-6) for name, size in SIZES.items()]
    algorithm = MinibatchSGD(step=0.5, momentum=0.5, skip=2, growth=1.1)
    request = PlanRequest(**{"loss": loss, "rounds": 8, "algorithm": algorithm, **changes})
    return make_plan(schema_for(loss, "patient" if request.person_rule else None), members, request)


def stacked(plan: Plan, silos: dict[str, Records]) -> StackedSilos:
    """Put the silos' records into the engine's form."""
    return engine.federation_of(plan, list(silos.values()), dtype=np.float64)


def arrays_of(silos: dict[str, Records]) -> list[tuple[FloatArray, FloatArray]]:
    """Return every silo's features and targets."""
    return [(records.features, records.targets) for records in silos.values()]


def compiled(plan: Plan, silos: dict[str, Records], seeds: Sequence[int]) -> FloatArray:
    """Run the plan in the engine, with what it asks before training; one row per seed."""
    known = [simulated_state(plan, list(silos.values()), seed) for seed in seeds]
    streams, runs = engine.from_plans([plan] * len(seeds), seeds, dtype=np.float64, learned=known)
    return np.asarray(engine.simulate(engine.Rules.of(plan), stacked(plan, silos), streams, runs))


def drawn(plan: Plan, silos: dict[str, Records], seed: int, answered: Any, step: int) -> engine.SimulatedDraws:
    """Return what the engine draws in a round of training, after so many answers of each silo in the same stage."""
    rules, (streams, _) = engine.Rules.of(plan), engine.from_plans([plan], [seed], dtype=np.float64)
    stream, place = engine.Streams(streams.seed[0], streams.batch[0], streams.coins[0]), rules.places[step]
    found: engine.SimulatedDraws = _draws(
        rules, rules.stages[place.stage], stacked(plan, silos), stream, jnp.asarray(answered), place
    )
    return found


class Replay:
    """Silos that answer by `release`, one by one, with one seed's draws: before training those of `trials`.

    The engine draws one noise for the server's average, scaled to what the answering silos' noises add up to; here
    every answering silo adds the same vector, such that their average has just that noise. With correlated noise the
    vector is the block's fresh Z. What the engine takes from its own copy of the schedule is compared with the plan's.
    """

    def __init__(self, plan: Plan, silos: dict[str, Records], seed: int) -> None:
        self.plan, self.silos, self.seed = plan, silos, seed
        self._before_training = np.random.default_rng(seed)
        self._answered = np.zeros((len(plan.stages), len(silos)), dtype=int)
        self._memories = [[SENDERS[type(stage.channel)].memory(stage.channel) for _ in silos] for stage in plan.stages]
        self._ends = np.cumsum(list(SIZES.values()))

    def run(self) -> rounds.RunResult:
        """Train; the draws decide who answers."""
        return rounds.run(asking_everybody(self.plan), self.ask)

    def ask(self, request: RoundRequest, names: Sequence[str]) -> dict[str, Answer]:
        """Answer a round."""
        assert names == list(self.silos)
        stage, number, _ = self.plan.place(request.round)
        works = [
            task(self.plan, terms, request.round, answered)
            for terms, answered in zip(self.plan.silos, self._answered[number].tolist(), strict=True)
        ]
        draws = self._training_draws(request, works) if stage.query.trains else self._other_draws(works)
        answers: dict[str, Answer] = {}
        for place, own in draws.items():
            name, records = list(self.silos.items())[place]
            weights, memory = unpack(request.argument), self._memories[number][place]
            vector = mechanism.release(self.plan, works[place], weights, records, own, memory)
            answers[name] = NoisyUpdate(plan=request.plan, round=request.round, silo=name, vector=pack(vector))
        return answers

    def _other_draws(self, works: list[Task]) -> dict[int, mechanism.Draws]:
        noises = self._before_training.standard_normal((len(works), works[0].length))
        return {
            place: mechanism.Draws(np.ones(size), work.sigma * noise)
            for place, (size, work, noise) in enumerate(zip(SIZES.values(), works, noises, strict=True))
        }

    def _training_draws(self, request: RoundRequest, works: list[Task]) -> dict[int, mechanism.Draws]:
        stage, number, _ = self.plan.place(request.round)
        step = request.round - (self.plan.rounds - self.plan.steps)
        ours = drawn(self.plan, self.silos, self.seed, self._answered[number], step)
        available = np.array(ours.available)
        assert np.array(ours.batch).tolist() == [work.batch for work in works]
        rates = available * [terms.weight for terms in self.plan.silos] * len(self.silos) / max(1, available.sum())
        sigmas = np.array([work.sigma for work in works])
        noise = np.sqrt(np.sum((rates * sigmas) ** 2)) * np.array(ours.noise) / max(rates.sum(), 1e-300)
        parts = np.split(np.array(ours.participation), self._ends[:-1])
        self._answered[number] += available
        for part, work, terms in zip(parts, works, self.plan.silos, strict=True):
            most = stage.sampling.most(records=terms.records, batch=work.batch)
            assert part.sum() == work.batch or (part.sum() <= most and most > work.batch)
        return {int(place): mechanism.Draws(parts[place], noise) for place in np.flatnonzero(available)}


def asking_everybody(plan: Plan) -> Plan:
    """Return the plan with every silo asked in every round: the engine's draws decide who answers."""
    stages = tuple(stage.model_copy(update={"participation": EVERYBODY}) for stage in plan.stages)
    return plan.model_copy(update={"stages": stages})
