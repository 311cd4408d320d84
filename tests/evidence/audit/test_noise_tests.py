"""Sums of squares: a bound on their tail is never below the exact tail, and small where the noise is not the plan's."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, chi2, ncx2, norm

from ringfence.evidence.audit.noise_tests import PlannedNumber, SumOfSquares, p_value, sum_of_squares


@pytest.mark.parametrize("t", [-3.0, -0.2, 0.1, 0.4])
@pytest.mark.parametrize(
    "expected",
    [PlannedNumber(0.0), PlannedNumber(0.7), PlannedNumber(0.7, trials=3), PlannedNumber(0.5, trials=4, rate=0.3)],
)
def test_a_log_moment_is_the_integral_that_it_stands_for(expected: PlannedNumber, t: float) -> None:
    total = 0.0
    for times in range(expected.trials + 1):
        weight = binom.pmf(times, expected.trials, expected.rate)
        mean = expected.strength * times

        def integrand(x: float, mean: float = mean) -> float:
            return math.exp(t * x * x - (x - mean) ** 2 / 2) / math.sqrt(2 * math.pi)

        total += weight * quad(integrand, -60, 60, points=[mean], limit=500)[0]
    assert expected.log_moment(t) == pytest.approx(math.log(total), abs=1e-6)


@pytest.mark.parametrize("t", [-3.0, -0.2, 0.1, 0.49])
@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_a_log_moment_of_coins_is_the_sum_over_all_ways_they_fall(strength: float, t: float) -> None:
    total = 0.0
    for coins in itertools.product((-0.5, 0.5), repeat=9):
        total += math.exp(t * (strength + sum(coins) / (math.sqrt(9) / 2)) ** 2) / 2**9
    assert PlannedNumber(strength, coins=9).log_moment(t) == pytest.approx(math.log(total), abs=1e-12)


@pytest.mark.parametrize("heads", [20, 26, 40, 60, 74, 80])
def test_the_bound_is_never_below_the_exact_tail_of_coins(heads: int) -> None:
    """A single number of a hundred coins: its square gives its distance from the mean."""
    away = abs(heads - 50)
    square = (away / 5) ** 2
    exact = 2 * binom.cdf(50 - away, 100, 0.5)
    assert exact <= SumOfSquares(square, ((PlannedNumber(0.0, coins=100), 1),)).p_value()


@pytest.mark.parametrize("count", [5, 200, 20_000])
@pytest.mark.parametrize("deviations", [-6.0, -2.0, 2.0, 6.0])
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_the_bound_is_never_below_the_exact_tail(count: int, deviations: float, strength: float) -> None:
    law = ncx2(count, count * strength**2) if strength else chi2(count)
    total = law.mean() + deviations * law.std()
    if total <= 0:
        return
    exact = law.sf(total) if deviations > 0 else law.cdf(total)
    found = SumOfSquares(total, ((PlannedNumber(strength), count),)).p_value()
    assert exact <= found <= max(60 * exact, 1e-300)


@pytest.mark.parametrize("scale", [-0.8, -0.1, 0.1, 0.8])
def test_batches_of_a_fixed_size_are_bounded_by_independent_ones(scale: float) -> None:
    """By enumeration: two rounds, each of 2 of 4 canaries; E Π exp(c·B²) ≤ Π E exp(c·B²) for c of either sign."""
    batches = [
        np.array([row in chosen for row in range(4)], dtype=int) for chosen in itertools.combinations(range(4), 2)
    ]
    together = np.mean([math.exp(scale * float(np.sum((a + b) ** 2))) for a in batches for b in batches])
    apart = sum(binom.pmf(times, 2, 0.5) * math.exp(scale * times**2) for times in range(3)) ** 4
    assert together <= apart * (1 + 1e-12)


def test_noise_of_nine_tenths_and_of_eleven_tenths_is_noticed_in_ten_thousand_numbers() -> None:
    """The numbers are fixed: normal quantiles, so that nothing here is left to chance."""
    numbers = norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    planned = sum_of_squares(numbers, np.zeros(10_000), 1, 1.0)
    assert p_value([planned, planned]) == 1.0
    for factor in (0.9, 1.1):
        other = sum_of_squares(factor * numbers, np.zeros(10_000), 1, 1.0)
        assert other.ratio() == pytest.approx(factor**2, rel=1e-3)
        assert p_value([planned, other]) < 1e-20


def test_sums_add_up() -> None:
    strength = np.array([0.3, 0.3, 0.5])
    one = sum_of_squares(np.array([1.0, -1.0, 2.0]), strength, 1, 1.0)
    both = one + one
    assert both.total == 12.0
    assert dict(both.expected) == {PlannedNumber(0.3): 4, PlannedNumber(0.5): 2}
    assert both.ratio() == pytest.approx(12 / (6 + 4 * 0.09 + 2 * 0.25))
