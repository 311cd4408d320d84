"""The numbers that loss bounds and the choice of an algorithm depend on. No record is read.

How many silos answer in a round is counted by the harmonic mean M = 1/E[1/M_r]. `EqualSilos` are the same problem with
the records spread evenly, as the bound of the localized algorithm needs it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ringfence.accounting.events import require_count
from ringfence.errors import PlanError
from ringfence.protocol import SamplingName, sampling_named


@dataclass(frozen=True)
class EqualSilos:
    """N equal silos of n records, as the bound of the localized algorithm needs them.

    `available` is M, `absence` the variance that absent silos cause, `noise` 4z²d/M: the squared noise of one
    full-batch round, in units of (L/n)². `distance` is D₀ ≥ ‖w₀ − w*‖, `first_reach` the largest distance from the
    start to a point of W.
    """

    silos: int
    records: int
    available: float
    lipschitz: float
    smoothness: float
    diameter: float
    distance: float
    absence: float
    noise: float
    first_reach: float


@dataclass(frozen=True)
class PlanningProblem:
    """The public numbers that the choice of an algorithm depends on.

    `clip` is L; `smoothness` is β of a record's loss, without the ridge; `shifts` are the Gaussian shifts that the
    silos' budgets allow, μ of (ε_i, δ_i); `available` is M, the harmonic mean of the silos that answer in a round;
    `width` is the number of features, `dimension` that of weights. Sampled batches take the share `batch_share` (K/n)
    of the records and need `noise_factor` times the noise of full batches. `mixed` is the number of records in the
    smallest batch that a shuffler releases; None without a shuffler. `mixing_cost` is the standard deviation of its
    coins relative to a Gaussian release of the same cost.
    """

    dimension: int
    width: int
    clip: float
    smoothness: float
    ridge: float
    distance: float
    diameter: float
    records: tuple[int, ...]
    weights: tuple[float, ...]
    shifts: tuple[float, ...]
    available: float
    noise_factor: float = 1.0
    batch_share: float = 1.0
    mixed: int | None = None
    mixing_cost: float = 1.1
    lasso: float = 0.0
    takes_turns: bool = False
    """Whether silos take turns: each answers its share of the rounds and pays for those alone."""

    def answers(self, rounds: int) -> int:
        """Return the most rounds of the planning problem that one silo answers."""
        return turns_needed(rounds, self.available / len(self.records)) if self.takes_turns else rounds

    @cached_property
    def unit_noise(self) -> float:
        """E‖noise‖² of the server's average after one full-batch round: d·(N/M)·Σ (p_i·2L/(n_iμ_i))².

        Silos behind a shuffler add one noise together. The smallest batch, of m₀ records, has the noise of a Gaussian
        release; the sum over a batch of m records has √(m/m₀) times as much: d·(2L/μ)²/(m·m₀), with the least μ.
        """
        if self.mixed is not None:
            batch = sum(self.records) * self.available / len(self.records)
            return self.dimension * (self.mixing_cost * 2 * self.clip / min(self.shifts)) ** 2 / (batch * self.mixed)
        terms = zip(self.weights, self.records, self.shifts, strict=True)
        total = math.fsum((p * 2 * self.clip / (n * mu)) ** 2 for p, n, mu in terms)
        return self.dimension * len(self.records) / self.available * total * self.noise_factor**2

    @cached_property
    def absence(self) -> float:
        """Variance caused by absent silos: ((N−M)/((N−1)M))·N·Σp_i²·L²; 0 if all answer."""
        N, M = len(self.records), self.available
        unevenness = math.fsum(p**2 for p in self.weights)
        return (N - M) / ((N - 1) * M) * N * unevenness * self.clip**2 if N > 1 else 0.0

    @cached_property
    def _sampled(self) -> float:
        """Variance caused by sampling batches, in the planning problem."""
        total = math.fsum(
            p**2 * self.clip**2 * (1 - self.batch_share) / (self.batch_share * max(1, n - 1))
            for p, n in zip(self.weights, self.records, strict=True)
        )
        return len(self.records) / self.available * total

    @cached_property
    def survey_noise(self) -> float:
        """Noise of the planning problem's averaged eigenvalues, in units of X², if a survey has the whole budget."""
        terms = zip(self.weights, self.records, self.shifts, strict=True)
        return math.sqrt(math.fsum((p / (n * mu)) ** 2 for p, n, mu in terms))

    def variance(self, sampling: SamplingName, rounds: int, spared: float = 1.0) -> float:
        """V² of a round under a sampling rule; `spared` is the share of the budget that a survey leaves.

        Rounds of all records share the budget. A one-pass round has its own ⌊n_i/R⌋ records and the whole budget,
        around the population's gradient.
        """
        N, answers = len(self.records), self.answers(rounds)
        if not sampling_named(sampling).is_fresh:
            return self.unit_noise * answers / spared + self._sampled + self.absence
        if self.mixed is not None:
            batch = sum(self.records) * self.available / N / answers
            return self.unit_noise * answers**2 / spared + self.clip**2 / batch + self.absence
        total = 0.0
        for p, n, mu in zip(self.weights, self.records, self.shifts, strict=True):
            batch = n // answers
            total += (p * self.clip) ** 2 * (self.dimension * (2 / (batch * mu)) ** 2 / spared + 1 / batch)
        return N / self.available * total + self.absence

    def balanced(self) -> EqualSilos:
        """Return N equal silos with as many records in all and as much noise."""
        if not math.isfinite(self.diameter):
            raise PlanError("Localization needs a bounded domain: give a ball or a box instead of the whole space.")
        if not 0 < self.distance <= self.diameter:
            raise PlanError(f"The start lies at most the diameter from the optimum; {self.distance!r} does not.")
        N, M = len(self.records), self.available
        n = sum(self.records) // N
        # Of the whole objective; the slope of ‖w‖₁ is at most √d. The noise is scaled to the clip alone.
        lipschitz = self.clip + self.ridge * self.diameter + self.lasso * math.sqrt(self.dimension)
        shift = 2 * lipschitz * math.sqrt(self.dimension / (M * self.unit_noise)) / n
        return EqualSilos(
            silos=N,
            records=n,
            available=M,
            lipschitz=lipschitz,
            smoothness=self.smoothness + self.ridge,
            diameter=self.diameter,
            distance=self.distance,
            absence=((N - M) / (N - 1) if N > 1 else 0.0) * lipschitz**2 / M,
            noise=4 * self.dimension / (M * shift**2),
            first_reach=self.diameter,
        )


