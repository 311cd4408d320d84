"""The proximal step of a lasso over a domain: what the server does after a step along the gradient."""

from dataclasses import dataclass
from typing import Any

from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.domain import Domain


@dataclass(frozen=True)
class Proximal:
    """The point of the domain that minimises ½·‖w − v‖² + t·λ·‖w‖₁, for weights v and a step t.

    λ is `lasso`. The last `constants` of the weights, those of the intercept, one per output, are not in the norm. All
    others are drawn to 0 by t·λ, and stay there if they would cross it; what comes of that is projected. For balls,
    boxes and the whole space this is the minimiser itself (`docs/proofs.md`, Lemma L1). Without a lasso it is the
    projection.
    """

    domain: Domain
    lasso: float = 0.0
    constants: int = 0

    def __call__(self, weights: FloatArray, step: Any) -> FloatArray:
        """Return that point."""
        if not self.lasso:
            return self.domain.project(weights)
        xp = namespace(weights)
        pull = step * self.lasso * (xp.arange(weights.size) < weights.size - self.constants)
        result: FloatArray = self.domain.project(weights - xp.clip(weights, -pull, pull))
        return result
