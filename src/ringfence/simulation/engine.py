"""The compiled simulator: many private runs side by side, as two matrix products a round.

Every algorithm here asks every silo about the same weights, so the silos' clipped means, weighted and added
by the server, are one sum over all records, and their independent noises are one vector (`simulation.channels`).
A round of S configurations is therefore two products of the (records × features) matrix with S columns,
whatever the number of silos and however unequal they are. The sum is the silo's own `clipped_mean` and the
step the server's own `step`; a test runs a plan through both and through the plain loop with equal draws.

Nothing here is private: a simulator holds all records and draws seeded noise. It shows what a plan will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol import FloatArray, Full, Participation, PersonRule, Plan, Proximal, Sampling, WholeSpace
from ringfence.protocol.losses.base import LinearLoss
from ringfence.protocol.losses.targets import shifted, split_targets, values_of
from ringfence.protocol.plan.plan import EVERYBODY
from ringfence.server.algorithms import ALGORITHMS
from ringfence.server.state import ServerState
from ringfence.silo.records.records import Records
from ringfence.simulation.channels import SimulatedNoise, coins_of, simulated_noise
from ringfence.simulation.channels.own_noise import GaussianNoise
from ringfence.simulation.compilation import keep_compiled_programs
from ringfence.simulation.gradient import StackedSilos, along_axes, axes_of, clip_of, clipped_sum
from ringfence.simulation.sampling import participation

keep_compiled_programs()

_ALL_RECORDS, _INDEPENDENT, _EVERYWHERE = Full(), GaussianNoise(), Proximal(WholeSpace())


@dataclass(frozen=True)
class SimulatedStage:
    """A training stage as all runs of one compiled program share it; batch sizes may differ between runs."""

    rounds: int
    sampling: Sampling = _ALL_RECORDS
    participation: Participation = EVERYBODY
    noise: SimulatedNoise = _INDEPENDENT

    def __post_init__(self) -> None:
        """Refuse noise that the engine cannot simulate with the stage's participation."""
        self.noise.check(self.participation)

    @property
    def kind(self) -> tuple[type[Sampling], Participation, SimulatedNoise]:
        """The key of a compiled loop: neighbouring stages of one kind are one loop."""
        return type(self.sampling), self.participation, self.noise


class SimulatedRound(NamedTuple):
    """Where a round stands: its number among all rounds, its stage's number, and its number within the stage."""

    step: Any
    stage: Any
    round: Any


@dataclass(frozen=True)
class Rules:
    """Settings that all runs of one compiled program share."""

    loss: LinearLoss
    stages: tuple[SimulatedStage, ...]
    proximal: Proximal = _EVERYWHERE
    algorithm: str = "minibatch-sgd"
    person_rule: PersonRule | None = None

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the engine's rules for a plan's training stages."""
        if plan.held_out is not None:
            raise TrainingError(
                "The simulator trains on all records that it is given: plan with a held-out share of 0."
            )
        trains = [stage.query.trains for stage in plan.stages]
        if not any(trains) or trains != sorted(trains):
            raise TrainingError("The simulator takes only plans in which the last stages, and no others, train.")
        stages = [
            SimulatedStage(stage.rounds, stage.sampling, stage.participation, simulated_noise(stage.channel))
            for stage in plan.training_stages
        ]
        return cls(plan.loss, tuple(stages), plan.proximal, plan.algorithm.name, plan.person_rule)

    @property
    def places(self) -> list[SimulatedRound]:
        """Where every simulated round stands."""
        rounds = [(stage, round) for stage, own in enumerate(self.stages) for round in range(own.rounds)]
        return [SimulatedRound(step, *place) for step, place in enumerate(rounds)]


class Streams(NamedTuple):
    """U streams of randomness, one row each: its seed, every training stage's batch at each silo, and its coins."""

    seed: Any
    batch: Any
    coins: Any = None


class Configurations(NamedTuple):
    """S runs, one row each. Runs of one stream see the same draws, as runs to be compared should.

    `clip` has an entry for every training stage, `sigma` for every training stage and silo; a run without noise has
    sigma 0, one without clipping an infinite clip. `start` are the first weights; without it, 0.
    """

    settings: Any
    clip: Any
    sigma: Any
    stream: Any
    start: Any = None


class SimulatedDraws(NamedTuple):
    """A round's randomness: which silos answer, which records take part, and the noise of their average.

    `noise` has variance 1: the engine scales it to what the answering silos' noises add up to. `batch` is every silo's
    divisor in this round.
    """

    available: Any
    participation: Any
    noise: Any
    batch: Any


