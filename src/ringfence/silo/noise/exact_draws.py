"""Draws with exactly the intended distribution, from as many random bits as each of them needs.

A uniform number of [0, 1) has infinitely many bits. A word holds the first of them, and nearly always decides on which
side of a threshold the number lies. Where it does not, further bits of the same number are drawn, and the threshold is
computed to as many: a draw is never thrown away because it is close, which would change its distribution. Thresholds
are enclosed by whole numbers of Python, so nothing rests on anybody's floating-point functions. The proof is in
docs/proofs.md (exact draws).
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BITS = 63
"""Bits that a draw by inversion uses first: of a word of 64, the last one is left for a sign."""

_MORE = 64
"""Bits by which an undecided number is extended, and extra bits of weights over thresholds."""


class Weights(NamedTuple):
    """Bounds on the weights of outcomes 0, 1, …, in some unit, and an upper bound on the sum of all further ones."""

    lows: list[int]
    highs: list[int]
    rest: int


class Inversion:
    """A distribution on 0, 1, …, from which each draw is the number of thresholds that a uniform number reaches."""

    def __init__(self, weights: Callable[[int], Weights], bits: int = BITS) -> None:
        """Draw exactly by inversion from weights that a function bounds in units of 2^-bits, for any number of bits."""
        self._weights, self._bits = weights, bits
        lows, highs = thresholds(weights, bits)
        self._lows, self._highs = np.array(lows, dtype=np.uint64), np.array([0, *highs], dtype=np.uint64)

    def draw(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return an outcome for each uniform number, of which the words are the first bits."""
        drawn = np.searchsorted(self._lows, words, side="right").astype(np.int64)
        for place in np.flatnonzero(self._highs[drawn] > words):
            drawn[place] = self._exactly(int(words[place]))
        return drawn

    def _exactly(self, word: int) -> int:
        """Return the outcome for one uniform number near a threshold, from as many more random bits as needed."""
        bits = self._bits
        while True:
            word, bits = _extended(word, bits)
            lows, highs = thresholds(self._weights, bits)
            reached = bisect_right(highs, word)
            if reached == bisect_right(lows, word):
                return reached


def thresholds(weights: Callable[[int], Weights], bits: int) -> tuple[list[int], list[int]]:
    """Return lower and upper bounds on the distribution function at 0, 1, …, in units of 2^-bits; both rise."""
    lows, highs, rest = weights(bits + _MORE)
    least, most, one = sum(lows), sum(highs) + rest, 1 << bits
    below = [(total << bits) // most for total in accumulate(lows)]
    above = [min(one, -((-total << bits) // least)) for total in accumulate(highs)]
    # The last number above is 2^bits, as its quotient is at least 1: what may be a further outcome stays undecided.
    if rest == 0:
        below[-1] = one
    return below, above


def lies_below(word: int, bits: int, bounds: Callable[[int], tuple[int, int]]) -> bool:
    """Decide whether the uniform number that begins with these bits is less than the real number within the bounds.

    `bounds` says between which multiples of 2^-bits that number lies, for as many bits as it is asked for.
    """
    while True:
        low, high = bounds(bits)
        if word < low:
            return True
        if word >= high:
            return False
        word, bits = _extended(word, bits)


def exponential(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return whole numbers below and above 2^bits·exp(−numerator/denominator), for a fraction that is not negative.

    The sums of exp's series are by turns above and below exp(−x), for every x ≥ 0.
    """
    fine = bits + 16
    one = 1 << fine
    low = high = one  # bounds on a term of the series
    least = most = one  # bounds on the sum of the terms so far
    order = 0
    while high > 1 or order % 2:
        order += 1
        low = low * numerator // (denominator * order)
        high = -(-high * numerator // (denominator * order))
        least, most = (least - high, most - low) if order % 2 else (least + low, most + high)
    # The last order is even: the sum is not below exp(−x), and without its last term not above it.
    return max(0, least - high >> 16), min(one, most) + (1 << 16) - 1 >> 16


def choices(words: NDArray[np.uint64], bits: int, many: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Turn words of that many bits into whole numbers from 0 to many − 1, and say which to take: those are uniform.

    The upper half of a product with `many` is, once those with the 2^bits mod `many` least lower halves are refused
    (Lemire 2019). `many` may have 63 − bits bits.
    """
    products = words * np.uint64(many)
    fair = (products & np.uint64((1 << bits) - 1)) >= np.uint64((1 << bits) % many)
    return (products >> np.uint64(bits)).astype(np.int64), fair


def uniform(count: int) -> NDArray[np.uint64]:
    """Draw `count` whole numbers, each exactly uniform on 0 … 2⁶⁴ − 1, from the operating system's randomness."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def _extended(word: int, bits: int) -> tuple[int, int]:
    """Append more random bits to a uniform number, for an exact draw."""
    return word << _MORE | int.from_bytes(os.urandom(_MORE // 8), "little"), bits + _MORE
