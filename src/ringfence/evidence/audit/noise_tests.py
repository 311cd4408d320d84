"""Does the noise have the size, and the independence, that the plan says? Two sums of squares, tested exactly.

Attacks guess coins; they notice little of noise that is a few percent too small, of a record that is drawn twice into
one batch, or of one noise vector that serves two rounds. Sums of squares notice all three.

A transcript's numbers x, in units of the plan's noise, should be x = ±s·B + z with z standard Gaussian and independent
everywhere, s the known strength of a canary, and B how often it took part: Binomial(trials, rate). Then

    E e^{t x²} = (1 − 2t)^(−1/2) · E exp(t s² B²/(1 − 2t)),    t < 1/2,

and Chernoff's bound turns the sum of all x² into a probability, on either side. *Batches of a fixed size* make the B of
different canaries dependent, but negatively associated (Joag-Dev & Proschan 1983: sampling without replacement, and
sums over disjoint sets of independent draws), so that for t of either sign the product of the means of these monotone
functions of B is an upper bound on the mean of their product. The bound therefore holds for every sampling here.

The discrete Gaussian is counted as the continuous one: their moments differ by less than 10⁻¹⁵ (docs/threat-model.md).

*Counts from a shuffler* carry coins instead: z is the heads among m fair coins, less m/2, over √m/2, and everybody
takes part. E e^{t x²} is then the sum over all numbers of heads, for t of either sign. Heads of several rounds add up
to heads among as many coins as all rounds have, so sums over rounds have the same form. How gradients are rounded is
no exception: at the audit's records it is one more coin or nothing (`adversary`).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import binom

from ringfence.protocol import FloatArray


@dataclass(frozen=True)
class PlannedNumber:
    """What a number is by the plan, but for its sign: strength·B + z, B ~ Binomial(trials, rate).

    z is Gaussian, or made of that many fair `coins`; these need a rate of 1.
    """

    strength: float
    trials: int = 1
    rate: float = 1.0
    coins: int | None = None

    def log_moment(self, t: float) -> float:
        """Return ln E e^{t x²} of a number with the planned noise, for t < 1/2."""
        if self.coins is not None:
            z, log_mass = _heads(self.coins)
            return float(logsumexp(log_mass + t * (self.strength * self.trials + z) ** 2))
        scale = t * self.strength**2 / (1 - 2 * t)
        if self.rate >= 1:
            signal = scale * self.trials**2
        else:
            times = np.arange(self.trials + 1)
            exponents = binom.logpmf(times, self.trials, self.rate) + scale * times**2
            signal = float(np.logaddexp.reduce(exponents))
        return signal - 0.5 * math.log1p(-2 * t)

    def mean_square(self) -> float:
        """Return E x² of a number with the planned noise."""
        mean, variance = self.trials * self.rate, self.trials * self.rate * (1 - self.rate)
        return 1 + self.strength**2 * (mean**2 + variance)


@lru_cache(maxsize=8)
def _heads(coins: int) -> tuple[FloatArray, FloatArray]:
    """Return every number of heads among fair coins, in deviations from the mean, with log-probabilities."""
    heads = np.arange(coins + 1, dtype=np.float64)
    deviations: FloatArray = (heads - coins / 2) / (math.sqrt(coins) / 2)
    return deviations, binom.logpmf(heads, coins, 0.5)


@dataclass(frozen=True)
class SumOfSquares:
    """A sum of squares of transcript numbers, and what was expected of each of them, with how many there are."""

    total: float = 0.0
    expected: tuple[tuple[PlannedNumber, int], ...] = ()

    def ratio(self) -> float:
        """Return the sum over its expectation: below 1 there is less noise than the plan says."""
        return self.total / math.fsum(count * number.mean_square() for number, count in self.expected)

    def __add__(self, other: "SumOfSquares") -> "SumOfSquares":
        """Return the sum of squares over the numbers of both noise tests."""
        counts = Counter(dict(self.expected)) + Counter(dict(other.expected))
        return SumOfSquares(self.total + other.total, tuple(counts.items()))

    def p_value(self) -> float:
        """Return a one-sided p-value of the noise test by the plan's distribution: a Chernoff bound."""

        def log_bound(t: float) -> float:
            """Return the log of the Chernoff bound of the noise test at `t`."""
            moments = math.fsum(count * number.log_moment(t) for number, count in self.expected)
            return moments - t * self.total

        # Under the plan E e^{t·total} grows with total for t > 0 and falls for t < 0: one side each.
        sides = ((0.0, 0.499), (-50.0, 0.0))
        found = [minimize_scalar(log_bound, bounds=side, method="bounded", options={"xatol": 1e-9}) for side in sides]
        return min(1.0, math.exp(min(0.0, *(float(side.fun) for side in found))))


def sum_of_squares(
    numbers: FloatArray, strength: FloatArray, trials: int, rate: float, coins: int | None = None
) -> SumOfSquares:
    """Return the sum of squares of the numbers, each planned at its own strength."""
    values, counts = np.unique(np.round(np.abs(strength), 12), return_counts=True)
    expected = tuple(
        (PlannedNumber(float(value), trials, rate, coins), int(count))
        for value, count in zip(values, counts, strict=True)
    )
    return SumOfSquares(float(np.sum(numbers**2)), expected)


def p_value(tests: Sequence[SumOfSquares]) -> float:
    """Return a two-sided p-value of all noise tests together, by the plan's distribution."""
    return min(1.0, 2 * len(tests) * min(test.p_value() for test in tests))