def federation(
    silos: Sequence[tuple[FloatArray, FloatArray]], weights: Sequence[float] | None = None, dtype: Any = np.float32
) -> StackedSilos:
    """Stack the silos' features and targets; they weigh as many records as they hold, unless weights are given."""
    sizes = np.array([len(targets) for _, targets in silos])
    features = np.concatenate([features for features, _ in silos])
    shares = sizes / sizes.sum() if weights is None else np.asarray(weights, dtype=np.float64)
    return StackedSilos(
        _array(dtype, features),
        _array(dtype, np.sqrt(np.sum(features * features, axis=1))),
        _array(dtype, np.concatenate([targets for _, targets in silos])),
        jnp.asarray(np.repeat(np.arange(len(silos)), sizes)),
        jnp.asarray(sizes),
        _array(dtype, shares),
    )


def federation_of(plan: Plan, silos: Sequence[Records], dtype: Any = np.float32) -> StackedSilos:
    """Stack the records of the plan's silos, by its weights: of persons, with what its rule lets their rows count."""
    rows = [(records.features, records.targets) for records in silos]
    stacked = federation(rows, [terms.weight for terms in plan.silos], dtype)
    persons = [records.persons for records in silos if records.persons is not None]
    if not persons:
        return stacked
    sizes = np.array([len(own) for own in persons])
    of_row = [first + own.of_row for first, own in zip(np.cumsum(sizes) - sizes, persons, strict=True)]
    return stacked._replace(
        silo=jnp.asarray(np.repeat(np.arange(len(sizes)), sizes)),
        sizes=jnp.asarray(sizes),
        of_row=jnp.asarray(np.concatenate(of_row)),
        counts=_array(dtype, np.concatenate([records.shares(plan, np.ones(len(records))) for records in silos])),
    )


def from_plans(
    plans: Sequence[Plan],
    seeds: Sequence[int],
    dtype: Any = np.float32,
    *,
    learned: Sequence[ServerState] | None = None,
) -> tuple[Streams, Configurations]:
    """Read what may differ between runs from plans that agree in all else; each plan has a stream of its own.

    `learned` is what the server knows of each when training begins (`simulation.trials`); without it, nothing.
    """
    known = [ServerState.initial(plan) for plan in plans] if learned is None else learned
    terms = [[[own.stages[number] for own in plan.silos] for number in plan.training_numbers] for plan in plans]
    streams = Streams(
        jnp.asarray(np.array(seeds, dtype=np.uint32)),
        jnp.asarray(np.array([[[own.batch for own in silos] for silos in stages] for stages in terms])),
        jnp.asarray(np.array([[coins_of(stage.channel) for stage in plan.training_stages] for plan in plans])),
    )
    runs = Configurations(
        jax.tree.map(lambda *values: _column(dtype, values), *(own.settings for own in known)),
        _array(dtype, [[clip_of(stage) for stage in plan.training_stages] for plan in plans]),
        _array(dtype, [[[own.sigma for own in silos] for silos in stages] for stages in terms]),
        jnp.arange(len(plans)),
        _array(dtype, [own.model() for own in known]),
    )
    return streams, runs


@partial(jax.jit, static_argnames=("rules",))
def simulate(rules: Rules, data: StackedSilos, streams: Streams, runs: Configurations) -> Any:
    """Run every configuration for all rounds and return the learned weights, one row per run."""
    algorithm = ALGORITHMS[rules.algorithm]
    width = data.features.shape[1]
    start: Any = jnp.zeros((len(runs.stream), rules.loss.dimension(width)), dtype=data.features.dtype)
    start = start if runs.start is None else runs.start
    axes = axes_of(runs.settings)
    data = along_axes(data, axes)
    ask = jax.vmap(algorithm.query_weights, (0, 0, None))

    def take_step(settings: Any, state: Any, gradient: Any, somebody: Any, round: Any) -> Any:
        """Take the simulated server's step, or none if nobody answered."""
        stepped = algorithm.step(settings, rules.proximal, state, gradient, round)
        return jax.tree.map(lambda new, old: jnp.where(somebody, new, old), stepped, state)

    advance = jax.vmap(take_step, (0, 0, 0, 0, None))

    def one_round(
        kind: SimulatedStage, carry: tuple[Any, Any, Any], place: SimulatedRound
    ) -> tuple[tuple[Any, Any, Any], None]:
        """Simulate a round of all runs: draw, average clipped gradients with noise, and take the steps."""
        state, answered, memory = carry
        answered = jnp.where(place.round == 0, 0, answered)
        drawn = jax.vmap(partial(draws, rules, kind, data), (0, 0, None))(streams, answered, place)
        rates = kind.noise.rates(data.weights, drawn.available, drawn.batch)
        asked = ask(runs.settings, state, place.step)
        gradient = clipped_sum(
            rules.loss,
            runs.clip[:, place.stage],
            jnp.moveaxis(rules.loss.matrix(asked, width), 0, 1),
            data=data,
            shares=_shares(kind, data, drawn, rates, runs.stream),
            rule=rules.person_rule,
            axes=axes,
        )
        scale = jnp.sqrt(jnp.sum((rates[runs.stream] * runs.sigma[:, place.stage]) ** 2, axis=1))
        noise, memory = kind.noise.remember(drawn.noise, memory, place.round)
        gradient = gradient + scale[:, None] * noise[runs.stream]
        somebody = jnp.any(drawn.available, axis=1)[runs.stream]
        return (advance(runs.settings, state, gradient, somebody, place.step), answered + drawn.available, memory), None

    state = jax.vmap(algorithm.init)(start)
    for _, alike in groupby(rules.places, key=lambda place: rules.stages[place.stage].kind):
        places = list(alike)
        kind = rules.stages[places[0].stage]
        rounds = 1 + max(place.round for place in places)
        memory = kind.noise.memory(len(streams.seed), start.shape[1], rounds, start.dtype)
        answered = jnp.zeros((len(streams.seed), len(data.sizes)), dtype=jnp.int32)
        numbers = SimulatedRound(*(jnp.asarray(column) for column in zip(*places, strict=True)))
        (state, _, _), _ = jax.lax.scan(partial(one_round, kind), (state, answered, memory), numbers)
    return jax.vmap(algorithm.output)(runs.settings, state)


