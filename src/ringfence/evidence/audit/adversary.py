"""The hostile server: it knows everything but the canaries' coins, asks what it likes, and reads what it gets.

It uses public knowledge only: the plan, its partition and the answers. `interrogate` is what it asks in a game, the
`read_` functions are what it makes of the answers.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import toeplitz
from scipy.stats import binom

from ringfence.accounting.correlation import coefficients
from ringfence.audit.fidelity import Squares, squares_of
from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.guarantee import Observer
from ringfence.protocol.messages import Answer, Refusal, RefusalReason, RoundRequest, SealedUpdate
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, task
from ringfence.server.channels import Collect, receiving
from ringfence.silo.gate import Gate

Look = Callable[[RoundRequest], FloatArray]
"""Ask for a round, and return what the server learns from the answers: one vector; an empty one if turns are over."""

REPEATS = 2
"""How often every round is asked: an honest gate repeats its bytes, one with fresh noise lets it be averaged away."""

STEADY = 0.5
"""Weights up to this size leave every canary's gradient at the clip (`mechanisms`): the server may ask any of them."""


@dataclass(frozen=True)
class Observation:
    """Some releases about some canaries, as numbers that the coins move: x = coin·strength·B + noise of deviation 1.

    `numbers` and `strength` have one row per release and one column per canary; B ~ Binomial(trials, rate) says how
    often a canary takes part in a release. The noise is Gaussian; or, where all records take part, the heads among so
    many fair `coins`, less their mean and in units of their deviation.
    """

    numbers: FloatArray
    strength: FloatArray
    trials: int = 1
    rate: float = 1.0
    coins: int | None = None

    def evidence(self) -> FloatArray:
        """Return, per canary, the log-likelihood ratio of coin +1 against −1, given the plan's distribution of x.

        Of coins it is the ratio of the Gaussian that they resemble: any guess is fair, and by symmetry, and since
        larger numbers speak for +1, this is the best one for a single release.
        """
        x, s = self.numbers, self.strength
        if self.rate >= 1:
            ratio: FloatArray = np.sum(2 * self.trials * s * x, axis=0)
            return ratio

        def log_likelihood(sign: float) -> FloatArray:
            times = np.arange(self.trials + 1)[:, None, None]
            moved = binom.logpmf(times, self.trials, self.rate) + sign * s * times * x - (s * times) ** 2 / 2
            likelihood: FloatArray = np.logaddexp.reduce(moved, axis=0)
            return likelihood

        sampled: FloatArray = np.sum(log_likelihood(1.0) - log_likelihood(-1.0), axis=0)
        return sampled

    def power(self) -> FloatArray:
        """Return how much the releases together tell about each canary, in the square of standard deviations."""
        result: FloatArray = np.sum((self.strength * self.trials * self.rate) ** 2, axis=0)
        return result

    def squares(self) -> Squares:
        """Return the sum of squares of all numbers: their noise has the planned size."""
        return squares_of(self.numbers, self.strength, self.trials, self.rate, self.coins)

    def squares_of_sums(self) -> Squares:
        """Return the sum of squares of sums over the releases: their noises are independent of each other.

        Where canaries are sampled, each takes part with the same strength in every release.
        """
        releases = len(self.numbers)
        sums = self.numbers.sum(axis=0) / np.sqrt(releases)
        if self.rate >= 1:
            coins = None if self.coins is None else releases * self.coins
            return squares_of(sums, self.strength.sum(axis=0) / np.sqrt(releases), self.trials, 1.0, coins)
        return squares_of(sums, self.strength[0] / np.sqrt(releases), releases * self.trials, self.rate)


def interrogate(look: Look, plan: Plan, start: Callable[[int], FloatArray]) -> list[FloatArray]:
    """Ask every round of the plan, `REPEATS` times each: as the stage starts, and, in training, at weights that depend
    on earlier answers.

    `start` says what a stage, by its number, is asked about first. Returns the mean of each round's answers,
    of as many rounds as were answered.
    """
    rows: list[FloatArray] = []
    weights = start(0)
    for round in range(plan.rounds):
        stage, number, _ = plan.place(round)
        if not stage.question.trains:
            weights = start(number)
        request = RoundRequest.at(plan.digest(), round, weights)
        answers = [answer for _ in range(REPEATS) if (answer := look(request)).size]
        if not answers:
            continue
        rows.append(np.mean(answers, axis=0))
        if stage.question.trains:
            # Any rule would do: it shows that answers may decide what is asked next.
            moved = plan.domain.project(np.clip(rows[-1], -STEADY, STEADY))
            weights = np.concatenate([moved, start(number)[plan.dimension :]])  # what comes behind weights stays
    return rows


