"""Exact draws of the discrete Gaussian on the whole numbers, many at once: z with probability ∝ exp(−z²/2s²).

After Karney (2016): the half-line is divided into strips of width s/16. A strip k is drawn with weight exp(−k²/2·16²),
then a whole number z in it, uniformly, and z is kept with probability exp(−γ), γ = (z²/s² − k²/16²)/2. Strips are drawn
by inversion. Whether z is kept is decided in floating point, with additions, multiplications and divisions alone, of
which IEEE 754 says how far they may be off. Less than one in 2³⁸ is too close to tell, and is decided with whole
numbers of any size. docs/proofs.md (the discrete Gaussian) has the proof.
"""

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray
from ringfence.silo.noise.exact_draws import Inversion, Weights, choices, exponential, lies_below, uniform

LEAST, MOST = 0.5, 2.0**35
"""Range of scales. Below, nearly all strips are empty; above, 32 bits cannot choose within one."""

STRIPS = 16
"""Strips per s. With more of them, fewer proposals are rejected and lookups take longer."""

NEAR = 160
"""Strips for which the error bound below is proved. A draw falls beyond them with probability less than 2⁻⁷⁵."""

ORDER = 13
"""Order of the polynomial for exp: γ ≤ 160/256 in near strips, and 0.625¹⁴/14! < 2⁻⁴⁵."""

ERROR = 2.0**-40
"""Error bound of the floating-point comparison in near strips; the proof has 2⁻⁴⁴."""

_BLOCK = 2**15
"""Numbers proposed at once: their arrays stay in a core's own cache."""


def discrete_gaussian(count: int, scale: float) -> NDArray[np.int64]:
    """Draw independent discrete Gaussian numbers of the given scale, from the operating system's randomness.

    The time that it takes depends on the scale and on chance alone.
    """
    if not LEAST <= scale <= MOST:
        raise ValueError(
            f"Noise of scale {scale} in units of its grid cannot be drawn: it must lie between {LEAST} and {MOST}."
        )
    drawn = np.empty(count, dtype=np.int64)
    have = 0
    while have < count:
        missing = count - have
        kept = _kept(min(_BLOCK, missing + missing // 16 + 64), scale)[:missing]
        drawn[have : have + len(kept)] = kept
        have += len(kept)
    return drawn


def _kept(proposals: int, scale: float) -> NDArray[np.int64]:
    """Return the accepted ones of that many proposals for the discrete Gaussian."""
    first, decide = uniform(proposals), uniform(proposals)
    strip = _strips().draw(first >> np.uint64(1))
    negative = (first & np.uint64(1)).astype(bool)
    edges = _edges(scale, max(NEAR, int(strip.max()) + 1))
    short = uniform(proposals - proposals // 2).view(np.uint32)[:proposals].astype(np.uint64)
    offset, fair = choices(short, 32, math.ceil(scale / STRIPS))
    z = edges[strip] + offset
    sound = np.flatnonzero(fair & (z < edges[strip + 1]) & ~(negative & (z == 0)))
    z, strip = z[sound], strip[sound]
    signed = np.where(negative[sound], -z, z)
    return signed[keep(z, strip, decide[sound], scale)]


def keep(z: NDArray[np.int64], strip: NDArray[np.int64], words: NDArray[np.uint64], scale: float) -> NDArray[np.bool_]:
    """Accept each z ≥ 0 of its strip with probability exp(−γ), by the uniform number that begins with the word."""
    start = strip / STRIPS
    beyond = z / scale - start
    gamma = beyond * (2 * start + beyond) / 2
    series: FloatArray = np.ones(len(z))
    for order in range(ORDER, 0, -1):
        series *= gamma
        series /= order
        np.subtract(1.0, series, out=series)
    above = np.ldexp((words >> np.uint64(11)).astype(np.float64), -53) - series
    kept = above < 0
    for place in np.flatnonzero((np.abs(above) <= ERROR) | (strip >= NEAR)):
        kept[place] = exactly_keep(int(z[place]), int(strip[place]), int(words[place]), scale)
    return kept


def exactly_keep(z: int, strip: int, word: int, scale: float) -> bool:
    """Decide like `keep` for one z of the discrete Gaussian, with whole numbers of any size."""
    above, below = scale.as_integer_ratio()
    numerator = (z * below * STRIPS) ** 2 - (strip * above) ** 2
    return lies_below(word, 64, lambda bits: exponential(numerator, 2 * (above * STRIPS) ** 2, bits))


@cache
def _strips() -> Inversion:
    """Return the distribution of the discrete Gaussian's strips."""
    return Inversion(strip_weights)


def strip_weights(bits: int) -> Weights:
    """Bound exp(−k²/2·16²) for k = 0, 1, …: the weight's ratio to the next has a constant ratio to the next one's."""
    one = 1 << bits
    low = high = one
    ratio_low, ratio_high = exponential(1, 2 * STRIPS**2, bits)
    factor_low, factor_high = exponential(1, STRIPS**2, bits)
    lows, highs = [], []
    while high >> 32:
        lows.append(low)
        highs.append(high)
        low, high = low * ratio_low >> bits, -(-high * ratio_high >> bits)
        ratio_low, ratio_high = ratio_low * factor_low >> bits, -(-ratio_high * factor_high >> bits)
    return Weights(lows, highs, -(-high * one // (one - ratio_high)))


@lru_cache(maxsize=64)
def _edges(scale: float, strips: int) -> NDArray[np.int64]:
    """Return the least whole number of every strip of the discrete Gaussian, and of the one after the last."""
    above, below = scale.as_integer_ratio()
    return np.array([-(-strip * above // (below * STRIPS)) for strip in range(strips + 1)], dtype=np.int64)
