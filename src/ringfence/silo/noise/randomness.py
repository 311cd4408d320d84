"""Noise from the operating system's randomness, for real releases. There is no seed to set.

Noise is exact: the discrete Gaussian on a grid, and heads of fair coins, never floating-point transformations of
uniform numbers, whose gaps would leak.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray
from ringfence.silo.noise.discrete_gaussian import discrete_gaussian
from ringfence.silo.noise.exact_draws import Inversion, Weights, uniform


def gaussian_noise(dimension: int, sigma: float, exponent: int) -> FloatArray:
    """Draw independent discrete Gaussian noise of standard deviation sigma, on multiples of 2^exponent."""
    # Scaling by a power of two is exact, both ways.
    steps = discrete_gaussian(dimension, math.ldexp(sigma, -exponent))
    noise: FloatArray = np.ldexp(steps.astype(np.float64), exponent)
    return noise


def heads(dimension: int, coins: int) -> NDArray[np.int64]:
    """Toss that many fair coins per coordinate and count the heads: exactly Bin(coins, 1/2).

    It uses one random word per coordinate, not a bit per coin: the distance from the middle is drawn by inversion, the
    side by one more bit. The proof is in docs/proofs.md (fair coins).
    """
    words = uniform(dimension)
    distance = _distances(coins).draw(words >> np.uint64(1))
    upwards = (words & np.uint64(1)).astype(bool)
    half, odd = divmod(coins, 2)
    return np.where(upwards, half + odd + distance, half - distance)


@lru_cache(maxsize=4)
def _distances(coins: int) -> Inversion:
    """Return the distribution of the heads' distance from half of the coins."""
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
