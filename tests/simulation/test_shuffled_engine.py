"""Through a shuffler the compiled engine does what gates, shuffler and server do, up to the silos' roundings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from ringfence.accounting.channels.shuffler import MIXED
from ringfence.federation.local_shuffler import LocalShuffler, local_shuffler
from ringfence.federation.training import Silo, train
from ringfence.planning.channels.coins import shares_needed
from ringfence.protocol import (
    Accelerated,
    FloatArray,
    Logistic,
    MinibatchSGD,
    MultiStage,
    Participation,
    Plan,
    Restart,
    RoundRequest,
    SealedUpdate,
    ShufflerChannel,
    SiloTerms,
    Softmax,
    StageTerms,
    Task,
    unpack,
)
from ringfence.protocol.plan.plan import task
from ringfence.server import rounds
from ringfence.server.channels import Totals
from ringfence.server.channels.shuffler import mean_of_totals
from ringfence.silo.channels.shuffler import Coins
from ringfence.silo.gate import mechanism, sampling
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.queries.gradient import clipped_mean
from ringfence.silo.records.records import Records
from ringfence.simulation import engine
from ringfence.simulation.channels.shuffler import standard_binomial
from ringfence.simulation.gradient import clip_of
from tests.simulation.replay import SIZES, arrays_of, asking_everybody, drawn, plan_for, silos_for, stacked

STAGES = MultiStage(smoothness=1.0, stages=(Restart(rounds=1, upsilon=0.0), Restart(rounds=2, upsilon=6.0)))
SEED = 3
FALSE_ALARM = 1e-6


pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.fixture(scope="module")
def local() -> Iterator[LocalShuffler]:
    """A real shuffler, and everybody's keys."""
    with local_shuffler(SIZES) as shuffler:
        yield shuffler


def channel_of(plan: Plan) -> ShufflerChannel:
    """Return the channel of the plan's only stage."""
    (stage,) = plan.stages
    assert isinstance(stage.channel, ShufflerChannel)
    return stage.channel


def finely(plan: Plan, coins: int = 2**30) -> Plan:
    """Return the plan with so many levels and coins that roundings vanish beside the noise, and little privacy."""
    (stage,), coarse = plan.stages, channel_of(plan)
    honest = coarse.quorum - coarse.colluders
    needed = shares_needed(parties=honest, bits=8 * 5 * coarse.block, distance=MIXED)
    channel = coarse.model_copy(update={"levels": 2**16, "coins": coins, "width": 5, "shares": needed})

    def terms(own: SiloTerms) -> SiloTerms:
        (now,) = own.stages
        guarantees = tuple(
            guarantee.model_copy(update={"epsilon": epsilon})
            for guarantee, epsilon in zip(own.guarantees, (1e3, 1e4), strict=True)
        )
        finer = StageTerms(batch=now.batch, sigma=channel.sigma(clip_of(stage), now.batch))
        return own.model_copy(update={"stages": (finer,), "guarantees": guarantees})

    stages, silos = (stage.model_copy(update={"channel": channel}),), tuple(terms(own) for own in plan.silos)
    return Plan.model_validate(plan.model_copy(update={"stages": stages, "silos": silos}).model_dump())


def federation(plan: Plan, local: LocalShuffler, folder: Path) -> tuple[dict[str, Records], dict[str, Silo]]:
    records = silos_for(plan.loss, plan.data)
    return records, {name: Silo(own, folder / f"{name}.ledger", key=local.silos[name]) for name, own in records.items()}


def simulated(plan: Plan, records: dict[str, Records], seed: int = SEED) -> FloatArray:
    streams, runs = engine.from_plans([plan], [seed], dtype=np.float64)
    return np.asarray(engine.simulate(engine.Rules.of(plan), stacked(plan, records), streams, runs)[0])


