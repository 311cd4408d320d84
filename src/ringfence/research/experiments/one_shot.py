"""One-shot averaging: a baseline in which every silo trains alone, and its models are averaged once."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence.protocol import FloatArray
from ringfence.simulation.engine import Configurations, Rules, Streams, federation, simulate


def one_shot(
    rules: Rules,
    silos: Sequence[tuple[FloatArray, FloatArray]],
    streams: Streams,
    runs: Configurations,
    dtype: Any = np.float32,
) -> Any:
    """Let every silo train a private model alone, and average the models by the silos' sizes: one message each.

    A silo's whole budget goes into its own run, so `sigma` is that of a plan with the same rounds. Where silos
    differ, the average of their models is not the model of their union, however large epsilon is.
    """
    sizes = np.array([len(targets) for _, targets in silos])
    models = []
    for place, silo in enumerate(silos):
        alone = slice(place, place + 1)
        models.append(
            simulate(
                rules,
                federation([silo], dtype=dtype),
                # Silos draw independently: each has seeds of its own.
                Streams(streams.seed + np.uint32(7919 * place), streams.batch[..., alone], streams.coins),
                runs._replace(sigma=runs.sigma[..., alone]),
            )
        )
    return jnp.tensordot(jnp.asarray(sizes / sizes.sum(), dtype=dtype), jnp.stack(models), axes=1)
