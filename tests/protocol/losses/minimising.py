"""The best weights of a loss without noise or clip, by its own gradient as silos collect it."""

from typing import Any

import numpy as np
from scipy.optimize import minimize

from ringfence.protocol import BaseLoss, FloatArray, NonSmooth
from ringfence.protocol.losses.targets import residuals_of, values_of

WIDTHS = 10.0 ** -np.arange(1.0, 6.5, 0.5)
"""Over which a kink is smoothed, one after the other: the last moves a minimum by about as much."""


def minimised(
    loss: BaseLoss, features: FloatArray, targets: FloatArray, ridge: float = 0.0, start: FloatArray | None = None
) -> FloatArray:
    """Return the weights; a ridge is of all but the constant, which is the last feature, of one output."""
    width = features.shape[1]
    pull = np.full(loss.dimension(width), ridge)
    pull[-1] = 0.0

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        scores = features @ loss.matrix(weights, width)
        residuals = residuals_of(loss, scores, targets)
        gradient = loss.weight_gradients(features.T @ loss.residual_columns(residuals)).reshape(-1)
        value = float(values_of(loss, scores, targets).mean() + pull @ weights**2 / 2)
        return value, gradient / len(features) + pull * weights

    options: Any = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000, "maxfun": 100_000}
    begin = np.zeros(loss.dimension(width)) if start is None else start
    found = minimize(objective, begin, jac=True, method="L-BFGS-B", options=options)
    result: FloatArray = found.x
    return result


def minimised_at_kinks(loss: NonSmooth, features: FloatArray, targets: FloatArray, ridge: float = 0.0) -> FloatArray:
    """Return the weights of a loss with kinks: those that the smoothed ones tend to."""
    weights: FloatArray | None = None
    for width in WIDTHS:
        weights = minimised(loss.with_width(float(width)), features, targets, ridge, weights)
    assert weights is not None
    return weights
