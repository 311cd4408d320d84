"""What a broken silo sends: the law, under every sabotage, of the numbers whose squares the audit adds up.

Numbers are in units of the planned noise. A law is exact, or, where that is said, its sum of squares is stochastically
smaller than the true one and is used for showing that sums are too large.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import methodcaller
from typing import Protocol

import numpy as np
from scipy.linalg import toeplitz
from scipy.special import logsumexp
from scipy.stats import binom

from ringfence.accounting.correlation import coefficients, inverse_coefficients
from ringfence.evidence.audit.adversary import REPEATS, STEADY, Observation, silos_in_mean
from ringfence.evidence.audit.game import GameRun
from ringfence.evidence.audit.mechanisms import MECHANISMS
from ringfence.evidence.audit.plans import CLIP, CORRELATION, PERSON_ROWS, AuditQuery
from ringfence.protocol import FloatArray, Observer, Plan, ShufflerChannel
from ringfence.protocol.plan.plan import task

UNCLIPPED_AT_0, UNCLIPPED = 1 / CLIP, (1 - STEADY) / CLIP
"""How much longer than the clip a canary's gradient is: at weights 0, and at least, wherever the server asks."""


class Law(Protocol):
    """The law of one number, or of some of one canary's that depend on each other."""

    @property
    def variance(self) -> float:
        """The largest variance of their noise; of coins, about that."""

    def log_moment(self, t: float) -> float:
        """Return ln E e^{t·(sum of squares)}, where 2·t·variance < 1."""


@dataclass(frozen=True)
class Gaussian:
    """So many `numbers` with Gaussian noise, whose squared means add up to `square`."""

    square: float
    variance: float = 1.0
    numbers: int = 1

    def log_moment(self, t: float) -> float:
        left = 1 - 2 * t * self.variance
        return t * self.square / left - self.numbers / 2 * math.log(left)


@dataclass(frozen=True, eq=False)
class Lattice:
    """A number of given values, with the given weights."""

    log_weights: FloatArray
    values: FloatArray
    variance: float

    def log_moment(self, t: float) -> float:
        return float(logsumexp(self.log_weights + t * self.values**2))

    def guessed(self) -> float:
        """Return the probability of being above 0, and half of that of being 0: how often a guess by it is right."""
        weights, sign = np.exp(self.log_weights), np.sign(np.round(self.values, 9))
        return float(weights @ (1 + sign)) / 2


@dataclass(frozen=True, eq=False)
class Drawn:
    """One of several laws with the given weights, by how often a canary takes part."""

    log_weights: FloatArray
    laws: Sequence[Law]

    @property
    def variance(self) -> float:
        return max(law.variance for law in self.laws)

    def log_moment(self, t: float) -> float:
        moments, way = np.array([law.log_moment(t) for law in self.laws]), 1 if t > 0 else -1
        # No less, and monotone in how often the canary takes part, which negative association asks for.
        monotone = np.maximum.accumulate(moments[::way])[::way]
        return float(logsumexp(self.log_weights + monotone))


Laws = list[tuple[Law, int]]
"""What a sum of squares consists of in one run, with how many there are of each."""


@dataclass(frozen=True, eq=False)
class Together:
    """Numbers of given laws that are independent of each other."""

    laws: Laws

    @property
    def variance(self) -> float:
        return max(law.variance for law, _ in self.laws)

    def log_moment(self, t: float) -> float:
        return math.fsum(count * law.log_moment(t) for law, count in self.laws)


@dataclass(frozen=True)
class Broken:
    """The laws of both sums of squares of `noise_tests`; none where the sabotage is not looked for there.

    `is_quieter`: the sums are too small, else too large. `guessed` is the least probability with which a coin is
    guessed, where guesses are relied on.
    """

    size: Laws = field(default_factory=list)
    sums: Laws = field(default_factory=list)
    is_quieter: bool = False
    guessed: float | None = None


def broken(name: str, query: AuditQuery, sabotage: str, honest: GameRun) -> Broken:
    """Return what the named mechanism sends under the sabotage, given a run of a silo that is not broken."""
    mechanism, correlation = MECHANISMS[name], CORRELATION if name in ("correlated", "person-sum") else 0.0
    found: list[Broken] = []
    plans = [plan for plan in mechanism.plans(query) if mechanism.reads(plan)]
    for plan, seen in zip(plans, honest.observations, strict=True):
        numbers = Noisy(seen, plan, correlation) if seen.coins is None else Counted(seen, plan, mechanism.against)
        found.append(_LAWS[sabotage](numbers))
    size, sums = [law for each in found for law in each.size], [law for each in found for law in each.sums]
    return replace(found[0], size=size, sums=sums)


def _as_planned(numbers: object) -> Broken:
    """A plan or a ledger that is wrong, with noise that is drawn as planned: nothing to be seen in squares."""
    del numbers
    return Broken()