def draws(
    rules: Rules, kind: SimulatedStage, data: StackedSilos, stream: Streams, answered: Any, place: SimulatedRound
) -> SimulatedDraws:
    """Draw a round of one stream, in a stage of that kind; `answered` counts each silo's earlier answers in it."""
    run = jax.random.key(stream.seed)
    silo_key, record_key, noise_key = jax.random.split(jax.random.fold_in(run, place.step), 3)
    silos, asked, probability = len(data.sizes), kind.participation.silos, kind.participation.probability
    available = jnp.ones(silos, dtype=bool)
    if asked is not None and kind.participation.answers is not None:  # silos take turns: those that had fewest
        waited = jnp.argsort(answered + jax.random.uniform(silo_key, (silos,)))
        available = (jnp.argsort(waited) < asked) & (answered < kind.participation.answers)
    elif asked is not None:
        available = jax.random.permutation(silo_key, silos) < asked
    elif probability is not None:
        available = jax.random.uniform(silo_key, (silos,)) < probability
    batch, dtype = stream.batch[place.stage], data.features.dtype
    coins = None if stream.coins is None else stream.coins[place.stage]
    begin = _begins(rules, data, stream.batch, answered)[place.stage]
    chosen = participation(
        kind.sampling, run, record_key, silo=data.silo, sizes=data.sizes, begin=begin, batch=batch, dtype=dtype
    )
    noise = kind.noise.draw(noise_key, rules.loss.dimension(data.features.shape[1]), available, batch, coins, dtype)
    return SimulatedDraws(available, chosen, noise, batch)


@partial(jax.jit, static_argnames=("loss",))
def evaluate(loss: LinearLoss, weights: Any, features: Any, targets: Any) -> tuple[Any, Any]:
    """Return every simulated run's mean loss and error: wrong labels, or the mean squared error of scaled numbers."""
    columns = jnp.moveaxis(loss.matrix(weights, features.shape[1]), 0, 1)
    scores: Any = jnp.tensordot(features, columns, axes=1)
    own, predicted = split_targets(targets), loss.predictions(shifted(scores, targets))
    truth: Any = own.targets[:, None] if loss.target_kind == "numbers" else own.numbers[:, None]
    error: Any = predicted != truth if loss.target_kind in ("label", "class") else (predicted - truth) ** 2
    each = jnp.mean(error, axis=2) if error.ndim == 3 else error
    return jnp.mean(values_of(loss, scores, targets), axis=0), jnp.mean(each, axis=0)


def _array(dtype: Any, values: Any) -> Any:
    """Return values as an array of the engine's number type."""
    return jnp.asarray(np.asarray(values), dtype=dtype)


def _column(dtype: Any, values: Sequence[Any]) -> Any:
    """Stack one setting of all simulated runs; whole numbers stay whole."""
    stacked = np.stack([np.asarray(value) for value in values])
    return jnp.asarray(stacked, dtype=None if np.issubdtype(stacked.dtype, np.integer) else dtype)


def _begins(rules: Rules, data: StackedSilos, batch: Any, answered: Any) -> Any:
    """Return, per stage and silo, where the next answer's part of the silo's partition begins; 0 if it has none."""
    parts = [
        stage.sampling.part(records=data.sizes, batch=batch[number], answered=answered)
        for number, stage in enumerate(rules.stages)
    ]
    return jnp.stack([jnp.broadcast_to(0 if part is None else part.first, data.sizes.shape) for part in parts])


def _shares(kind: SimulatedStage, data: StackedSilos, drawn: SimulatedDraws, rates: Any, stream: Any) -> Any:
    """Return what each record's gradient counts in the simulated server's average, per run where runs differ in it."""
    if kind.sampling.takes_all and kind.participation == EVERYBODY:  # the same records in every round
        return (data.weights / data.sizes)[data.silo]
    shares = drawn.participation * (rates / drawn.batch)[:, data.silo]
    return shares[stream].T.astype(data.features.dtype)
