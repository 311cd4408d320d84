"""Heads are exactly binomial: by enumeration where that is possible, by their thresholds where it is not."""

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from scipy import stats

from ringfence.silo.exact_draws import Inversion, thresholds
from ringfence.silo.fair_coins import distance_weights, heads_of
from tests.rates import check_frequencies


def counts_by_distance(coins: int) -> list[int]:
    """Return how many of the outcomes of all coins are so far from the middle, on either side."""
    half, odd = divmod(coins, 2)
    both = [2 * math.comb(coins, half + odd + k) for k in range(half + 1)]
    return both if odd else [both[0] // 2, *both[1:]]


@pytest.mark.parametrize("coins", range(1, 15))
def test_of_all_words_exactly_as_many_give_each_distance_as_there_are_tosses_that_do(coins: int) -> None:
    """Words end where thresholds are, so that many of them need more bits."""
    table = Inversion(lambda bits: distance_weights(coins, bits), bits=coins)
    drawn = table.draw(np.arange(2**coins, dtype=np.uint64))
    assert np.bincount(drawn).tolist() == counts_by_distance(coins)


@pytest.mark.parametrize("coins", [1, 2, 7, 64, 1001, 4096])
@pytest.mark.parametrize("bits", [10, 63, 127])
def test_thresholds_hold_the_exact_distribution_function_between_them(coins: int, bits: int) -> None:
    lows, highs = thresholds(lambda fine: distance_weights(coins, fine), bits)
    exact = [Fraction(total << bits, 1 << coins) for total in accumulate(counts_by_distance(coins))]
    for low, high, function in zip(lows, highs, exact, strict=False):
        assert low <= function <= high <= low + 2
    assert highs[-1] == 2**bits


def test_thresholds_of_very_many_coins_end_where_all_but_a_trace_lies_before_them() -> None:
    lows, highs = thresholds(lambda fine: distance_weights(86_000, fine), 63)
    assert len(lows) < 2000
    assert (lows[-1], highs[-1]) == (2**63 - 1, 2**63)
    binomial = stats.binom(86_000, 0.5)
    for k in (0, 100, 300):
        within = binomial.cdf(43_000 + k) - binomial.cdf(43_000 - k - 1)
        assert lows[k] / 2**63 == pytest.approx(within, rel=1e-10)


@pytest.mark.parametrize("coins", [1, 5, 8, 13, 24])
def test_heads_come_on_both_sides_with_their_probabilities(coins: int) -> None:
    """One coin too few or too many is noticed."""
    tossed = heads_of(coins, 40_000)
    laws = {many: stats.binom(many, 0.5) for many in (coins - 1, coins, coins + 1)}
    exact = {many: {count: float(law.pmf(count)) for count in range(coins + 2)} for many, law in laws.items()}
    for wrong in (coins - 1, coins + 1):
        check_frequencies(tossed, exact[coins], notices=exact[wrong])


def test_no_coins_have_no_heads() -> None:
    assert heads_of(0, 5).tolist() == [0] * 5
    assert heads_of(3, 0).tolist() == []


def test_heads_of_many_coins_fall_into_parts_of_equal_probability_equally_often() -> None:
    """Of 400,000 draws in twenty parts of equal probability, one that is larger by a twelfth is noticed."""
    coins, law = 86_000, stats.binom(86_000, 0.5)
    ends = np.unique(law.ppf(np.arange(1, 20) / 20).astype(np.int64))
    part = np.searchsorted(ends, heads_of(coins, 400_000))
    probability = np.diff([0.0, *law.cdf(ends), 1.0])
    for number in range(20):
        larger = 13 / 12 * probability[number]
        wrong = probability * (1 - larger) / (1 - probability[number])
        wrong[number] = larger
        check_frequencies(part, dict(enumerate(probability)), notices=dict(enumerate(wrong)))
