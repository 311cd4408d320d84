"""Local SGD: the baseline in which silos take local steps between rounds.

In a round every asked silo starts at the server's weights and takes K steps, each on one record of its own
drawn uniformly, with noise on every step; the server averages where they end. All steps count
as visible: a run is R·K releases of a fixed-size batch of 1 of n, and `local_sgd_sigma` composes them so. The
paper's closed form does not: its true epsilon is larger than the stated one.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ringfence.accounting import calibrate
from ringfence.errors import TrainingError
from ringfence.protocol.losses.base import LinearLoss
from ringfence.protocol.losses.targets import residuals_of
from ringfence.simulation.compilation import keep_compiled_programs
from ringfence.simulation.gradient import StackedSilos

keep_compiled_programs()


class LocalRuns(NamedTuple):
    """S runs, one row each; `sigma` has one column per silo; runs with the same `stream` see the same draws."""

    step: Any
    clip: Any
    sigma: Any
    stream: Any


@lru_cache(maxsize=1024)
def local_sgd_sigma(
    *, records: int, rounds: int, local_steps: int, clip: float, epsilon: float, delta: float, dimension: int
) -> float:
    """Return the noise per local step with which all R·K steps together are (ε, δ)-DP under replace-one."""
    return calibrate.noise(
        "fixed",
        records=records,
        batch=1,
        rounds=rounds * local_steps,
        clip=clip,
        epsilon=epsilon,
        delta=delta,
        dimension=dimension,
    )


@partial(jax.jit, static_argnames=("loss", "rounds", "local_steps", "asked"))
def local_sgd(
    loss: LinearLoss, data: StackedSilos, seeds: Any, runs: LocalRuns, *, rounds: int, local_steps: int, asked: int
) -> Any:
    """Run every configuration and return the server's last weights, one row per run. There is no projection."""
    if data.of_row is not None:
        raise TrainingError("Local steps work on records, not on persons: leave `person` out of the schema.")
    if loss.dimension(data.features.shape[1]) != data.features.shape[1] * loss.outputs:
        raise TrainingError("Local steps need a loss whose outputs have their own weights.")
    first = jnp.cumsum(data.sizes) - data.sizes
    keys = jax.vmap(jax.random.key)(seeds)

    def one_round(weights: Any, round: Any) -> tuple[Any, None]:
        """Simulate a round of Local SGD: noisy local steps at the asked silos, then their average."""
        round_keys = jax.vmap(lambda key: jax.random.fold_in(key, round))(keys)
        silos = jax.vmap(lambda key: jax.random.permutation(key, len(data.sizes))[:asked])(round_keys)
        sigma = jnp.take_along_axis(runs.sigma, silos[runs.stream], axis=1)

        def local_step(local: Any, number: Any) -> tuple[Any, None]:
            """Take one noisy local step at each asked silo of Local SGD, on one record each."""
            step_keys = jax.vmap(lambda key: jax.random.fold_in(key, number + 1))(round_keys)
            luck = jax.vmap(lambda key: jax.random.uniform(key, (asked,)))(step_keys)
            noise = jax.vmap(lambda key: jax.random.normal(key, local.shape[1:], local.dtype))(step_keys)
            row = (first[silos] + luck * data.sizes[silos]).astype(jnp.int32)[runs.stream]
            gradient = _clipped_gradients(loss, runs.clip, local, data, row)
            noisy = gradient + sigma[..., None] * noise[runs.stream]
            return local - runs.step[:, None, None] * noisy, None

        start = jnp.broadcast_to(weights[:, None], (len(weights), asked, weights.shape[1]))
        local, _ = jax.lax.scan(local_step, start, jnp.arange(local_steps))
        return jnp.mean(local, axis=1), None

    zero = jnp.zeros((len(runs.stream), loss.dimension(data.features.shape[1])), dtype=data.features.dtype)
    weights, _ = jax.lax.scan(one_round, zero, jnp.arange(rounds))
    return weights


def _clipped_gradients(loss: LinearLoss, clip: Any, weights: Any, data: StackedSilos, row: Any) -> Any:
    """Return the clipped gradient of one record (its row) at each silo's own weights."""
    x, y, norm = data.features[row], data.targets[row], data.norms[row]
    columns = loss.matrix(weights, x.shape[-1])
    scores = jnp.einsum("smd,smdc->smc", x, columns)
    flat: Any = scores.reshape(-1, loss.outputs)
    beside: Any = y.reshape(-1, *y.shape[2:])
    residuals: Any = residuals_of(loss, flat, beside).reshape(scores.shape)
    lengths = norm * jnp.sqrt(jnp.sum(residuals * residuals, axis=-1))
    residuals = residuals * jnp.minimum(1.0, clip[:, None] / jnp.maximum(lengths, 1e-30))[..., None]
    return (x[..., None] * residuals[..., None, :]).reshape(weights.shape)
