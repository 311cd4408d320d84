"""Models of records in one place: without privacy, and with a trusted curator who adds the noise once.

Neighbours differ in one record that is replaced, as everywhere here. AdaSSP (Wang 2018) is stated for records that are
added or removed: here its three releases have the sensitivities of a replacement, and exact Gaussian composition in
place of its logarithms. Objective perturbation with Gaussian noise (Kifer, Smith and Thakurta 2012) is stated for
a replaced record.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray, Logistic, Loss
from ringfence.research.experiments.abstract import Geometry

FAILURE = 0.05
"""The probability with which AdaSSP's ridge may be smaller than the noise is large."""
RIDGE = 0.1
"""What the model without privacy pays for its weights, in records: it keeps separable classes from running away."""

PrivateFit = Callable[[FloatArray, FloatArray, float, float, np.random.Generator], FloatArray]
"""From features, targets, ε and δ to a private matrix of weights."""


def not_private(loss: Loss, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return least squares, or the least logistic or softmax loss with next to no ridge."""
    if loss.target_kind == "number":
        return np.asarray(np.linalg.lstsq(features, targets, rcond=None)[0], dtype=np.float64)[:, None]
    return ridged(loss, features, targets, RIDGE)


def ridged(loss: Loss, features: FloatArray, targets: FloatArray, ridge: float) -> FloatArray:
    """Return the weights with the least sum of losses and ridge/2·‖w‖²."""
    if loss.target_kind == "number":
        moments = features.T @ features + ridge * np.eye(features.shape[1])
        return np.asarray(np.linalg.solve(moments, features.T @ targets), dtype=np.float64)[:, None]
    return _minimum(loss, features, targets, ridge, np.zeros((features.shape[1], loss.outputs)))


def private_fit(loss: Loss, geometry: Geometry) -> PrivateFit:
    """Return the curator's method: AdaSSP for numbers, objective perturbation for labels, one against the rest."""

    def numbers(x: FloatArray, y: FloatArray, epsilon: float, delta: float, random: np.random.Generator) -> FloatArray:
        return adassp(x, y, geometry, epsilon, delta, random)[:, None]

    def labels(x: FloatArray, y: FloatArray, epsilon: float, delta: float, random: np.random.Generator) -> FloatArray:
        return objective_perturbation(x, y, geometry.feature_norm, epsilon, delta, random)[:, None]

    def classes(x: FloatArray, y: FloatArray, epsilon: float, delta: float, random: np.random.Generator) -> FloatArray:
        each = [
            labels(x, np.where(y == own, 1.0, -1.0), epsilon / loss.outputs, delta / loss.outputs, random)
            for own in range(loss.outputs)
        ]
        return np.concatenate(each, axis=1)

    return {"number": numbers, "label": labels, "class": classes}[loss.target_kind]


def adassp(
    x: FloatArray, y: FloatArray, geometry: Geometry, epsilon: float, delta: float, random: np.random.Generator
) -> FloatArray:
    """Solve for sufficient statistics with noise, with as much ridge as the smallest eigenvalue, with noise, lacks.

    Σxxᵀ has sensitivity √2·X² in Frobenius norm, its eigenvalues X², and Σxy 2XY.
    """
    X, Y, width = geometry.feature_norm, geometry.target_bound, x.shape[1]
    share = math.sqrt(3) / gaussian_shift(epsilon, delta)
    moments = x.T @ x
    seen = float(np.linalg.eigvalsh(moments)[0]) + share * X**2 * (
        random.standard_normal() - math.sqrt(math.log(6 / delta))
    )
    spread = share * math.sqrt(2) * X**2
    ridge = max(0.0, spread * math.sqrt(width * math.log(2 * width**2 / FAILURE)) - max(seen, 0.0))
    noisy = moments + spread * symmetric_noise(width, random)
    cross = x.T @ y + share * 2 * X * Y * random.standard_normal(width)
    return np.asarray(np.linalg.solve(noisy + ridge * np.eye(width), cross), dtype=np.float64)


def objective_perturbation(
    x: FloatArray, y: FloatArray, feature_norm: float, epsilon: float, delta: float, random: np.random.Generator
) -> FloatArray:
    """Minimise the logistic loss with a random linear term and the ridge that its proof needs.

    A record's gradient is at most X long, its Hessian of rank one and at most X²/4.
    """
    spread = feature_norm * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    slope = spread * random.standard_normal((x.shape[1], 1))
    return _minimum(Logistic(), x, y, feature_norm**2 / (2 * epsilon), slope)[:, 0]


def symmetric_noise(width: int, random: np.random.Generator, *runs: int) -> FloatArray:
    """Return a symmetric matrix, standard normal in the coordinates of its upper triangle that keep Frobenius norms.

    With `runs`, as many matrices, along the first axes.
    """
    drawn = random.standard_normal((*runs, width, width))
    # Both halves hold what is off the diagonal, so its variance is 1/2.
    symmetric: FloatArray = (drawn + np.swapaxes(drawn, -1, -2)) / 2
    return symmetric


def _minimum(loss: Loss, features: FloatArray, targets: FloatArray, ridge: float, slope: FloatArray) -> FloatArray:
    """Return where the sum of the losses, ridge/2·‖w‖² and ⟨slope, w⟩ is least."""
    shape, count = slope.shape, len(targets)

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        matrix = weights.reshape(shape)
        scores = features @ matrix
        value = np.sum(loss.values(scores, targets)) + ridge / 2 * np.sum(matrix**2) + np.sum(slope * matrix)
        gradient = features.T @ loss.residuals(scores, targets) + ridge * matrix + slope
        return float(value) / count, gradient.reshape(-1) / count

    fitted = minimize(objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    weights: FloatArray = fitted.x.reshape(shape)
    return weights
