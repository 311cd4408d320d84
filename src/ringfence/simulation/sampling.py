"""Simulated draws of who takes part, of all silos at once: the only file here that asks which sampling rule it has."""

from typing import Any

import jax
import jax.numpy as jnp

from ringfence.errors import TrainingError
from ringfence.protocol import FixedSize, Full, OnePass, Phased, Poisson, Sampling


def participation(
    rule: Sampling, run: Any, round: Any, *, silo: Any, sizes: Any, begin: Any, batch: Any, dtype: Any
) -> Any:
    """Return 1 for every record that a simulated round samples, and 0 for the others: a round of one stream.

    `silo` is every record's silo, by which records are sorted; `sizes`, `begin` and `batch` have an entry for each
    silo. `run` and `round` are keys: a partition is drawn once for the whole run, all else afresh.
    """
    match rule:
        case Full():
            return jnp.ones(len(silo), dtype=dtype)
        case Poisson():
            return (jax.random.uniform(round, silo.shape) < batch[silo] / sizes[silo]).astype(dtype)
        case FixedSize():
            return _stretch(round, silo, sizes, jnp.zeros_like(batch), batch).astype(dtype)
        case OnePass() | Phased():
            return _stretch(run, silo, sizes, begin, batch).astype(dtype)
        case _:
            raise TrainingError(f"The simulator cannot draw records by the rule '{rule.name}'.")


def _stretch(key: Any, silo: Any, sizes: Any, begin: Any, batch: Any) -> Any:
    """Put every silo's records in random order, and take `batch` of them from the place `begin` on.

    A record's key: its silo, then luck. Sorted, every silo's records stand in random order, and who comes before a
    place is who has a smaller key. (Two equal keys would share a place: about one case in 2²⁷/n.)
    """
    bits = (len(sizes) - 1).bit_length()
    luck = jax.random.bits(key, silo.shape, dtype=jnp.uint32) >> bits
    keys = (silo.astype(jnp.uint32) << (32 - bits)) | luck
    ordered, first = jnp.sort(keys), jnp.cumsum(sizes) - sizes
    end = jnp.minimum(begin + batch, sizes)
    before, last = ordered[first + jnp.maximum(begin, 1) - 1], ordered[first + end - 1]
    return ((begin == 0)[silo] | (keys > before[silo])) & (keys <= last[silo])
