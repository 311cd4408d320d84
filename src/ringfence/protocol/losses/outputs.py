"""How weights, features and residuals go together: one column of weights per output, or slopes that outputs share.

With shared slopes every output k has the score u_k = x̃ᵀβ + c·α_k, of the features x̃ before the constant and the
constant c itself: weights are β and one α per output. A record's gradient is then (Σ_k r_k)·x̃ in β and c·r in α, of
residuals r, and its norm is √(‖x̃‖²(Σr)² + c²‖r‖²): told by two norms, as that of an outer product is.
"""

import math
from typing import ClassVar

from ringfence.protocol.arrays import FloatArray, namespace


class Outputs:
    """The shape of a linear model's weights."""

    shares_slopes: ClassVar[bool] = False
    """Whether outputs differ by their constant alone, so that a schema without intercept does not suit it."""

    @property
    def outputs(self) -> int:
        """Scores of a record."""
        return 1

    def dimension(self, width: int) -> int:
        """Return how many weights there are, for that many features with the constant."""
        return width - 1 + self.outputs if self.shares_slopes else width * self.outputs

    def matrix(self, weights: FloatArray, width: int) -> FloatArray:
        """Return weights, on the last axis, as a row per feature and a column per output."""
        before = weights.shape[:-1]
        if not self.shares_slopes:
            return weights.reshape(*before, width, self.outputs)
        xp = namespace(weights)
        slopes = xp.broadcast_to(weights[..., : width - 1, None], (*before, width - 1, self.outputs))
        result: FloatArray = xp.concatenate([slopes, weights[..., None, width - 1 :]], axis=-2)
        return result

    def lengths(self, residuals: FloatArray, norms: FloatArray, constants: FloatArray) -> FloatArray:
        """Return the norm of every record's gradient, of its features' norm and of their last, which is constant."""
        xp = namespace(residuals)
        squares = xp.sum(residuals * residuals, axis=-1)
        between = [1] * (residuals.ndim - 2)
        if not self.shares_slopes:
            result: FloatArray = norms.reshape(-1, *between) * xp.sqrt(squares)
            return result
        # A sum of residuals that cancel errs by their sizes: the length is that of the largest it may be computed as.
        total = xp.abs(xp.sum(residuals, axis=-1)) + self.outputs * 2.0**-50 * xp.sum(xp.abs(residuals), axis=-1)
        last = (constants * constants).reshape(-1, *between)
        slopes = xp.maximum((norms * norms).reshape(-1, *between) - last, 0.0)
        shared: FloatArray = xp.sqrt(slopes * total * total + last * squares)
        return shared

    def spread(self, residuals: FloatArray) -> FloatArray:
        """Return what features are multiplied by: the residuals and, where slopes are shared, before them their sum."""
        if not self.shares_slopes:
            return residuals
        xp = namespace(residuals)
        result: FloatArray = xp.concatenate([xp.sum(residuals, axis=-1, keepdims=True), residuals], axis=-1)
        return result

    def collected(self, products: FloatArray) -> FloatArray:
        """Return gradients of the weights, of products that have a row per feature first, and `spread` columns last."""
        if not self.shares_slopes:
            return products
        xp = namespace(products)
        constants = xp.moveaxis(products[-1, ..., 1:], -1, 0)
        result: FloatArray = xp.concatenate([products[:-1, ..., 0], constants], axis=0)
        return result

    def rounded(self, width: int) -> int:
        """Return how many roundings of 2⁻⁵² a computed length may be off by, relatively (`docs/proofs.md`)."""
        return 2 * self.outputs * (width + 8) if self.shares_slopes else width + self.outputs

    @property
    def spare(self) -> float:
        """A power of two above what a sum of residuals may exceed their norm by."""
        return 2.0 ** math.ceil(math.log2(self.outputs) / 2) if self.shares_slopes else 1.0
