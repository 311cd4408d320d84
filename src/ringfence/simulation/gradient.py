"""What training stages ask, of all silos' records at once: the only file here that knows which question that is."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ringfence.errors import TrainingError
from ringfence.protocol.plan import Stage
from ringfence.protocol.questions import Gradient
from ringfence.silo.questions.gradient import clipped_mean

BLOCK = 1024
"""Records per block where a single run is simulated: from here on XLA gives blocks to several threads."""


class LinearLoss(Protocol):
    """What the simulator needs of a loss: one of `protocol.losses`, or a `CustomLoss`."""

    @property
    def outputs(self) -> int:
        """Columns of the weight matrix."""

    def values(self, scores: Any, targets: Any) -> Any:
        """Return the loss of every record."""

    def residuals(self, scores: Any, targets: Any) -> Any:
        """Return its derivative in the scores."""


def clip_of(stage: Stage) -> float:
    """Return a training stage's clip; TrainingError if it asks for something else than gradients."""
    if not isinstance(stage.question, Gradient):
        raise TrainingError(f"The simulator trains by gradients, and cannot ask for the {stage.question.name}.")
    return stage.question.clip


def clipped_sum(
    loss: LinearLoss, clip: Any, weights: Any, *, features: Any, norms: Any, targets: Any, shares: Any
) -> Any:
    """Return the silo's clipped mean over all records; for a single run, added up from blocks of them.

    XLA is slow at a product of one tall matrix with one column, and fast at many short ones.
    """

    def add_up(features: Any, norms: Any, targets: Any, shares: Any) -> Any:
        return clipped_mean(loss, clip, weights=weights, features=features, norms=norms, targets=targets, shares=shares)

    if weights.shape[1] > 1:
        return add_up(features, norms, targets, shares)
    empty = -len(targets) % BLOCK  # rows whose share is 0

    def blocks(values: Any) -> Any:
        padded = jnp.pad(values, [(0, empty), *[(0, 0)] * (values.ndim - 1)])
        return padded.reshape(-1, BLOCK, *values.shape[1:])

    parts = jax.vmap(add_up)(*map(blocks, (features, norms, targets, shares)))
    return jnp.sum(parts, axis=0)