def answer_probabilities(silos: int, probability: float) -> dict[int, float]:
    """Return the probability of each number of answers if N silos answer independently with ``probability``.

    Rounds without an answer do not count.
    """
    N = require_count("silos", silos)
    if not 0 < probability <= 1:
        raise PlanError(f"A silo answers with a probability above 0 and at most 1, not {probability!r}.")
    if probability == 1:
        return {N: 1.0}
    # Binomial, in logarithms since the coefficients of a thousand silos overflow.
    likely = {
        m: math.exp(
            math.lgamma(N + 1)
            - math.lgamma(m + 1)
            - math.lgamma(N - m + 1)
            + m * math.log(probability)
            + (N - m) * math.log1p(-probability)
        )
        for m in range(1, N + 1)
    }
    some = math.fsum(likely.values())
    return {m: p / some for m, p in likely.items()}


def harmonic_mean_of_answers(probabilities: Mapping[int, float]) -> float:
    """Return the paper's M = 1/E[1/M_r]."""
    return 1 / math.fsum(p / m for m, p in probabilities.items())


def turns_needed(rounds: int, share: float) -> int:
    """Return the most rounds that one silo answers if every round asks that share of the silos, in turns.

    Turns differ by at most one, so it is the average, rounded up.
    """
    return math.ceil(rounds * share * (1 - 1e-12))
