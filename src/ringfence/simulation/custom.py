"""Your own convex loss, by automatic differentiation: slower than the built-in ones, and as correct.

Each record's gradient is computed and clipped by itself, so any differentiable function of one record will do. Whether
the theory's guarantees on risk hold depends on its being convex. Nothing here is private.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ringfence.protocol.losses.base import LinearLoss


@dataclass(frozen=True)
class CustomLoss(LinearLoss):
    """A loss f(scores, target) of one record: `scores` has one entry per output; write it with `jax.numpy`."""

    function: Callable[[Any, Any], Any]
    outputs: int = 1

    def values(self, scores: Any, targets: Any) -> Any:
        """Return the custom loss of every record, over any axes between records and outputs."""
        return jax.vmap(self._over_middle_axes)(scores, targets)

    def residuals(self, scores: Any, targets: Any) -> Any:
        """Return the derivative of every record's custom loss in its own scores."""
        return jax.grad(lambda u: jnp.sum(self.values(u, targets)))(scores)

    def _over_middle_axes(self, scores: Any, target: Any) -> Any:
        """Return a record's custom loss for scores with any axes before the outputs."""
        flat = scores.reshape(-1, self.outputs)
        return jax.vmap(lambda u: self.function(u, target))(flat).reshape(scores.shape[:-1])
