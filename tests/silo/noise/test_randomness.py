"""Draws come from the operating system and have the distributions that the accountant assumes.

Statistical tests state what they notice; both of their rates are 10⁻⁶ at most (`tests.rates`).
"""

import math
import re
import subprocess
import sys
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ringfence.silo
from ringfence.protocol import FloatArray
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.noise.exact_draws import Inversion, thresholds, uniform
from ringfence.silo.noise.randomness import distance_weights, gaussian_noise, heads
from tests.rates import check_counts, check_frequencies, check_uncorrelated

ROOT = Path(__file__).parents[3]
SIGMA = 0.37


def noise_of(count: int) -> FloatArray:
    return gaussian_noise(count, SIGMA, grid_exponent(SIGMA))


def test_noise_on_a_coarse_grid_has_the_exact_probabilities_of_the_discrete_gaussian() -> None:
    """P(x) ∝ exp(−x²/2σ²) on the multiples of 4: with a grid as coarse as σ, a rounded Gaussian is noticed."""
    sigma, grid = 2.4, 4
    noise = gaussian_noise(40_000, sigma, 2)
    whole = (noise / grid).astype(np.int64)
    assert np.array_equal(noise, whole * grid)
    mass = {x: math.exp(-((grid * x / sigma) ** 2) / 2) for x in range(-8, 9)}
    exact = {x: one / math.fsum(mass.values()) for x, one in mass.items()}
    below = {x: float(stats.norm.cdf(grid * (x + 0.5) / sigma)) for x in range(-9, 9)}
    check_frequencies(whole, exact, notices={x: below[x] - below[x - 1] for x in exact})


def test_the_last_bits_of_noise_are_as_random_as_the_first() -> None:
    """A grid of σ·2⁻³⁰ is so fine that what is left modulo 64 is uniform but for less than 2⁻¹⁰⁰⁰.

    Noise computed in floating point has gaps there, by which true values can be told apart. One remainder of the 64
    that comes half as often again, or half as often, as it should is noticed.
    """
    steps = (noise_of(40_000) / 2.0 ** grid_exponent(SIGMA)).astype(np.int64)
    for factor in (0.5, 1.5):
        wrong = dict.fromkeys(range(64), (1 - factor / 64) / 63) | {0: factor / 64}
        check_frequencies(steps % 64, dict.fromkeys(range(64), 1 / 64), notices=wrong)


