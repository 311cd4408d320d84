"""Through a shuffler the silos' coins are one binomial number per coordinate.

Their roundings are left out: of the variance they are one part in K·b at most, for silos of K records with b coins
each.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ringfence.protocol import Participation


@dataclass(frozen=True)
class BinomialNoise:
    """Coins for each record that takes part."""

    def check(self, participation: Participation) -> None:
        """Require nothing: every silo that answers through the shuffler brings coins."""

    def draw(self, key: Any, length: int, available: Any, batch: Any, coins: Any, dtype: Any) -> Any:
        """Toss the coins of all records that take part in a shuffler's batch."""
        normal = jax.random.normal(key, (length,), dtype=dtype)
        return standard_binomial(normal, coins, jnp.sum(available * batch))

    def memory(self, streams: int, length: int, rounds: int, dtype: Any) -> None:
        """Remember nothing: every round of the shuffler has its own coins."""

    def remember(self, fresh: Any, memory: Any, round: Any) -> tuple[Any, Any]:
        """Return the coins' noise as it was drawn for the shuffler's batch."""
        return fresh, memory

    def rates(self, weights: Any, available: Any, batch: Any) -> Any:
        """Return the silo's share of the records in the shuffler's batch: the server divides a total by their count."""
        mixed = (available * batch).astype(weights.dtype)
        return mixed / jnp.sum(mixed, axis=1, keepdims=True)


def standard_binomial(normal: Any, coins: Any, records: Any) -> Any:
    """Turn standard normal numbers into Bin(T, 1/2), T = coins·records, minus its mean, over its deviation √T/2.

    By quantiles: P(Bin ≤ k) = Φ(z) for k + 1/2 = T/2 + (√T/2)(z + (z − z³)/(12T)), up to order 1/T² (Cornish and
    Fisher, with the correction for whole numbers), so rounding the right side gives k. A test compares it with the
    exact distribution. JAX's own sampler is no use here: in single precision, and from ten million trials on, its
    numbers have the wrong variance.
    """
    trials = coins * records.astype(normal.dtype)
    deviation = jnp.sqrt(trials) / 2
    quantile = deviation * (normal + (normal - normal**3) / (12 * trials))
    half = (coins * records) % 2 / 2  # whole numbers of heads are so far from T/2, up to whole numbers
    most = trials / 2
    return jnp.clip(jnp.round(quantile - half) + half, -most, most) / deviation