_LAWS: dict[str, Callable[..., Broken]] = {
    "half-noise": methodcaller("less_noise", 0.5),
    "root-half-noise": methodcaller("less_noise", math.sqrt(0.5)),
    "skip-clip": methodcaller("unclipped"),
    "repeat-round": methodcaller("repeated"),
    "with-replacement": methodcaller("drawn_twice"),
    "wrong-sensitivity": _as_planned,
    "reuse-noise": methodcaller("reused"),
    "forget-peer": _as_planned,
    "keep-order": methodcaller("kept_apart"),
    "ignore-persons": methodcaller("by_rows"),
    "forget-tries": _as_planned,
}


def _times(trials: int, rate: float) -> tuple[FloatArray, FloatArray]:
    """Return how often a canary may take part, and the logarithms of the probabilities."""
    times = np.arange(trials + 1.0) if rate < 1 else np.array([float(trials)])
    return times, binom.logpmf(times, trials, rate)


def _number(mean: float, *, variance: float = 1.0, trials: int = 1, rate: float = 1.0, numbers: int = 1) -> Law:
    """Return the law of mean·B + z, B ~ Binomial(trials, rate) and z Gaussian; of several, of means of that length."""
    times, log_weights = _times(trials, rate)
    return Drawn(log_weights, [Gaussian((mean * often) ** 2, variance, numbers) for often in times])


def _each(strengths: FloatArray, law: Callable[[float], Law]) -> Laws:
    values, counts = np.unique(np.round(np.abs(strengths), 12), return_counts=True)
    return [(law(float(value)), int(count)) for value, count in zip(values, counts, strict=True)]


