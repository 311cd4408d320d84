"""The coins and shares that the planner chooses are enough, and the fewest that are."""

import itertools
import math

import pytest

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.profiles import gaussian_delta
from ringfence.accounting.shuffled_sums import binomial_shift, mixing_distance
from ringfence.errors import AccountingError
from ringfence.planning.channels.coins import CoinNoise, choose, least_trials, shares_needed


@pytest.mark.parametrize(("reach", "shift"), [(1.0, 2.0), (1.0, 0.2), (24.0, 0.24), (1000.0, 0.1), (3.0, 1e-5)])
def test_the_least_number_of_coins_is_enough_and_one_less_is_not(reach: float, shift: float) -> None:
    trials = least_trials(reach=reach, dimension=20, slack=1e-8, shift=shift)
    assert binomial_shift(reach=reach, trials=trials, dimension=20, slack=1e-8) <= shift
    assert binomial_shift(reach=reach, trials=trials - 1, dimension=20, slack=1e-8) > shift


def test_a_shift_that_no_number_of_coins_reaches_is_refused() -> None:
    with pytest.raises(AccountingError, match="lower the levels"):
        least_trials(reach=1e6, dimension=2, slack=1e-8, shift=1e-6)


@pytest.mark.parametrize(("bits", "ratio"), [(800, 1.03), (3000, 1.02), (7000, 1.01)])
def test_few_bits_come_close_to_the_noise_of_a_trusted_server(bits: int, ratio: float) -> None:
    """d=50, 1500 vectors, epsilon 1, delta 1e-6: a trusted server would add noise of deviation 8.45 L."""
    delta, vectors, dimension = 1e-6, 1500, 50
    shift, slack = gaussian_shift(1.0, 0.99 * delta), 0.01 * delta
    noise = choose(vectors=vectors, dimension=dimension, shift=shift, slack=slack, bits=bits)
    trials = vectors * noise.coins
    cost = binomial_shift(reach=float(noise.levels), trials=trials, dimension=dimension, slack=slack)
    assert gaussian_delta(cost, 1.0) + slack <= delta
    assert noise.bits_per_vector(dimension) == dimension * (noise.levels + noise.coins) <= bits
    central = 2 / gaussian_shift(1.0, delta)
    assert central == pytest.approx(8.45, abs=0.01)
    deviation = 2 / noise.levels * math.sqrt((trials + 25) / 4)  # of the sum of 25 parties, each of which rounds
    assert central < deviation < ratio * central


def test_the_choice_is_the_best_of_all_and_not_wasteful() -> None:
    """Against every choice of levels and coins within the limit, by the definition."""
    given = {"dimension": 4, "slack": 1e-8}
    vectors, shift, limit = 300, 0.3, 40
    fits = [
        CoinNoise(levels, coins)
        for levels, coins in itertools.product(range(1, limit), repeat=2)
        if levels + coins <= limit and binomial_shift(reach=1.001 * levels, trials=vectors * coins, **given) <= shift  # type: ignore[arg-type]
    ]

    def deviation(noise: CoinNoise) -> float:
        return math.sqrt(noise.coins) / noise.levels

    best = min(map(deviation, fits))
    chosen = choose(vectors=vectors, shift=shift, bits=4 * limit, inflation=1.001, **given)  # type: ignore[arg-type]
    assert chosen in fits
    assert deviation(chosen) <= 1.01 * best
    fewest = min(noise.levels + noise.coins for noise in fits if deviation(noise) <= 1.01 * best)
    assert chosen.levels + chosen.coins == fewest


def test_too_few_bits_are_refused_with_the_number_that_would_do() -> None:
    given = {"vectors": 100, "dimension": 10, "shift": 0.1, "slack": 1e-8}
    with pytest.raises(AccountingError, match="raise the bit limit") as refusal:
        choose(bits=30, **given)  # type: ignore[arg-type]
    needed = int(str(refusal.value).split("at least ")[1].split()[0])
    assert choose(bits=needed, **given).bits_per_vector(10) == needed  # type: ignore[arg-type]
    with pytest.raises(AccountingError):
        choose(bits=needed - 1, **given)  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="inflation"):
        choose(bits=needed, inflation=0.99, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("parties", [1, 2, 3, 25, 600])
def test_the_least_number_of_shares_is_enough_and_one_less_is_not(parties: int) -> None:
    shares = shares_needed(parties=parties, bits=24, distance=1e-9)
    assert mixing_distance(parties=parties, shares=shares, bits=24) <= 1e-9
    assert shares == 1 or mixing_distance(parties=parties, shares=shares - 1, bits=24) > 1e-9
    assert (shares == 1) == (parties == 1)


def test_a_distance_that_is_no_probability_is_refused() -> None:
    with pytest.raises(AccountingError, match="distance"):
        shares_needed(parties=5, bits=8, distance=0.0)


def test_one_coin_for_each_of_many_vectors_may_be_enough() -> None:
    assert choose(vectors=10**6, dimension=1, shift=1.0, slack=1e-8, bits=2) == CoinNoise(1, 1)
