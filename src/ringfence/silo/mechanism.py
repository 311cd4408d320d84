"""The mechanism: clip each record's gradient, average, add the given noise.

It is a pure function of its arguments. Who takes part and what noise is added are decided outside, so the
gate (operating-system draws), the simulator and the audit run this same code, and equal draws give equal
bytes.

Guarantee. Replacing one record moves the mean by at most 2·clip/batch in Euclidean norm when that record
takes part, and not at all otherwise: each record's term has norm at most clip/batch by construction,
whatever the weights are. Rounding to the grid adds at most √d·grid to that, and floating-point summation a
little more; `planning.events.per_round_event` charges for both.

Edge cases: nobody takes part (possible under Poisson sampling) gives the noise alone; a record of norm 0
contributes 0.
"""

import math
from dataclasses import dataclass
from typing import Any

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.silo.records import Records

GRID_BITS = 30
"""Released numbers are multiples of a power of two between sigma·2⁻³¹ and sigma·2⁻³⁰."""


@dataclass(frozen=True, repr=False)
class Draws:
    """A round's randomness: 1 for every record that takes part and 0 for the others; and the noise vector."""

    participation: FloatArray
    noise: FloatArray


def grid_exponent(sigma: float) -> int:
    """Return k: released numbers are multiples of 2^k. Adding noise that lies on the grid is then exact."""
    return math.floor(math.log2(sigma)) - GRID_BITS


def release(plan: Plan, terms: SiloTerms, weights: FloatArray, records: Records, draws: Draws) -> FloatArray:
    """Return the one vector a silo sends in a round: its clipped mean gradient on the grid, plus the noise."""
    mean = clipped_mean(
        plan.loss,
        plan.clip,
        weights=weights,
        features=records.features,
        norms=records.norms,
        targets=records.targets,
        participation=draws.participation,
        batch=terms.batch,
    )
    return on_grid(mean, 2.0 ** grid_exponent(terms.sigma)) + draws.noise


def on_grid(values: FloatArray, grid: float) -> FloatArray:
    """Round to multiples of `grid`, a power of two, so that only the rounding itself is inexact."""
    result: FloatArray = namespace(values).round(values / grid) * grid
    return result


def clipped_mean(
    loss: Any,
    clip: float,
    *,
    weights: FloatArray,
    features: FloatArray,
    norms: FloatArray,
    targets: FloatArray,
    participation: FloatArray,
    batch: float,
) -> FloatArray:
    """Average the participants' clipped gradients, divided by the public `batch`: not private by itself.

    A record's gradient is outer(x, residual), of norm ‖x‖·‖residual‖, so scaling the residual clips it.
    """
    xp = namespace(features)
    residuals = loss.residuals(features @ weights.reshape(features.shape[1], -1), targets)
    lengths = norms * xp.sqrt(xp.sum(residuals * residuals, axis=1))
    shares = participation * (clip / xp.maximum(lengths, clip)) / batch
    result: FloatArray = (features.T @ (residuals * shares[:, None])).reshape(-1)
    return result
