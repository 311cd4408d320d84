"""The mechanism: clip each record's gradient, average, add the given noise.

It is a pure function of its arguments. Who takes part and what noise is added are decided outside, so the
gate (operating-system draws), the simulator and the audit run this same code, and equal draws give equal
bytes.

Guarantee. Replacing one record moves the mean by at most 2·clip/batch in Euclidean norm when that record
takes part, and not at all otherwise: each record's term has norm at most clip/batch by construction,
whatever the weights are. Rounding to the grid adds at most √d·grid to that, and floating-point summation a
little more; `planning.charges.task_event` charges for both.

Edge cases: nobody takes part (possible under Poisson sampling) gives the noise alone; a record of norm 0
contributes 0.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ringfence.planning.correlation import coefficients, inverse_coefficients
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import Task
from ringfence.protocol.schema import Categorical
from ringfence.protocol.shuffle import Shuffle
from ringfence.shuffle import vector_sum
from ringfence.silo.records import Kept, Records

GRID_BITS = 30
"""Released numbers are multiples of a power of two between sigma·2⁻³¹ and sigma·2⁻³⁰."""


_TINY = 1e-30
"""Stands for a length of 0 in a division; it is a normal number in single precision too."""


class Residuals(Protocol):
    """What the mechanism needs of a loss."""

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the derivative of every record's loss in its scores."""


@dataclass(frozen=True, repr=False)
class Draws(Kept):
    """A round's randomness: 1 for every record that takes part and 0 for the others; and the noise vector.

    Through a shuffler the noise is whole numbers, the heads among fair coins, and `rounding` is uniform on [0, 1).
    """

    participation: FloatArray
    noise: FloatArray
    rounding: FloatArray | None = None


def grid_exponent(sigma: float) -> int:
    """Return k: released numbers are multiples of 2^k. Adding noise that lies on the grid is then exact."""
    return math.floor(math.log2(sigma)) - GRID_BITS


@dataclass(repr=False)
class Block(Kept):
    """What a silo remembers of earlier rounds, so that their noise can cancel in part: exact means and noisy rows.

    It lives in the silo's memory only and is never stored. A silo that restarts begins a new block, which costs
    accuracy but no privacy (`planning.correlation`).
    """

    means: list[FloatArray] = field(default_factory=list)
    rows: list[FloatArray] = field(default_factory=list)


def release(
    plan: Plan, work: Task, weights: FloatArray, records: Records, draws: Draws, block: Block | None = None
) -> FloatArray:
    """Return the one vector a silo sends in a round: its clipped mean gradient on the grid, plus the noise.

    In a survey's round it is the survey's statistic instead. With a `block`, which then remembers this round too, the
    noise is correlated with that of the block's earlier rounds.
    """
    exact = _survey(plan, records) if work.query == "survey" else _mean_gradient(plan, work, weights, records, draws)
    if block is None or work.query == "survey":
        return _on_grid(exact, work.sigma) + draws.noise
    means = [*block.means, exact]
    encoded = coefficients(plan.correlation, len(means))[::-1] @ np.array(means)
    rows = [*block.rows, _on_grid(encoded, work.sigma) + draws.noise]
    decoded: FloatArray = inverse_coefficients(plan.correlation, len(rows))[::-1] @ np.array(rows)
    block.means, block.rows = means, rows
    return decoded


def counts(
    plan: Plan, shuffle: Shuffle, work: Task, weights: FloatArray, records: Records, draws: Draws
) -> vector_sum.Counts:
    """Return what a silo's shares add up to: its summed gradients as counts, coins included, and how many they are of.

    The last number is the public size of the batch, so that the server can tell what a total is a total of.
    """
    assert draws.rounding is not None  # noqa: S101 (drawn for this plan)
    ones = vector_sum.encode(
        work.batch * _mean_gradient(plan, work, weights, records, draws),
        vectors=work.batch,
        clip=plan.clip,
        levels=shuffle.levels,
        rounding=draws.rounding,
        coins=draws.noise.astype(np.int64),
    )
    return np.append(ones, work.batch)


def _on_grid(vector: FloatArray, sigma: float) -> FloatArray:
    grid = 2.0 ** grid_exponent(sigma)
    # Dividing by a power of two is exact, so only the rounding itself is inexact.
    rounded: FloatArray = np.round(vector / grid) * grid
    return rounded


def _mean_gradient(plan: Plan, work: Task, weights: FloatArray, records: Records, draws: Draws) -> FloatArray:
    mean = clipped_mean(
        plan.loss,
        plan.clip,
        weights=weights.reshape(plan.data.width, -1),
        features=records.features,
        norms=records.norms,
        targets=records.targets,
        shares=draws.participation / work.batch,
    )
    return mean.reshape(-1)


def _survey(plan: Plan, records: Records) -> FloatArray:
    """Compute the survey's statistic, with features and targets cut to their public bounds once more."""
    largest, bound = plan.data.feature_norm, plan.data.target_bound
    features = records.features * np.minimum(1.0, largest / np.maximum(records.norms, _TINY))[:, None]
    targets = None if isinstance(plan.data.target_column, Categorical) else np.clip(records.targets, -bound, bound)
    if plan.survey is not None and plan.survey.statistic == "moments":
        return moments(features / largest, None if targets is None else targets / bound)
    return np.array([curvature(features)])


def curvature(features: FloatArray) -> float:
    """Return the largest eigenvalue of (1/n)·Σ xxᵀ: not private by itself."""
    return float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])


def moments(features: FloatArray, targets: FloatArray | None) -> FloatArray:
    """Return the means and mean squares of all features, then of the targets if given: not private by themselves."""
    columns = features if targets is None else np.column_stack([features, targets])
    return np.concatenate([columns.mean(axis=0), (columns**2).mean(axis=0)])


def clipped_mean(
    loss: Residuals,
    clip: FloatArray | float,
    *,
    weights: FloatArray,
    features: FloatArray,
    norms: FloatArray,
    targets: FloatArray,
    shares: FloatArray,
) -> FloatArray:
    """Add up the records' clipped gradients, each times its share: not private by itself.

    A record's gradient is outer(x, residual), of norm ‖x‖·‖residual‖, so scaling the residual clips it. The
    weights have one row per feature and, last, one column per output; between them, as in `clip` and behind
    the records in `shares`, there may be axes of configurations, which the simulator runs side by side.
    """
    xp = namespace(features)
    residuals = loss.residuals(xp.tensordot(features, weights, axes=1), targets)
    lengths = norms.reshape(-1, *[1] * (weights.ndim - 2)) * xp.sqrt(xp.sum(residuals * residuals, axis=-1))
    kept = xp.minimum(1.0, clip / xp.maximum(lengths, _TINY))  # of each gradient's length; 1 where it fits
    factors = shares.reshape(*shares.shape, *[1] * (lengths.ndim - shares.ndim)) * kept
    result: FloatArray = xp.tensordot(features, residuals * factors[..., None], axes=[[0], [0]])
    return result