class Replay:
    """The engine's draws for the silos' mechanism: the first silo that answers tosses all coins, and all round up at ½.

    `answered` counts each silo's answers, which one-pass batches go by.
    """

    def __init__(self, plan: Plan, records: dict[str, Records]) -> None:
        self.plan, self.records = plan, records
        self.answered = np.zeros(len(records), dtype=int)

    def round(self, round: int) -> dict[str, Draws]:
        """Return the draws of every silo that answers."""
        ours = drawn(self.plan, self.records, SEED, self.answered, round)
        there = np.flatnonzero(np.asarray(ours.available))
        trials = channel_of(self.plan).coins * sum(self.plan.silos[place].stages[0].batch for place in there)
        heads = trials / 2 + np.asarray(ours.noise) * np.sqrt(trials) / 2
        np.testing.assert_allclose(heads, np.round(heads), atol=1e-3)  # whole numbers, but for float64
        parts = np.split(np.asarray(ours.participation), np.cumsum(list(SIZES.values()))[:-1])
        self.answered[there] += 1
        half, tossed = np.full(self.plan.dimension, 0.5), np.round(heads).astype(np.int64)
        return {
            self.plan.silos[place].name: Draws(parts[place], Coins(tossed * (place == there[0]), half))
            for place in there
        }


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": Accelerated(smoothness=1.0)},
        {"algorithm": Accelerated(smoothness=1.0), "sampling": "one-pass"},
        {"algorithm": STAGES, "sampling": "one-pass", "ridge": 0.2},
        {"algorithm": Accelerated(smoothness=1.0), "sampling": "one-pass", "person_rule": "sum"},
        {"algorithm": "preconditioned", "survey": False},
    ],
    ids=["accelerated", "one-pass", "one-pass in stages", "persons", "preconditioned"],
)
def test_engine_and_real_gates_give_the_same_weights_from_the_same_draws(
    changes: dict[str, Any], local: LocalShuffler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = finely(plan_for(Logistic(), rounds=3, trust="shuffler", keys=local.keys, **changes))
    records, silos = federation(plan, local, tmp_path)
    replay = Replay(plan, records)
    draws_of = [replay.round(round) for round in range(plan.rounds)]
    answers = dict.fromkeys(SIZES, 0)

    def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
        draws = draws_of[answers[terms.name]][terms.name]
        answers[terms.name] += 1
        assert draws.participation.sum() == work.batch
        return draws

    monkeypatch.setattr(sampling, "draw", draw)
    weights = train(plan, silos, collect=local.collect(plan)).model.coefficients
    # Half a level per silo is 2e-6 of a round's mean at most; the noise is 0.1 of it.
    np.testing.assert_allclose(weights.reshape(-1), simulated(plan, records), atol=1e-4)
    assert not np.allclose(simulated(plan, records), simulated(plan, records, seed=SEED + 1), atol=1e-2)


def test_where_some_silos_answer_the_mean_is_over_their_records_and_has_their_coins(local: LocalShuffler) -> None:
    plan = finely(
        plan_for(
            Softmax(classes=3),
            rounds=4,
            sampling="one-pass",
            algorithm=Accelerated(smoothness=1.0),
            participation=Participation(silos=2),
            trust="shuffler",
            colluders=0,
            keys=local.keys,
        )
    )
    records = silos_for(plan.loss, plan.data)
    replay, weights_asked, (stage,) = Replay(plan, records), {}, plan.stages

    def ask(request: RoundRequest, names: Sequence[str]) -> dict[str, Any]:
        weights_asked[request.round] = unpack(request.argument)
        return {
            name: SealedUpdate(plan=request.plan, round=request.round, silo=name, envelope="", signature="0" * 128)
            for name in names
        }

    def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals:
        answered = replay.answered.copy()
        numbers = np.zeros(channel_of(plan).numbers(plan, stage), dtype=np.int64)
        draws = replay.round(round)
        for place, own in enumerate(plan.silos):
            if own.name in draws:
                work = task(plan, own, round, int(answered[place]))
                held, weights = records[own.name], weights_asked[round]
                numbers += mechanism.release(plan, work, weights, held, draws[own.name])
        return Totals(2, numbers)

    trained = rounds.run(asking_everybody(plan), ask, collect=collect)
    np.testing.assert_allclose(trained.weights, simulated(plan, records), atol=1e-4)


def test_plans_that_differ_in_coins_alone_share_a_compiled_program_and_not_their_noise(local: LocalShuffler) -> None:
    plan = plan_for(Logistic(), rounds=3, algorithm=MinibatchSGD(step=0.5), trust="shuffler", keys=local.keys)
    plans = [finely(plan, coins) for coins in (2**30, 2**26)]
    assert len({engine.Rules.of(own) for own in plans}) == 1, "the key of a compiled program"
    more, fewer = (simulated(own, silos_for(plan.loss, plan.data)) for own in plans)
    # Both draw the same normal numbers, and a quarter of the deviation is left of them.
    assert not np.allclose(more, fewer, atol=1e-2)


@pytest.mark.parametrize(("trials", "off"), [(9, 4e-4), (50, 2e-5), (1001, 1e-7), (10_000, 1e-9)])
def test_quantiles_of_a_normal_make_a_binomial(trials: int, off: float) -> None:
    """By bisection: where the number of heads changes from k to k + 1, the normal's probability is P(Bin ≤ k)."""
    heads = np.arange(trials)
    low, high = np.full(trials, -12.0), np.full(trials, 12.0)
    for _ in range(60):
        middle = (low + high) / 2
        found = np.asarray(standard_binomial(jnp.asarray(middle), trials, jnp.asarray(1)))
        above = trials / 2 + found * np.sqrt(trials) / 2 > heads + 0.5
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    assert np.abs(norm.cdf(low) - binom.cdf(heads, trials, 0.5)).max() < off


def test_in_single_precision_billions_of_coins_are_no_problem() -> None:
    """The mean and the variance of a million numbers, each at a false-alarm rate of 5e-7."""
    with jax.enable_x64(False):
        normal = jax.random.normal(jax.random.key(1), (1_000_000,), dtype=jnp.float32)
        coins = np.asarray(standard_binomial(normal, 1000, jnp.asarray(2**22)), dtype=np.float64)
    assert abs(coins.mean()) * 1000 < norm.isf(FALSE_ALARM / 4)
    low, high = chi2.ppf(FALSE_ALARM / 4, len(coins)), chi2.isf(FALSE_ALARM / 4, len(coins))
    assert low < np.sum(coins**2) < high


def test_gates_with_a_shuffler_and_the_engine_have_the_same_noise(local: LocalShuffler, tmp_path: Path) -> None:
    """χ² of 480 numbers of either, at a false-alarm rate of 1e-6 for all; with over 5,000 coins, these count as normal.

    The weights hardly move from 0, so every round's mean is the same. The gates' roundings add to the variance, each
    silo's at most a quarter of a level's square.
    """
    tiny = MinibatchSGD(step=1e-12)
    plan = plan_for(Softmax(classes=3), rounds=40, algorithm=tiny, trust="shuffler", keys=local.keys)
    channel, clip, (records, silos) = channel_of(plan), clip_of(plan.stages[0]), federation(plan, local, tmp_path)
    assert channel.coins * sum(SIZES.values()) > 5_000
    seen: list[FloatArray] = []
    real = local.collect(plan)

    def collect(round: int, updates: Sequence[SealedUpdate]) -> Totals | None:
        totals = real(round, updates)
        assert totals is not None
        seen.append(mean_of_totals(channel, plan, 0, totals))
        return totals

    train(plan, silos, collect=collect)
    features, targets = (np.concatenate(parts) for parts in zip(*arrays_of(records), strict=True))
    pooled = Records(plan.data, features, targets)
    exact = clipped_mean(
        plan.loss,
        clip,
        weights=np.zeros((4, 3)),
        features=features,
        norms=pooled.norms,
        targets=targets,
        shares=np.full(len(targets), 1 / len(targets)),
    ).reshape(-1)
    simulated_noise = [np.asarray(drawn(plan, records, SEED, [0] * 3, round).noise) for round in range(plan.steps)]
    sigma = clip / channel.levels * np.sqrt(channel.coins / len(targets))
    for noise, extra in ((np.array(seen) - exact) / sigma, len(SIZES)), (np.array(simulated_noise), 0):
        low, high = chi2.ppf(FALSE_ALARM / 8, noise.size), chi2.isf(FALSE_ALARM / 8, noise.size)
        most = 1 + extra / (channel.coins * len(targets))
        assert low < np.sum(noise**2) < high * most
        assert abs(noise.mean()) * np.sqrt(noise.size / most) < norm.isf(FALSE_ALARM / 8)
