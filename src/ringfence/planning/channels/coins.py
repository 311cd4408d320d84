"""The levels, coins and shares with which a shuffled sum meets a budget; `accounting.shuffled_sums` prices them."""

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from ringfence.accounting.events import require_count, require_positive, require_probability
from ringfence.accounting.shuffled_sums import MOST_TRIALS, binomial_shift, mixing_distance
from ringfence.errors import AccountingError


def least_trials(*, reach: float, dimension: int, slack: float, shift: float) -> int:
    """Return the least T, by bisection, with ``binomial_shift(trials=T, ...) <= shift``, which holds as computed."""
    require_positive("shift", shift)

    def meets(trials: int) -> bool:
        """Return whether that many coins in shuffled sums reach the shift."""
        return binomial_shift(reach=reach, trials=trials, dimension=dimension, slack=slack) <= shift

    meets(1)  # refuses whatever does not depend on the trials, in its own words
    guess = (2 * reach / shift) ** 2  # a Gaussian of the same variance, which no binomial undercuts by much
    fails, enough = 0, max(1, math.ceil(min(guess, 2.0 * MOST_TRIALS)))
    while enough <= MOST_TRIALS and not meets(enough):
        fails, enough = enough, math.ceil(1.25 * enough)
    if enough > MOST_TRIALS:
        raise AccountingError(
            f"No number of coins up to 2**52 brings the shift to {shift:g} at a reach of {reach:g} levels; "
            "lower the levels or the rounds, or allow a larger epsilon."
        )
    between = range(fails + 1, enough)
    return fails + 1 + bisect_left(between, True, key=meets)


@dataclass(frozen=True)
class CoinNoise:
    """How vectors are encoded, per coordinate: ``levels`` to round to, and ``coins`` to toss for every vector."""

    levels: int
    coins: int

    def bits_per_vector(self, dimension: int) -> int:
        """Return how many shuffled bits one vector takes when each counts one: d(g + b)."""
        return dimension * (self.levels + self.coins)


def choose(*, vectors: int, dimension: int, shift: float, slack: float, bits: int, inflation: float = 1.0) -> CoinNoise:
    """Return the encoding with which a shuffled sum of ``vectors`` vectors costs at most ``shift`` (plus ``slack``).

    At most ``bits`` bits per vector; the fewest with a deviation within 1 % of the least. ``inflation`` is the reach
    per level: 1, and a little more for the rounding of the caller's arithmetic. Coins beyond 64 are tried in steps
    of 2 %.
    """
    m, d, limit = require_count("vectors", vectors), require_count("dimension", dimension), require_count("bits", bits)
    require_positive("shift", shift)
    if require_positive("inflation", inflation) < 1:
        raise AccountingError(
            f"inflation must be at least 1, but is {inflation!r}: a level moves a sum by at least one level."
        )
    per_coordinate = limit // d
    candidates: list[CoinNoise] = []
    coins = 1
    while coins < per_coordinate:
        most = per_coordinate - coins
        levels = _most_levels(most, m * coins, d, shift, slack, inflation)
        if levels:
            candidates.append(CoinNoise(levels, coins))
        if levels == most:  # more coins would leave fewer levels
            break
        coins = max(coins + 1, coins * 51 // 50)
    if not candidates:
        least = least_trials(reach=inflation, dimension=d, slack=slack, shift=shift)
        coarsest = CoinNoise(1, -(-least // m))
        raise AccountingError(
            f"{limit} bits per vector are too few: {m} vectors of {d} coordinates need at least "
            f"{coarsest.bits_per_vector(d)} each at this budget; raise the bit limit, add records, or allow a larger "
            "epsilon."
        )
    finest = min(_noise_to_signal(candidate) for candidate in candidates)
    good = [candidate for candidate in candidates if _noise_to_signal(candidate) <= 1.01 * finest]
    return min(good, key=lambda candidate: candidate.bits_per_vector(d))


def _most_levels(most: int, trials: int, dimension: int, shift: float, slack: float, inflation: float) -> int:
    """Return the most levels, up to ``most``, that ``trials`` coins cover; 0 if none. The cost rises in the levels."""

    def cost(levels: int) -> float:
        """Return the shift of shuffled sums with that many levels."""
        return binomial_shift(reach=levels * inflation, trials=trials, dimension=dimension, slack=slack)

    return bisect_right(range(1, most + 1), shift, key=cost)


def _noise_to_signal(noise: CoinNoise) -> float:
    """Return the ratio of a coin noise's deviation to its levels, to compare encodings of shuffled sums."""
    return math.sqrt(noise.coins) / noise.levels


def shares_needed(*, parties: int, bits: int, distance: float) -> int:
    """Return the least number of shares with ``mixing_distance(...) <= distance``."""
    require_probability("distance", distance)

    def meets(shares: int) -> bool:
        """Return whether that many shares of a shuffled sum mix closely enough."""
        return mixing_distance(parties=parties, shares=shares, bits=bits) <= distance

    fails, enough = 0, 1
    while not meets(enough):
        fails, enough = enough, 2 * enough
    between = range(fails + 1, enough)
    return fails + 1 + bisect_left(between, True, key=meets)
