"""The compiled simulator: many private runs side by side, as two matrix products a round.

Every algorithm here asks every silo about the same weights, so the silos' clipped means, weighted and added
by the server, are one sum over all records, and their independent Gaussian noises are one Gaussian vector.
A round of S configurations is therefore two products of the (records × features) matrix with S columns,
whatever the number of silos and however unequal they are. The sum is the silo's own `clipped_mean` and the
step the server's own `step`; a test runs a plan through both and through the plain loop with equal draws.

Through a shuffler the silos' coins are one binomial number per coordinate. Their roundings are left out: of the
variance they are one part in K·b at most, for silos of K records with b coins each.

Nothing here is private: a simulator holds all records and draws seeded noise. It shows what a plan will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.errors import TrainingError
from ringfence.planning.correlation import inverse_coefficients
from ringfence.protocol.algorithms import Localized
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import Domain
from ringfence.protocol.plan import Participation, Plan, Sampling
from ringfence.server import survey
from ringfence.server.algorithms import ALGORITHMS, Algorithm, algorithm_of
from ringfence.silo.mechanism import clipped_mean, curvature

EVERYBODY = Participation()

BLOCK = 1024
"""Records per block where a single run is simulated: from here on XLA gives blocks to several threads."""


class Federation(NamedTuple):
    """All silos' records in one matrix, silo after silo; which silo each record belongs to; sizes and weights."""

    features: Any
    norms: Any
    targets: Any
    silo: Any
    sizes: Any
    weights: Any


class Streams(NamedTuple):
    """U streams of randomness, one row each: its seed, and the batch of every silo."""

    seed: Any
    batch: Any


class Configurations(NamedTuple):
    """S runs, one row each. Runs of one stream see the same draws, as runs to be compared should.

    `sigma` has one column per silo; a run without noise has sigma 0, one without clipping an infinite clip.
    """

    settings: Any
    clip: Any
    sigma: Any
    stream: Any


class Draws(NamedTuple):
    """A round's randomness: which silos answer, which records take part, and the noise of their average.

    `noise` has variance 1 and is normal, or binomial through a shuffler: the engine scales it to what the answering
    silos' noises add up to. `batch` is every silo's divisor in this round, and `loudness` its noise in units of its
    sigma.
    """

    available: Any
    participation: Any
    noise: Any
    batch: Any
    loudness: Any


class LinearLoss(Protocol):
    """What the engine needs of a loss: one of `protocol.losses`, or a `CustomLoss`."""

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""

    def values(self, scores: Any, targets: Any) -> Any:
        """Return the loss of every record."""

    def residuals(self, scores: Any, targets: Any) -> Any:
        """Return its derivative in the scores."""


@dataclass(frozen=True)
class Rules:
    """What all runs of one compiled program share; `coins` is how many each record brings to a shuffler, if any."""

    loss: LinearLoss
    domain: Domain
    rounds: int
    sampling: Sampling = "full"
    participation: Participation = EVERYBODY
    algorithm: str = "minibatch-sgd"
    phases: Localized | None = None
    correlation: float = 0.0
    coins: int | None = None

    def __post_init__(self) -> None:
        if self.correlation and self.participation != EVERYBODY:
            raise TrainingError(
                "The simulator adds all silos' noise up at once, which with correlated noise it can do only if every "
                "silo answers every round: leave the participation out."
            )

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the rules of a plan."""
        spec = plan.algorithm
        return cls(
            plan.loss,
            plan.domain,
            plan.rounds,
            plan.sampling,
            plan.participation,
            spec.name,
            spec if isinstance(spec, Localized) else None,
            plan.correlation,
            None if plan.shuffle is None else plan.shuffle.coins,
        )

    @property
    def same_records_always(self) -> bool:
        """Whether every record of every silo takes part in every round."""
        return self.sampling == "full" and self.participation == EVERYBODY


def federation(
    silos: Sequence[tuple[FloatArray, FloatArray]], weights: Sequence[float] | None = None, dtype: Any = np.float32
) -> Federation:
    """Stack the silos' features and targets; they weigh as many records as they hold, unless weights are given."""
    sizes = np.array([len(targets) for _, targets in silos])
    features = np.concatenate([features for features, _ in silos])
    shares = sizes / sizes.sum() if weights is None else np.asarray(weights, dtype=np.float64)
    return Federation(
        _array(dtype, features),
        _array(dtype, np.sqrt(np.sum(features * features, axis=1))),
        _array(dtype, np.concatenate([targets for _, targets in silos])),
        jnp.asarray(np.repeat(np.arange(len(silos)), sizes)),
        jnp.asarray(sizes),
        _array(dtype, shares),
    )


