"""The silos' own noises: independent Gaussian vectors, weighted and added up, are one Gaussian vector."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ringfence.accounting.correlation import inverse_coefficients
from ringfence.errors import TrainingError
from ringfence.protocol import Participation
from ringfence.protocol.plan.plan import EVERYBODY


@dataclass(frozen=True)
class GaussianNoise:
    """Noise that is independent in every round or, with a correlation, cancels in part over the rounds of a stage."""

    correlation: float = 0.0

    def check(self, participation: Participation) -> None:
        """Refuse to simulate correlated noise of silos that do not answer every round."""
        if self.correlation and participation != EVERYBODY:
            raise TrainingError(
                "The simulator adds up all silos' noise at once, which works for correlated noise only if every silo "
                "answers every round: leave the participation out."
            )

    def draw(self, key: Any, length: int, available: Any, batch: Any, coins: Any, dtype: Any) -> Any:
        """Draw the silos' own noise: standard normal numbers."""
        return jax.random.normal(key, (length,), dtype=dtype)

    def memory(self, streams: int, length: int, rounds: int, dtype: Any) -> Any:
        """Return room for the own noise that is drawn in all rounds, if it is correlated."""
        return jnp.zeros((streams, rounds if self.correlation else 0, length), dtype=dtype)

    def remember(self, fresh: Any, memory: Any, round: Any) -> tuple[Any, Any]:
        """Return Σ_j d_{r−j}·Z_j of own noise of all rounds so far, if it is correlated; else what was drawn."""
        if not self.correlation:
            return fresh, memory
        memory = memory.at[:, round].set(fresh)
        rounds = memory.shape[1]
        inverse = jnp.asarray(inverse_coefficients(self.correlation, rounds), dtype=fresh.dtype)
        lag = round - jnp.arange(rounds)
        return jnp.tensordot(memory, jnp.where(lag >= 0, inverse[lag], 0.0), axes=[[1], [0]]), memory

    def rates(self, weights: Any, available: Any, batch: Any) -> Any:
        """Return N/M times the silo's weight, where M of N silos answer with their own noise."""
        answering = jnp.maximum(jnp.sum(available, axis=1, keepdims=True), 1)
        return available * weights * (len(weights) / answering)
