"""The hostile server: it knows everything but the canaries' coins, asks what it likes, and reads what it gets.

It uses public knowledge only: the plan, its partition and the answers. `interrogate` is what it asks in a game, the
`read_` functions are what it makes of the answers, and the `hostile_` ones what it would send to break a gate, for the
tests of everything that has a door.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy.linalg import toeplitz
from scipy.stats import binom

from ringfence.audit.fidelity import Squares, squares_of
from ringfence.errors import TrainingError
from ringfence.planning.correlation import coefficients
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RoundRequest, unpack
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import task

Look = Callable[[RoundRequest], FloatArray]
"""Ask for a round, and return what the server learns from the answers: one vector."""

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


def interrogate(look: Look, plan: Plan) -> FloatArray:
    """Ask every round of the plan, `REPEATS` times each, at weights that depend on all earlier answers.

    Returns one row per round: the mean of its answers.
    """
    rows: list[FloatArray] = []
    weights = np.zeros(plan.dimension)
    for round in range(plan.exchanges):
        request = RoundRequest.at(plan.digest(), round, weights)
        answers = np.array([look(request) for _ in range(REPEATS)])
        rows.append(np.mean(answers, axis=0))
        if round >= plan.preliminaries:  # any rule would do: it shows that answers may decide what is asked next
            weights = plan.domain.project(np.clip(rows[-1], -STEADY, STEADY))
    return np.array(rows)


def read_update(answer: Answer) -> FloatArray:
    """Return the numbers of an answer that goes to the server as it is."""
    return unpack(answer.vector) if isinstance(answer, NoisyUpdate) else read_refusal(answer)


def read_refusal(answer: Answer) -> NoReturn:
    """Raise TrainingError: that an audited gate does not answer what the plan asks is a mistake of the audit's."""
    reason = (
        answer.reason.explanation if isinstance(answer, Refusal) else "It answered in another form than the plan's."
    )
    raise TrainingError(f"The gate refused a round of the audit: {reason}")


def partition(plan: Plan, silo: str, records: int) -> list[int]:
    """Return the public order in which one-pass and phased plans use a silo's rows, as any server can compute it."""
    return sorted(range(records), key=lambda row: hashlib.sha256(f"{plan.digest()}/{silo}/{row}".encode()).digest())


def read_gradients(plan: Plan, terms: SiloTerms, answers: FloatArray, rows: list[int]) -> Observation:
    """Turn a plan's answers into numbers about canaries, of which the j-th stands in row rows[j] and moves weight j.

    A canary's gradient is −coin·clip in its own direction (`mechanisms`), in every round that it takes part in.
    """
    tasks = [task(plan, terms, plan.preliminaries + round, round) for round in range(plan.rounds)]
    numbers, rate = -answers[plan.preliminaries :, : len(rows)], 1.0
    means = np.array([np.full(len(rows), plan.clip / work.batch) for work in tasks])
    if tasks[0].part is None:
        rate = tasks[0].batch / terms.records
    else:
        place = np.argsort(partition(plan, terms.name, terms.records))[rows]
        means *= [(work.first <= place) & (place < work.first + work.batch) for work in tasks]
    if plan.correlation:  # undo the cancellation: the rows beneath have independent noise (`planning.correlation`)
        mix = np.tril(toeplitz(coefficients(plan.correlation, plan.rounds)))
        numbers, means = mix @ numbers, mix @ means
    sigma = np.array([[work.sigma] for work in tasks])
    return Observation(numbers / sigma, means / sigma, rate=rate)


def read_difference(answer: FloatArray, sigma: float, plus: FloatArray, minus: FloatArray) -> Observation:
    """Turn one answer, whose exact value is `plus` or `minus`, into its coordinate between the two."""
    way = (plus - minus) / 2
    length = float(np.linalg.norm(way))
    number = float((answer - (plus + minus) / 2) @ way) / length / sigma
    return Observation(np.array([[number]]), np.array([[length / sigma]]))


def hostile_bodies() -> list[bytes]:
    """Return bodies that are no round's request, though some look like one."""
    name = b'{"kind":"request","plan":"' + b"0" * 64
    vector = b'"weights":"AAAAAAAAAAA="}'
    return [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"NaN",
        b"{",
        b"\xff\xfe",
        b"\x00" * 1000,
        b"[" * 100_000,
        b'{"a":' * 50_000,
        name + b'","round":NaN,' + vector,
        name + b'","round":-1,' + vector,
        name + b'","round":1e3,' + vector,
        name + b'","round":"1",' + vector,
        name + b'","round":1' + b"0" * 5000 + b"," + vector,
        name[:-1] + b'","round":0,' + vector,
        name + b'","round":0,"weights":"AAAA"}',
        name + b'","round":0,"weights":[0.0]}',
        name + b'","round":0,"weights":"AAAAAAAAAAA=","sigma":0}',
        b'{"kind":"update","plan":"' + b"0" * 64 + b'","round":0,' + vector,
    ]


def hostile_weights(dimension: int) -> dict[str, list[float]]:
    """Return weights that no gate may compute with, by what is wrong with them."""
    return {
        "not a number": [float("nan")] * dimension,
        "infinite": [float("inf")] + [0.0] * (dimension - 1),
        "as large as numbers get": [1e308] * dimension,
        "one short": [0.0] * (dimension - 1),
        "one too many": [0.0] * (dimension + 1),
        "far too many": [0.0] * 50_000,
    }


def forged_request(plan: str, round: int, weights: list[float]) -> bytes:
    """Return the bytes of a request for any numbers whatever, as a server that checks nothing would send it."""
    packed = base64.b64encode(np.array(weights, dtype="<f8").tobytes()).decode()
    return json.dumps({"kind": "request", "plan": plan, "round": round, "weights": packed}).encode()