def seen_together(plan: Plan, against: Observer) -> tuple[SiloTerms, ...]:
    """Return the silos, the audited one first, of whose answers the observer sees no more than the mean.

    An observer that colludes with all others can subtract their part, and is left with the silo's own answer. The
    server can subtract what its accomplices tell it: they are the last silos of the plan, as many as it names.
    """
    return plan.silos[:1] if against == "anyone" else plan.silos[: len(plan.silos) - (plan.most_colluders or 0)]


def look_at(plan: Plan, gates: Sequence[Gate], collect: Collect = lambda round, updates: None) -> Look:
    """Return how the server learns the mean answer of the silos behind `gates`, and nothing else of them.

    `collect` stands in for the third party where the plan's channel has one.
    """
    known: dict[tuple[bytes, ...], FloatArray] = {}

    def look(request: RoundRequest) -> FloatArray:
        answers = {gate.silo: gate.answer(request) for gate in gates}
        content = tuple(answer.to_bytes() for answer in answers.values())
        if content not in known:  # a repeated answer tells nothing new, and opening sealed ones takes as long again
            known[content] = _mean(plan, request, answers, collect)
        return known[content]

    return look


def _mean(plan: Plan, request: RoundRequest, answers: Mapping[str, Answer], collect: Collect) -> FloatArray:
    if any(isinstance(answer, Refusal) and answer.reason is RefusalReason.TURNS_TAKEN for answer in answers.values()):
        return np.zeros(0)
    stage, number, _ = plan.place(request.round)
    channel, way = stage.channel, receiving(stage.channel)
    for answer in answers.values():
        if not way.is_usable(channel, plan, number, request, answer):
            # That an audited gate does not answer what the plan asks is a mistake of the audit's.
            form = "Its answer is not in the form that the plan asks for."
            reason = answer.reason.explanation if isinstance(answer, Refusal) else form
            raise TrainingError(f"The gate refused a round of the audit: {reason}")
    sealed = [answer for answer in answers.values() if isinstance(answer, SealedUpdate)]
    totals = collect(request.round, sealed) if channel.is_collected else None
    mean = way.mean(channel, plan, number, answers, totals)
    if mean is None:
        raise TrainingError("A round of the audit gave no result, although every silo answered.")
    return mean


def partition(plan: Plan, silo: str, records: int) -> list[int]:
    """Return the public order in which one-pass and phased plans use a silo's rows, as any server can compute it."""
    return sorted(range(records), key=lambda row: hashlib.sha256(f"{plan.digest()}/{silo}/{row}".encode()).digest())


def read_gradients(
    plan: Plan, terms: SiloTerms, answers: FloatArray, rows: list[int], *, clip: float, correlation: float = 0.0
) -> Observation:
    """Turn a plan's answers into numbers about canaries, of which the j-th stands in row rows[j] and moves weight j.

    A canary's gradient is −coin·clip in its own direction (`mechanisms`), in every round that it takes part in.
    """
    tasks = [task(plan, terms, round, plan.place(round).round) for round in range(len(answers))]
    place = np.argsort(partition(plan, terms.name, terms.records))[rows]

    def may_take_part(work: Task) -> NDArray[np.bool_]:
        first, last = (0, terms.records) if work.part is None else (work.part.first, work.part.first + work.batch)
        return (first <= place) & (place < last)

    means = np.array([clip / work.batch * may_take_part(work) for work in tasks])
    rate = 1.0 if tasks[0].part else tasks[0].batch / terms.records
    # Undo the cancellation, if any: the rows beneath have independent noise (`accounting.correlation`).
    mix = np.tril(toeplitz(coefficients(correlation, len(answers))))
    sigma = np.array([[work.sigma] for work in tasks])
    return Observation(mix @ -answers[:, : len(rows)] / sigma, mix @ means / sigma, rate=rate)


def read_difference(answer: FloatArray, sigma: float, plus: FloatArray, minus: FloatArray) -> Observation:
    """Turn one answer, whose exact value is `plus` or `minus`, into its coordinate between the two."""
    way = (plus - minus) / 2
    length = float(np.linalg.norm(way))
    number = float((answer - (plus + minus) / 2) @ way) / length / sigma
    return Observation(np.array([[number]]), np.array([[length / sigma]]))