def from_plans(
    plans: Sequence[Plan],
    seeds: Sequence[int],
    dtype: Any = np.float32,
    *,
    smoothness: Sequence[float | None] | None = None,
) -> tuple[Streams, Configurations]:
    """Read what may differ between runs from plans that agree in all else; each plan has a stream of its own.

    `smoothness` is what each plan's survey found, if it has one (`surveyed_smoothness`).
    """
    found = [None] * len(plans) if smoothness is None else smoothness
    rows = [algorithm_of(plan).settings(plan, beta) for plan, beta in zip(plans, found, strict=True)]
    streams = Streams(
        jnp.asarray(np.array(seeds, dtype=np.uint32)),
        jnp.asarray(np.array([[terms.batch for terms in plan.silos] for plan in plans])),
    )
    runs = Configurations(
        type(rows[0])(*(_column(dtype, values) for values in zip(*rows, strict=True))),
        _array(dtype, [plan.clip for plan in plans]),
        _array(dtype, [[terms.sigma for terms in plan.silos] for plan in plans]),
        jnp.arange(len(plans)),
    )
    return streams, runs


def surveyed_smoothness(plan: Plan, silos: Sequence[tuple[FloatArray, FloatArray]], seed: int) -> float | None:
    """Simulate the plan's survey, in which every silo answers, and return the β that the server makes of it."""
    if plan.survey is None or plan.survey.statistic != "curvature":
        return None
    noise = np.random.default_rng(seed).standard_normal(len(silos))
    answers = [curvature(features) for features, _ in silos] + noise * [t.survey_sigma for t in plan.silos]
    mean = np.array([np.sum([terms.weight * answer for terms, answer in zip(plan.silos, answers, strict=True)])])
    return survey.smoothness(plan, survey.findings(plan, mean, [terms.name for terms in plan.silos]))


@partial(jax.jit, static_argnames=("rules",))
def simulate(rules: Rules, data: Federation, streams: Streams, runs: Configurations) -> Any:
    """Run every configuration for all rounds and return the learned weights, one row per run."""
    algorithm = ALGORITHMS[rules.algorithm]
    width, outputs = data.features.shape[1], rules.loss.outputs
    start: Any = jnp.zeros((len(runs.stream), width * outputs), dtype=data.features.dtype)
    draw = jax.vmap(partial(draws, rules, data), (0, 0, None))
    ask = jax.vmap(algorithm.query, (0, 0, None))
    advance = jax.vmap(partial(_advance, algorithm, rules.domain), (0, 0, 0, 0, None))

    def one_round(carry: tuple[Any, Any, Any], round: Any) -> tuple[tuple[Any, Any, Any], None]:
        state, answered, past = carry
        drawn = draw(streams, answered, round)
        rates = _rates(rules, data, drawn)
        asked = ask(runs.settings, state, round)
        weights: Any = jnp.moveaxis(asked.reshape(-1, width, outputs), 0, 1)
        shares = _shares(rules, data, drawn, rates, runs.stream)
        mean = _clipped_sum(rules.loss, runs.clip, weights, data, shares)
        scale = jnp.sqrt(jnp.sum(((rates * drawn.loudness)[runs.stream] * runs.sigma) ** 2, axis=1))
        noise, past = _correlate(rules, drawn.noise, past, round)
        gradient = jnp.moveaxis(mean, 1, 0).reshape(start.shape) + scale[:, None] * noise[runs.stream]
        somebody = jnp.any(drawn.available, axis=1)[runs.stream]
        return (advance(runs.settings, state, gradient, somebody, round), answered + drawn.available, past), None

    rows = rules.rounds if rules.correlation else 0
    past = jnp.zeros((len(streams.seed), rows, start.shape[1]), dtype=start.dtype)
    begin = (jax.vmap(algorithm.init)(start), jnp.zeros(streams.batch.shape, dtype=jnp.int32), past)
    (state, _, _), _ = jax.lax.scan(one_round, begin, jnp.arange(rules.rounds))
    return jax.vmap(algorithm.output)(runs.settings, state)


