"""Vector summation P_vec (Algorithms 4 and 5 of the paper, corrected): gradients as counts of ones.

A vector x with ‖x‖ ≤ L becomes, coordinate by coordinate, y = (x + L)·g/(2L) in [0, g], is rounded at random to a whole
number without bias, and gets b fair coins. What is sent is that many ones among g + b bits. Bits of one coordinate are
alike, so shuffled together they reveal only the number of ones: the integer sum plus Bin(m·b, 1/2).

Corrections (the printed protocol is biased by (m−1)L): the range is 2L wide, the re-centring is m·L and the coins'
mean m·b/2, where m is the number of vectors in the sum.

A silo is trusted with its own records, so it adds them up first and rounds the sum once: K vectors are then one count
of at most K(g + b), with the coins of all K. For a single vector this is the paper's randomizer. Rounding the sum
keeps the guarantee (the sum has the vector's sensitivity) and has a smaller error.
"""

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray

Counts = NDArray[np.int64]


def encode_sum(
    total: FloatArray, *, vectors: int, clip: float, levels: int, rounding: FloatArray, coins: Counts
) -> Counts:
    """Encode a sum of vectors as numbers of ones, per coordinate.

    `rounding` is uniform on [0, 1) and `coins` Bin(vectors·b, 1/2), a number per coordinate each: both are secret.
    """
    height = levels * (total / (2 * clip) + vectors / 2)
    # Rounding errors of the sum must not carry it out of the range: a count too many would not fit its share.
    whole = np.floor(np.clip(height, 0.0, levels * vectors) + rounding)
    return np.minimum(whole, levels * vectors).astype(np.int64) + coins


def decode_sum(ones: Counts, *, vectors: int, clip: float, levels: int, coins: int) -> FloatArray:
    """Return the sum of the vectors, without bias, from the number of ones in all their messages."""
    expected = vectors * coins / 2
    return np.asarray(2 * clip / levels * (ones - expected) - vectors * clip, dtype=np.float64)