@dataclass(frozen=True)
class Noisy:
    """Numbers with a silo's own Gaussian noise."""

    seen: Observation
    plan: Plan
    correlation: float

    def less_noise(self, factor: float) -> Broken:
        return Broken(self._size(variance=factor**2), self._sums(variance=factor**2), is_quieter=True)

    def repeated(self) -> Broken:
        """Where records are sampled, those that take part are drawn anew as well.

        Where noise is correlated, a repeated round is one more row. The rows beneath then have the noise C·P·D·z, where
        P averages each round's answers and D is C⁻¹ over all answers: a bound, by the largest eigenvalue, on how large
        their squares are.
        """
        if self.seen.rate < 1:
            return Broken(self._size(1 / REPEATS, variance=1 / REPEATS, trials=REPEATS), is_quieter=True)
        rounds = len(self.seen.strength)
        mix = np.tril(toeplitz(coefficients(self.correlation, rounds)))
        average = np.kron(np.eye(rounds), np.full(REPEATS, 1 / REPEATS))
        noise = mix @ average @ np.tril(toeplitz(inverse_coefficients(self.correlation, REPEATS * rounds)))
        return Broken(self._size(variance=float(np.linalg.eigvalsh(noise @ noise.T)[-1])), is_quieter=True)

    def unclipped(self) -> Broken:
        """A bound: where weights depend on answers, a gradient is at least `UNCLIPPED` times as long as the clip.

        Given the answers before it, the square of a Gaussian number grows, stochastically, with its mean's length.
        """
        rate = self.seen.rate
        first = _each(self.seen.strength[:1], lambda strength: _number(UNCLIPPED_AT_0 * strength, rate=rate))
        later = _each(self.seen.strength[1:], lambda strength: _number(UNCLIPPED * strength, rate=rate))
        return Broken(first + later)

    def drawn_twice(self) -> Broken:
        """A canary is drawn Binomial(batch, 1/eligible) times. Correlated noise has it count as often in later rows."""
        terms, found = self.plan.silos[0], Laws()
        rows = [np.linalg.norm(self.seen.strength, axis=0)] if self.correlation else self.seen.strength
        for round, row in enumerate(rows):
            work = task(self.plan, terms, round, self.plan.place(round).round)
            rate = 1 / (terms.records if work.stage.sampling.is_secret else work.batch)
            drawn = partial(_number, trials=work.batch, rate=rate, numbers=len(self.seen.strength) // len(rows))
            found += _each(row, drawn)
        return Broken(found)

    def reused(self) -> Broken:
        return Broken(sums=self._sums(variance=float(len(self.seen.strength))))

    def by_rows(self) -> Broken:
        """A person counted as often as they have rows: by the coin, and alike in all rounds."""
        found, number = Laws(), partial(_number, rate=self.seen.rate)
        columns, counts = np.unique(np.round(self.seen.strength, 12), axis=1, return_counts=True)
        for strength, canaries in zip(columns.T, counts, strict=True):
            by_coin = [Together(_each(rows * strength, number)) for rows in sorted(PERSON_ROWS.values())]
            found.append((Drawn(np.log([0.5, 0.5]), by_coin), int(canaries)))
        return Broken(found)

    def _size(self, factor: float = 1.0, *, variance: float, trials: int = 1) -> Laws:
        rate = self.seen.rate
        return _each(
            factor * self.seen.strength, lambda mean: _number(mean, variance=variance, trials=trials, rate=rate)
        )

    def _sums(self, *, variance: float) -> Laws:
        strength, rounds, rate = self.seen.strength, len(self.seen.strength), self.seen.rate
        if rate < 1:  # then the strength is the same in all rounds
            often = partial(_number, variance=variance, trials=rounds, rate=rate)
            return _each(strength[0] / math.sqrt(rounds), often)
        return _each(strength.sum(axis=0) / math.sqrt(rounds), partial(_number, variance=variance))


@dataclass(frozen=True)
class Counted:
    """Counts through a shuffler: in each coordinate, whole numbers and the heads among fair coins."""

    seen: Observation
    plan: Plan
    against: Observer

    @property
    def channel(self) -> ShufflerChannel:
        channel = self.plan.stages[0].channel
        assert isinstance(channel, ShufflerChannel)
        return channel

    @property
    def batches(self) -> list[int]:
        return [terms.stages[0].batch for terms in silos_in_mean(self.plan, self.against)]

    @property
    def tossed(self) -> list[int]:
        """The coins of every silo."""
        return [batch * self.channel.coins for batch in self.batches]

    def rounding(self, height: int) -> int:
        """Return how many silos round by a coin where the audited one's sum is so many clips long (`adversary`)."""
        twice = [batch + (height if number == 0 else 0) for number, batch in enumerate(self.batches)]
        return sum(self.channel.levels * each % 2 for each in twice)

    def number(self, height: float, coins: int, *, rounds: int = 1, scale: float = 1.0) -> Lattice:
        """Return the law of a sum of `height` clips and of heads, each counted `scale` times, over so many rounds.

        In units of the planned noise of so many rounds.
        """
        assert self.seen.coins is not None
        unit = math.sqrt(rounds * self.seen.coins) / 2
        heads = np.arange(coins + 1.0)
        values = (height * self.channel.levels / 2 + scale * (heads - coins / 2)) / unit
        return Lattice(binom.logpmf(heads, coins, 0.5), values, scale**2 * coins / 4 / unit**2)

    def less_noise(self, factor: float) -> Broken:
        kept = sum(coins - 2 * round(coins * (1 - factor**2) / 2) for coins in self.tossed) + self.rounding(1)
        (rounds, canaries), numbers = self.seen.strength.shape, self.seen.strength.size
        sums = self.number(rounds, rounds * kept, rounds=rounds)
        return Broken([(self.number(1, kept), numbers)], [(sums, canaries)], is_quieter=True)

    def repeated(self) -> Broken:
        coins = REPEATS * (sum(self.tossed) + self.rounding(1))
        return Broken([(self.number(1, coins, scale=1 / REPEATS), self.seen.strength.size)], is_quieter=True)

    def unclipped(self) -> Broken:
        """A bound: of squares, the first round's; of guesses, all rounds' with every rounding against the guess."""
        rounds, canaries = self.seen.strength.shape
        first = self.number(UNCLIPPED_AT_0, sum(self.tossed) + self.rounding(round(UNCLIPPED_AT_0)))
        height = UNCLIPPED_AT_0 + (rounds - 1) * UNCLIPPED - rounds * len(self.batches) * 2 / self.channel.levels
        together = self.number(height, rounds * sum(self.tossed), rounds=rounds)
        return Broken([(first, canaries)], guessed=together.guessed())

    def drawn_twice(self) -> Broken:
        """A canary is drawn Binomial(batch, 1/batch) times."""
        times, log_weights = _times(self.batches[0], 1 / self.batches[0])
        laws = [self.number(often, sum(self.tossed) + self.rounding(int(often))) for often in times]
        return Broken([(Drawn(log_weights, laws), self.seen.strength.size)])

    def reused(self) -> Broken:
        """Coins are reused, those that decide roundings are not."""
        rounds, canaries = self.seen.strength.shape
        same = self.number(rounds, sum(self.tossed), rounds=rounds, scale=rounds)
        fresh = self.number(0, rounds * self.rounding(1), rounds=rounds)
        log_weights = np.add.outer(same.log_weights, fresh.log_weights).ravel()
        law = Lattice(log_weights, np.add.outer(same.values, fresh.values).ravel(), same.variance + fresh.variance)
        return Broken(sums=[(law, canaries)])

    def kept_apart(self) -> Broken:
        """The mean over the audited silo's records is taken for that over all: its coins weigh more."""
        (rounds, canaries), more = self.seen.strength.shape, sum(self.batches) / self.batches[0]
        own = self.tossed[0] + self.channel.levels * (self.batches[0] + 1) % 2
        sums = self.number(rounds * more, rounds * own, rounds=rounds, scale=more)
        return Broken([(self.number(more, own, scale=more), self.seen.strength.size)], [(sums, canaries)])

    def by_rows(self) -> Broken:
        rounds, canaries = self.seen.strength.shape
        numbers = [self.number(rows, sum(self.tossed) + self.rounding(rows)) for rows in sorted(PERSON_ROWS.values())]
        by_coin = [Together([(number, rounds)]) for number in numbers]
        return Broken([(Drawn(np.log([0.5, 0.5]), by_coin), canaries)])