def draws(rules: Rules, data: Federation, stream: Streams, answered: Any, round: Any) -> Draws:
    """Draw a round of one stream. `answered` counts each silo's earlier answers, which one-pass batches go by."""
    run = jax.random.key(stream.seed)
    silo_key, record_key, noise_key = jax.random.split(jax.random.fold_in(run, round), 3)
    silos, asked, probability = len(data.sizes), rules.participation.silos, rules.participation.probability
    available = jnp.ones(silos, dtype=bool)
    if asked is not None:
        available = jax.random.permutation(silo_key, silos) < asked
    elif probability is not None:
        available = jax.random.uniform(silo_key, (silos,)) < probability
    # A partition is drawn once for the whole run.
    record_key = run if rules.sampling in ("one-pass", "phased") else record_key
    begin, batch, loudness = _task(rules, data, stream.batch, answered, round)
    participation = _participation(rules.sampling, record_key, data, begin, batch)
    noise = jax.random.normal(noise_key, (data.features.shape[1] * rules.loss.outputs,), dtype=data.features.dtype)
    if rules.coins is not None:
        noise = standard_binomial(noise, rules.coins, jnp.sum(available * batch))
    return Draws(available, participation, noise, batch, loudness)


def standard_binomial(normal: Any, coins: int, records: Any) -> Any:
    """Turn standard normal numbers into Bin(T, 1/2), T = coins·records, minus its mean, over its deviation √T/2.

    By quantiles: P(Bin ≤ k) = Φ(z) for k + 1/2 = T/2 + (√T/2)(z + (z − z³)/(12T)), up to order 1/T² (Cornish and
    Fisher, with the correction for whole numbers), so rounding the right side gives k. A test compares it with the
    exact distribution. JAX's own sampler is no use here: in single precision, and from ten million trials on, its
    numbers have the wrong variance.
    """
    trials = coins * records.astype(normal.dtype)
    deviation = jnp.sqrt(trials) / 2
    quantile = deviation * (normal + (normal - normal**3) / (12 * trials))
    half = (coins * records) % 2 / 2  # whole numbers of heads are so far from T/2, up to whole numbers
    most = trials / 2
    return jnp.clip(jnp.round(quantile - half) + half, -most, most) / deviation


@partial(jax.jit, static_argnames=("loss",))
def evaluate(loss: LinearLoss, weights: Any, features: Any, targets: Any) -> tuple[Any, Any]:
    """Return every run's mean loss and error: the share of wrong labels, or the mean squared error of a number."""
    columns = jnp.moveaxis(weights.reshape(len(weights), features.shape[1], -1), 0, 1)
    scores: Any = jnp.tensordot(features, columns, axes=1)
    truth = targets[:, None]
    kind = getattr(loss, "target_kind", "number")  # a custom loss is about a number
    if kind == "class":
        error = jnp.argmax(scores, axis=2) != truth
    elif kind == "label":
        error = jnp.where(scores[..., 0] > 0, 1.0, -1.0) != truth
    else:
        error = (scores[..., 0] - truth) ** 2
    return jnp.mean(loss.values(scores, targets), axis=0), jnp.mean(error, axis=0)


def _array(dtype: Any, values: Any) -> Any:
    return jnp.asarray(np.asarray(values), dtype=dtype)


def _column(dtype: Any, values: Sequence[Any]) -> Any:
    """Stack one setting of all runs; whole numbers stay whole."""
    stacked = np.stack([np.asarray(value) for value in values])
    return jnp.asarray(stacked, dtype=None if np.issubdtype(stacked.dtype, np.integer) else dtype)


def _task(rules: Rules, data: Federation, batch: Any, answered: Any, round: Any) -> tuple[Any, Any, Any]:
    """Return, per silo, where its part of the partition begins, how many records it takes, and how loud its noise is.

    The compiled form of `protocol.schedule.task`.
    """
    quiet = jnp.ones(len(data.sizes), dtype=data.features.dtype)
    if rules.phases is None:
        return (answered * batch if rules.sampling == "one-pass" else jnp.zeros_like(batch)), batch, quiet
    rounds = np.array([phase.rounds for phase in rules.phases.phases])
    sizes = jnp.stack([data.sizes >> (phase + 1) for phase in range(len(rounds))])
    now = jnp.asarray(np.repeat(np.arange(len(rounds)), rounds))[round]
    loudness = jnp.sqrt(jnp.asarray(rounds / rounds[0], dtype=quiet.dtype))[now] * sizes[0] / sizes[now]
    return (jnp.cumsum(sizes, axis=0) - sizes)[now], sizes[now], loudness.astype(quiet.dtype)


