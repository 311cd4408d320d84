"""Heads among many fair coins, exactly Bin(coins, 1/2), off one word of randomness and not off a bit for every coin.

How far the heads are from the middle is drawn by inversion, and to which side by one more bit. The proof is in
docs/proofs.md (fair coins).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ringfence.silo.exact_draws import Inversion, Weights, uniform


def heads_of(coins: int, count: int) -> NDArray[np.int64]:
    """Toss that many fair coins, as often as said, and count the heads each time."""
    words = uniform(count)
    distance = _distances(coins).draw(words >> np.uint64(1))
    upwards = (words & np.uint64(1)).astype(bool)
    half, odd = divmod(coins, 2)
    return np.where(upwards, half + odd + distance, half - distance)


@lru_cache(maxsize=4)
def _distances(coins: int) -> Inversion:
    return Inversion(lambda bits: distance_weights(coins, bits))


def distance_weights(coins: int, bits: int) -> Weights:
    """Bound C(coins, ⌈coins/2⌉ + k) for k = 0, 1, …, in units of the first; of an even number, half of the first.

    A distance is two counts, one on either side, but for the middle of an even number of coins, which is one.
    """
    half, odd = divmod(coins, 2)
    low = high = 1 << bits
    lows, highs = [low if odd else low >> 1], [high if odd else high >> 1]
    over, under = half, half + odd + 1
    while True:
        low, high = low * over // under, -(-high * over // under)
        if not high >> 32:
            # Every further weight is less than over/under of the one before it. After the last one, high is 0.
            return Weights(lows, highs, -(-high * under // (under - over)))
        lows.append(low)
        highs.append(high)
        over, under = over - 1, under + 1
