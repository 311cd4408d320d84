"""Draws from the operating system's randomness, for real releases. There is no seed to set.

Noise comes from OpenDP's exact sampler of the discrete Gaussian on a grid, never from floating-point
transformations of uniform numbers, whose gaps would leak.
"""

import hashlib
import os
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task
from ringfence.silo.mechanism import Draws, grid_exponent

enable_features("contrib")  # OpenDP's name for measurements whose proofs its own team has not yet reviewed


def draw(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
    """Draw who takes part and what noise is added, for one round's task."""
    chosen = _participation(plan, terms, work)
    if plan.shuffle is None:
        return Draws(chosen, gaussian_noise(work.length, work.sigma))
    # 53 bits make a number of [0, 1) exactly; that it is no finer is charged for (`charges.counts_rounding`).
    rounding = np.ldexp((_uniform(work.length) >> np.uint64(11)).astype(np.float64), -53)
    return Draws(chosen, heads(work.length, work.batch * plan.shuffle.coins).astype(np.float64), rounding)


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


def gaussian_noise(dimension: int, sigma: float) -> FloatArray:
    """Draw independent discrete Gaussian noise of standard deviation sigma, on the grid of the mechanism."""
    space = vector_domain(atom_domain(T=float, nan=False), size=dimension), l2_distance(T=float)
    measurement = make_gaussian(*space, scale=sigma, k=grid_exponent(sigma))
    return np.array(measurement([0.0] * dimension), dtype=np.float64)


def _participation(plan: Plan, terms: SiloTerms, work: Task) -> FloatArray:
    if work.query == "survey" or plan.sampling == "full":
        return np.ones(terms.records)
    chosen = np.zeros(terms.records)
    if work.part is not None:
        order = _partition(plan.digest(), terms.name, terms.records)
        chosen[order[work.first : work.first + work.batch]] = 1.0
    elif plan.sampling == "poisson":
        # An integer comparison: the probability is batch/records to within 2⁻⁶⁴, rounded down.
        chosen[_uniform(terms.records) <= np.uint64((work.batch << 64) // terms.records - 1)] = 1.0
    else:
        chosen[np.argsort(_uniform(terms.records))[: work.batch]] = 1.0
    return chosen


def _uniform(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


@lru_cache(maxsize=4)
def _partition(digest: str, silo: str, records: int) -> NDArray[np.int64]:
    """Order the records by a hash of the plan and their row number.

    The privacy of one pass, and of phases, rests on the parts being disjoint, not on their being secret, so a fixed
    public order is enough, and a restarted silo finds the same one without having stored it. The rows must keep
    their order while the plan runs: the operator must not sort the data file in between.
    """
    keys = [hashlib.sha256(f"{digest}/{silo}/{row}".encode()).digest() for row in range(records)]
    return np.array(sorted(range(records), key=keys.__getitem__), dtype=np.int64)
