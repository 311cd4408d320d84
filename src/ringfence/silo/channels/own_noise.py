"""A silo's own noise: the exact answer on a grid, plus noise on the same grid, independent or correlated.

Rounding to the grid moves an answer by at most √d·grid between neighbours, and writing it as doubles a little more;
`accounting.sampling.shift_of` charges for both.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from ringfence.accounting.correlation import coefficients, inverse_coefficients
from ringfence.protocol import FloatArray, NoisyUpdate, OwnNoise, Plan, SiloTerms, Task, pack
from ringfence.silo.noise import randomness
from ringfence.silo.records.storage import Unpicklable

GRID_BITS = 30
"""Released numbers are multiples of a power of two between sigma·2⁻³¹ and sigma·2⁻³⁰."""


def grid_exponent(sigma: float) -> int:
    """Return k: released numbers are multiples of 2^k. Adding noise that lies on the grid is then exact."""
    return math.frexp(sigma)[1] - 1 - GRID_BITS


@dataclass(repr=False)
class CorrelatedRounds(Unpicklable):
    """Earlier rounds' exact means and noisy rows, so that their noise can cancel in part.

    It is never stored. A silo that restarts begins anew, which costs accuracy but no privacy
    (`accounting.correlation`).
    """

    means: list[FloatArray] = field(default_factory=list)
    rows: list[FloatArray] = field(default_factory=list)


def require(channel: OwnNoise, terms: SiloTerms, key: bytes | None) -> None:
    """Require nothing: a silo needs nobody to add its own noise."""


def draw(channel: OwnNoise, work: Task) -> FloatArray:
    """Draw independent noise for every number."""
    return randomness.gaussian_noise(work.length, work.sigma, grid_exponent(work.sigma))


def memory(channel: OwnNoise) -> CorrelatedRounds | None:
    """Return an empty memory, if noise is correlated."""
    return CorrelatedRounds() if channel.correlation else None


def encode(
    channel: OwnNoise, plan: Plan, work: Task, exact: FloatArray, noise: FloatArray, memory: CorrelatedRounds | None
) -> FloatArray:
    """Return the exact answer on the grid, plus the noise, which may be correlated with that of earlier rounds."""
    if memory is None:
        return _on_grid(exact, work.sigma) + noise
    means = [*memory.means, exact]
    encoded = coefficients(channel.correlation, len(means))[::-1] @ np.array(means)
    rows = [*memory.rows, _on_grid(encoded, work.sigma) + noise]
    decoded: FloatArray = inverse_coefficients(channel.correlation, len(rows))[::-1] @ np.array(rows)
    memory.means, memory.rows = means, rows
    return decoded


def message(
    channel: OwnNoise, plan: Plan, terms: SiloTerms, round: int, key: bytes | None, numbers: FloatArray
) -> NoisyUpdate:
    """Write the noisy vector as an update."""
    return NoisyUpdate(plan=plan.digest(), round=round, silo=terms.name, vector=pack(numbers))


def _on_grid(vector: FloatArray, sigma: float) -> FloatArray:
    """Round a silo's exact answer to the grid of its own noise."""
    grid = 2.0 ** grid_exponent(sigma)
    # Dividing by a power of two is exact, so only the rounding itself is inexact.
    rounded: FloatArray = np.round(vector / grid) * grid
    return rounded
