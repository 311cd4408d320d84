"""The public numbers that a choice of algorithm depends on, and the variances that follow from them."""

import math
from dataclasses import dataclass
from functools import cached_property

from ringfence.errors import PlanError
from ringfence.planning.availability import turns_needed
from ringfence.planning.problem import Problem
from ringfence.protocol.sampling import SamplingName, sampling_named


@dataclass(frozen=True)
class Setting:
    """The public numbers that the choice depends on.

    `clip` is L; `smoothness` is β of a record's loss, without the ridge; `shifts` are the Gaussian shifts that the
    silos' budgets allow, μ of (ε_i, δ_i); `available` is M, the harmonic mean of the silos that answer in a round;
    `width` is the number of features, `dimension` that of weights. `loudness` is how much more noise sampled batches
    need than full ones, and `batch_share` the share K/n of the records they take. `mixed` is how many records the
    smallest batch holds that a shuffler lets out, of all records of its silos; None without a shuffler. `mixing_cost`
    is how much more noise its coins are, in standard deviations, than a Gaussian release of the same cost.
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
    loudness: float = 1.0
    batch_share: float = 1.0
    mixed: int | None = None
    mixing_cost: float = 1.1
    lasso: float = 0.0
    takes_turns: bool = False
    """Whether silos take turns, so that each answers its share of the rounds and its noise pays for those alone."""

    def answers(self, rounds: int) -> int:
        """Return how many of so many rounds a silo answers at most."""
        return turns_needed(rounds, self.available / len(self.records)) if self.takes_turns else rounds

    @cached_property
    def unit_noise(self) -> float:
        """E‖noise‖² of the server's average after one full-batch round: d·(N/M)·Σ (p_i·2L/(n_iμ_i))².

        Through a shuffler all silos make one noise together: a batch of the least size m₀ has that of a Gaussian
        release, a larger one of m records √(m/m₀) times as much on its sum: d·(2L/μ)²/(m·m₀), with the least μ.
        """
        if self.mixed is not None:
            batch = sum(self.records) * self.available / len(self.records)
            return self.dimension * (self.mixing_cost * 2 * self.clip / min(self.shifts)) ** 2 / (batch * self.mixed)
        terms = zip(self.weights, self.records, self.shifts, strict=True)
        total = math.fsum((p * 2 * self.clip / (n * mu)) ** 2 for p, n, mu in terms)
        return self.dimension * len(self.records) / self.available * total * self.loudness**2

    @cached_property
    def absence(self) -> float:
        """Variance that silos which stay away cause: ((N−M)/((N−1)M))·N·Σp_i²·L²; 0 if all answer."""
        N, M = len(self.records), self.available
        unevenness = math.fsum(p**2 for p in self.weights)
        return (N - M) / ((N - 1) * M) * N * unevenness * self.clip**2 if N > 1 else 0.0

    def variance(self, rounds: int, spared: float = 1.0) -> float:
        """V² of a round, where all rounds share the budget; `spared` is the share that a survey left."""
        return self.unit_noise * self.answers(rounds) / spared + self._sampled + self.absence

    @cached_property
    def _sampled(self) -> float:
        """Variance that batches of some of the records cause."""
        total = math.fsum(
            p**2 * self.clip**2 * (1 - self.batch_share) / (self.batch_share * max(1, n - 1))
            for p, n in zip(self.weights, self.records, strict=True)
        )
        return len(self.records) / self.available * total

    @cached_property
    def survey_noise(self) -> float:
        """Noise of the server's average of eigenvalues, in units of X², if a survey has the whole budget."""
        terms = zip(self.weights, self.records, self.shifts, strict=True)
        return math.sqrt(math.fsum((p / (n * mu)) ** 2 for p, n, mu in terms))

    def one_pass_variance(self, rounds: int, spared: float = 1.0) -> float:
        """V² of a round that has its own ⌊n_i/R⌋ records and the whole budget; against the population's gradient."""
        N, answers = len(self.records), self.answers(rounds)
        if self.mixed is not None:
            batch = sum(self.records) * self.available / N / answers
            return self.unit_noise * answers**2 / spared + self.clip**2 / batch + self.absence
        total = 0.0
        for p, n, mu in zip(self.weights, self.records, self.shifts, strict=True):
            batch = n // answers
            total += (p * self.clip) ** 2 * (self.dimension * (2 / (batch * mu)) ** 2 / spared + 1 / batch)
        return N / self.available * total + self.absence

    def variance_of(self, sampling: SamplingName, rounds: int, spared: float = 1.0) -> float:
        """V² of a round under that sampling."""
        return (self.one_pass_variance if sampling_named(sampling).is_fresh else self.variance)(rounds, spared)

    def balanced(self) -> tuple[Problem, float]:
        """Return a problem of N equal silos with as many records in all, and the shift that gives it the same noise."""
        if not math.isfinite(self.diameter):
            raise PlanError("Localization needs a bounded domain: give a ball or a box instead of the whole space.")
        N = len(self.records)
        n = sum(self.records) // N
        # Of the whole objective, ‖w‖₁ with its slope of √d at most; the noise is that of the clip.
        lipschitz = self.clip + self.ridge * self.diameter + self.lasso * math.sqrt(self.dimension)
        shift = 2 * lipschitz * math.sqrt(self.dimension / (self.available * self.unit_noise)) / n
        problem = Problem(
            silos=N,
            records=n,
            dimension=self.dimension,
            lipschitz=lipschitz,
            diameter=self.diameter,
            epsilon=1.0,  # the shift speaks for the budget
            delta=1e-6,
            smoothness=self.smoothness + self.ridge,
            available=self.available,
            distance=self.distance,
        )
        return problem, shift
