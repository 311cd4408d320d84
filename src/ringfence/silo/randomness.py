"""Draws from the operating system's randomness, for real releases. There is no seed to set.

Noise comes from OpenDP's exact sampler of the discrete Gaussian on a grid, never from floating-point
transformations of uniform numbers, whose gaps would leak.
"""

import os

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task
from ringfence.silo import sampling
from ringfence.silo.channels import sending
from ringfence.silo.mechanism import Draws

enable_features("contrib")  # OpenDP's name for measurements whose proofs its own team has not yet reviewed


def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
    """Draw who takes part and what noise is added, for one round's task."""
    chosen = sampling.participation(work.stage.sampling, plan, terms, work, uniform)
    return Draws(chosen, sending(work.stage.channel).draw(work.stage.channel, work))


def gaussian_noise(dimension: int, sigma: float, exponent: int) -> FloatArray:
    """Draw independent discrete Gaussian noise of standard deviation sigma, on multiples of 2^exponent."""
    space = vector_domain(atom_domain(T=float, nan=False), size=dimension), l2_distance(T=float)
    measurement = make_gaussian(*space, scale=sigma, k=exponent)
    return np.array(measurement([0.0] * dimension), dtype=np.float64)


def heads(dimension: int, coins: int) -> NDArray[np.int64]:
    """Toss so many fair coins per coordinate and count the heads: exactly Bin(coins, 1/2), off random bits."""
    return np.array([_heads(coins) for _ in range(dimension)], dtype=np.int64)


def _heads(coins: int) -> int:
    total, whole = 0, coins - coins % 8
    for begin in range(0, whole // 8, _CHUNK):
        random = os.urandom(min(_CHUNK, whole // 8 - begin))
        total += int.from_bytes(random, "little").bit_count()
    return total + (os.urandom(1)[0] & ((1 << (coins - whole)) - 1)).bit_count()


_CHUNK = 2**20
"""Bytes of randomness taken at once."""


def uniform(count: int) -> NDArray[np.uint64]:
    """Draw so many whole numbers, each uniform on 0 … 2⁶⁴ − 1."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
