"""Clipped gradients of all silos' records at once: the only file here that knows which query training asks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ringfence.errors import TrainingError
from ringfence.protocol import Gradient, PersonRule, PreconditionedGradient, Stage
from ringfence.protocol.arrays import TINY
from ringfence.protocol.losses.base import LinearLoss
from ringfence.silo.queries.gradient import clipped, clipped_mean

BLOCK = 1024
"""Records per block where a single run is simulated: from here on XLA gives blocks to several threads."""


def clip_of(stage: Stage) -> float:
    """Return a training stage's clip; TrainingError if it asks for something else than gradients."""
    match stage.query:
        case Gradient(clip=clip):
            return clip
        case PreconditionedGradient():
            return 1.0
        case other:
            raise TrainingError(f"The simulator trains by gradients, and cannot ask for the {other.name}.")


class StackedSilos(NamedTuple):
    """All silos' rows in one matrix, silo after silo; which silo each record belongs to; sizes and weights.

    `norms` are the rows' feature norms; along axes, they have a column for each run (`along_axes`). Where a record is a
    person, `of_row` is the number of each row's, among those of all silos, and `counts` what a row counts for if that
    person takes part; else None.
    """

    features: Any
    norms: Any
    targets: Any
    silo: Any
    sizes: Any
    weights: Any
    of_row: Any = None
    counts: Any = None


def axes_of(settings: Any) -> Any:
    """Return the axes that an algorithm's settings hold, for every run, along which gradients are clipped; or None."""
    return getattr(settings, "axes", None)


def along_axes(data: StackedSilos, axes: Any) -> StackedSilos:
    """Return the simulated data with every row's norm along each run's axes; None stands for the features' own."""
    if axes is None:
        return data
    norms = jax.lax.map(lambda own: jnp.linalg.norm(own.along(data.features, jnp.matmul), axis=1), axes)
    return data._replace(norms=norms.T)


def clipped_sum(
    loss: LinearLoss, clip: Any, weights: Any, *, data: StackedSilos, shares: Any, rule: PersonRule | None, axes: Any
) -> Any:
    """Return the silo's clipped mean over all records, or persons, along each run's axes: a row for each run.

    For a single run it is added up from blocks of data: XLA is slow at a product of one tall matrix with one column,
    and fast at many short ones.
    """
    if (rule is None) != (data.of_row is None):
        raise TrainingError(
            "The simulator must know which person each row belongs to: make the data with `federation_of`."
        )
    if rule == "sum":
        return _summed(loss, clip, weights, data, shares, axes)
    if rule is not None:
        shares = shares[data.of_row] * data.counts.reshape(-1, *[1] * (shares.ndim - 1))

    def add_up(features: Any, norms: Any, targets: Any, shares: Any) -> Any:
        """Return the clipped mean gradient of a block of simulated data."""
        return clipped_mean(loss, clip, weights=weights, features=features, norms=norms, targets=targets, shares=shares)

    def turned(total: Any) -> Any:
        """Turn each simulated run's sum into a row, along its axes."""
        own = jnp.moveaxis(total, 1, 0).reshape(total.shape[1], total.shape[0], -1)
        return (own if axes is None else jax.vmap(lambda axes, sum: axes.turned(sum))(axes, own)).reshape(len(own), -1)

    if weights.shape[1] > 1:
        return turned(add_up(data.features, data.norms, data.targets, shares))
    empty = -len(data.targets) % BLOCK  # rows whose share is 0

    def blocks(values: Any) -> Any:
        """Divide an array of simulated rows into padded blocks of equal length."""
        padded = jnp.pad(values, [(0, empty), *[(0, 0)] * (values.ndim - 1)])
        return padded.reshape(-1, BLOCK, *values.shape[1:])

    parts = jax.vmap(add_up)(*map(blocks, (data.features, data.norms, data.targets, shares)))
    return turned(jnp.sum(parts, axis=0))


def _summed(loss: LinearLoss, clip: Any, weights: Any, data: StackedSilos, shares: Any, axes: Any) -> Any:
    """Clip the sum of each person's gradients, and add these up: one run after the other, for they take memory."""
    scores: Any = jnp.tensordot(data.features, weights, axes=1)
    constants = data.features[:, -1]
    bounded = clipped(loss, 2.0**10 * clip, scores=scores, norms=data.norms, constants=constants, targets=data.targets)
    persons, runs = shares.shape[0], weights.shape[1]

    def one_run(own: tuple[Any, Any, Any, Any]) -> Any:
        """Return one simulated run's sum of persons' clipped gradients."""
        residuals, most, share, along = own
        seen: Any = data.features if along is None else along.along(data.features, jnp.matmul)
        products = seen.T[:, :, None] * loss.residual_columns(residuals)[None]
        collected: Any = loss.weight_gradients(products)
        terms = jnp.moveaxis(collected, 1, 0).reshape(len(data.norms), -1)
        sums = jax.ops.segment_sum(terms, data.of_row, persons, indices_are_sorted=True)
        lengths = jnp.sqrt(jnp.sum(sums * sums, axis=1))
        return jnp.tensordot(share * jnp.minimum(1.0, most / jnp.maximum(lengths, TINY)), sums, axes=1)

    by_run = jnp.broadcast_to(shares.reshape(persons, -1), (persons, runs)).T
    return jax.lax.map(one_run, (jnp.moveaxis(bounded, 1, 0), jnp.broadcast_to(clip, (runs,)), by_run, axes))