def _correlate(rules: Rules, fresh: Any, past: Any, round: Any) -> tuple[Any, Any]:
    """Return the round's noise, with correlation Σ_j d_{r−j}·Z_j of all rounds so far, and the past with it."""
    if not rules.correlation:
        return fresh, past
    past = past.at[:, round].set(fresh)
    inverse = jnp.asarray(inverse_coefficients(rules.correlation, rules.rounds), dtype=fresh.dtype)
    lag = round - jnp.arange(rules.rounds)
    return jnp.tensordot(past, jnp.where(lag >= 0, inverse[lag], 0.0), axes=[[1], [0]]), past


def _participation(sampling: Sampling, key: Any, data: Federation, begin: Any, batch: Any) -> Any:
    """Return 1 for every record that takes part."""
    records = len(data.targets)
    if sampling == "full":
        return jnp.ones(records, dtype=data.features.dtype)
    wanted = batch[data.silo]
    if sampling == "poisson":
        return (jax.random.uniform(key, (records,)) < wanted / data.sizes[data.silo]).astype(data.features.dtype)
    # A record's key: its silo, then luck. Sorted, every silo's records stand in random order, and who comes
    # before a place is who has a smaller key. (Two equal keys would share a place: about one case in 2²⁷/n.)
    silos = len(data.sizes)
    luck = jax.random.bits(key, (records,), dtype=jnp.uint32) >> (silos - 1).bit_length()
    keys = (data.silo.astype(jnp.uint32) << (32 - (silos - 1).bit_length())) | luck
    ordered, first = jnp.sort(keys), jnp.cumsum(data.sizes) - data.sizes
    end = jnp.minimum(begin + batch, data.sizes)
    before, last = ordered[first + jnp.maximum(begin, 1) - 1], ordered[first + end - 1]
    chosen = ((begin == 0)[data.silo] | (keys > before[data.silo])) & (keys <= last[data.silo])
    return chosen.astype(data.features.dtype)


def _clipped_sum(loss: LinearLoss, clip: Any, weights: Any, data: Federation, shares: Any) -> Any:
    """Return the silo's clipped mean over all records; for a single run, added up from blocks of them.

    XLA is slow at a product of one tall matrix with one column, and fast at many short ones.
    """

    def add_up(features: Any, norms: Any, targets: Any, shares: Any) -> Any:
        return clipped_mean(loss, clip, weights=weights, features=features, norms=norms, targets=targets, shares=shares)

    if weights.shape[1] > 1:
        return add_up(data.features, data.norms, data.targets, shares)
    records = len(data.targets)
    empty = -records % BLOCK  # rows whose share is 0

    def blocks(values: Any) -> Any:
        padded = jnp.pad(values, [(0, empty), *[(0, 0)] * (values.ndim - 1)])
        return padded.reshape(-1, BLOCK, *values.shape[1:])

    parts = jax.vmap(add_up)(*map(blocks, (data.features, data.norms, data.targets, shares)))
    return jnp.sum(parts, axis=0)


def _rates(rules: Rules, data: Federation, drawn: Draws) -> Any:
    """Return what the server multiplies each silo's update by: N/M times its weight, or 0 if it is not there.

    Through a shuffler it sees but a total, and divides it by the number of records in it.
    """
    if rules.coins is not None:
        mixed = (drawn.available * drawn.batch).astype(data.weights.dtype)
        return mixed / jnp.sum(mixed, axis=1, keepdims=True)
    silos = len(data.sizes)
    answering = jnp.maximum(jnp.sum(drawn.available, axis=1, keepdims=True), 1)
    return drawn.available * data.weights * (silos / answering)


def _shares(rules: Rules, data: Federation, drawn: Draws, rates: Any, stream: Any) -> Any:
    """Return what each record's gradient counts in the server's average, per run where runs differ in it."""
    if rules.same_records_always:
        return (data.weights / data.sizes)[data.silo]
    shares = drawn.participation * (rates / drawn.batch)[:, data.silo]
    return shares[stream].T.astype(data.features.dtype)


def _advance(
    algorithm: Algorithm, domain: Domain, settings: Any, state: Any, gradient: Any, somebody: Any, round: Any
) -> Any:
    """Take the server's step, or none if nobody answered."""
    stepped = algorithm.step(settings, domain.project, state, gradient, round)
    return jax.tree.map(lambda new, old: jnp.where(somebody, new, old), stepped, state)