def test_every_bit_of_the_whole_numbers_that_decide_is_a_fair_coin() -> None:
    """A bit that is set with probability 0.53 is noticed, and so are two of them that agree so often."""
    drawn = uniform(40_000)
    bits = ((drawn[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).astype(np.int64)
    agree = [np.sum(bits[:, one] == bits[:, other]) for one in range(64) for other in range(one)]
    check_counts(np.array([*bits.sum(axis=0), *agree]), len(drawn), 0.5, notices=0.53)


@pytest.mark.parametrize("exponent", [-40, 0, 13])
def test_the_grid_is_at_most_two_to_the_minus_thirty_of_the_noise_also_beside_powers_of_two(exponent: int) -> None:
    power = 2.0**exponent
    for sigma in (math.nextafter(power, 0.0), power, math.nextafter(power, math.inf), 1.5 * power):
        assert 2.0**-31 * sigma < 2.0 ** grid_exponent(sigma) <= 2.0**-30 * sigma


@pytest.mark.parametrize(("scale", "inner"), [(3.0, 0.8), (5.0, 1.0), (9.0, 1.2)])
def test_noise_on_the_grid_is_a_continuous_gaussian_and_then_a_draw_that_knows_nothing_else(
    scale: float, inner: float
) -> None:
    """But for a factor that is less than 10⁻⁵⁴⁷ from 1 at the scale of our grid."""
    outer, points = math.sqrt(scale**2 - inner**2), np.arange(-400, 401)
    step = 1 / 64
    y = np.arange(-110 * 64, 110 * 64) * step  # where the trapezoid rule is exact to the last digits
    draws = np.exp(-((points[:, None] - y) ** 2) / (2 * inner**2))
    density = np.exp(-(y**2) / (2 * outer**2)) / (outer * math.sqrt(2 * math.pi))
    composed = (draws / draws.sum(axis=0)) @ density * step
    discrete = np.exp(-(points**2) / (2 * scale**2))
    discrete /= discrete.sum()
    seen = np.abs(points) < 6 * scale
    error = np.abs(np.log(composed[seen] / discrete[seen])).max()
    assert error <= 3 * 3 * math.exp(-2 * math.pi**2 * inner**2) + 1e-13


@pytest.mark.parametrize("lag", [1, 2, 50])
def test_noise_coordinates_are_uncorrelated(lag: int) -> None:
    """A correlation of 0.08 between numbers so far apart is noticed."""
    pairs = noise_of(40_000).reshape(-1, 2, lag)
    check_uncorrelated(pairs[:, 0].reshape(-1), pairs[:, 1].reshape(-1), notices=0.08)


def answers_of(mode: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.silo.noise.noisy_silos", mode, str(folder)]
    return subprocess.check_output(command, text=True, cwd=ROOT).splitlines()


def test_silos_rounds_and_processes_never_share_noise_through_the_gate(tmp_path: Path) -> None:
    """Eight silos with the same records and plan, six in forked processes, answer two rounds at the same weights.

    Their exact means agree, so equal numbers would be equal noise, which is seen for certain; by chance one pair of the
    480 that are compared agrees with probability less than 480 · 2⁻³⁰ / (2√π) < 2e-7.
    """
    vectors = [np.frombuffer(bytes.fromhex(line)) for line in answers_of("fork", tmp_path)]
    assert len(vectors) == 16
    for place in range(4):
        assert len({vector[place] for vector in vectors}) == 16


def test_a_gate_that_was_forked_answers_nothing(tmp_path: Path) -> None:
    """Two processes with one connection to the ledger could not tell what the other has charged."""
    assert answers_of("inherit", tmp_path) == ["unavailable"]


def test_rounds_of_every_kind_of_plan_are_answered_where_every_seeded_generator_raises(tmp_path: Path) -> None:
    lines = answers_of("unseeded", tmp_path)
    assert lines == [f"{kind} answered" for kind in ("full", "fixed", "poisson", "one-pass", "surveyed", "shuffled")]


def test_no_seeded_generator_is_named_in_the_silo() -> None:
    seeded = re.compile(r"np\.random|numpy\.random|import random\b|from random\b|default_rng|RandomState|\bseed\b *=")
    package = Path(ringfence.silo.__path__[0])
    sources = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    assert {"gate/gate.py", "gate/sampling.py", "channels/own_noise.py", "queries/gradient.py"} <= set(sources)
    assert {name for name, text in sources.items() if seeded.search(text)} == set()


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
    tossed = heads(40_000, coins)
    laws = {many: stats.binom(many, 0.5) for many in (coins - 1, coins, coins + 1)}
    exact = {many: {count: float(law.pmf(count)) for count in range(coins + 2)} for many, law in laws.items()}
    for wrong in (coins - 1, coins + 1):
        check_frequencies(tossed, exact[coins], notices=exact[wrong])


def test_no_coins_have_no_heads() -> None:
    assert heads(5, 0).tolist() == [0] * 5
    assert heads(0, 3).tolist() == []


def test_heads_of_many_coins_fall_into_parts_of_equal_probability_equally_often() -> None:
    """Of 400,000 draws in twenty parts of equal probability, one that is larger by a twelfth is noticed."""
    coins, law = 86_000, stats.binom(86_000, 0.5)
    ends = np.unique(law.ppf(np.arange(1, 20) / 20).astype(np.int64))
    part = np.searchsorted(ends, heads(400_000, coins))
    probability = np.diff([0.0, *law.cdf(ends), 1.0])
    for number in range(20):
        larger = 13 / 12 * probability[number]
        wrong = probability * (1 - larger) / (1 - probability[number])
        wrong[number] = larger
        check_frequencies(part, dict(enumerate(probability)), notices=dict(enumerate(wrong)))


@pytest.mark.parametrize("coins", [90, 1001, 4096])
@pytest.mark.parametrize("bits", [10, 40])
def test_the_rest_of_the_weights_is_no_less_than_that_of_all_further_distances_and_about_as_large(
    coins: int, bits: int
) -> None:
    lows, highs, rest = distance_weights(coins, bits)
    counts = counts_by_distance(coins)
    unit = math.comb(coins, coins // 2 + coins % 2)
    scaled = [Fraction(count << bits, 2 * unit) for count in counts]
    assert all(low <= exact <= high for low, exact, high in zip(lows, scaled, highs, strict=False))
    further = sum(scaled[len(lows) :])
    assert 0 < further <= rest
    assert rest <= 64 * further + 2**34
