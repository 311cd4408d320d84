"""Noise that cancels in part over the rounds of one pass: the Toeplitz family C = (I − S)^(−θ), 0 ≤ θ < 1.

S shifts by one row. C is lower triangular, with the Taylor coefficients of (1 − x)^(−θ) down every column; its inverse
holds those of (1 − x)^θ. θ = 0 is independent noise, θ = 1/2 the square root of the prefix sum.

*What a silo does.* In row k of a block it has the clipped means G_0 … G_k, each over its own records. It forms

    M_k = round(Σ_{j≤k} c_{k−j} G_j) + Z_k,   Z_k independent discrete Gaussian noise of standard deviation σ,

with ``coefficients`` c, and sends y_k = Σ_{j≤k} d_{k−j} M_j with ``inverse_coefficients`` d. But for rounding, that
is G_k plus the noise Σ_j d_{k−j} Z_j, whose sums over the rounds are smaller than those of independent noise.

*What it costs.* A record takes part in one G_k only, and all rows are one Gaussian release of shift
(2L/(Kσ)) · ``column_norm`` at most, restarts and adaptive weights included (`docs/proofs.md`, Lemma R4).
"""

import math

import numpy as np

from ringfence.accounting.events import require_count
from ringfence.errors import AccountingError
from ringfence.protocol import FloatArray


def coefficients(theta: float, rows: int) -> FloatArray:
    """Return the first column of the correlation matrix C: c_0 = 1, c_k = c_{k−1} (k − 1 + θ)/k. They fall, all ≥ 0."""
    return _series(_require_theta(theta), require_count("rows", rows))


def inverse_coefficients(theta: float, rows: int) -> FloatArray:
    """Return the first column of C⁻¹: d_0 = 1, d_k = d_{k−1} (k − 1 − θ)/k. All but the first are at most 0."""
    return _series(-_require_theta(theta), require_count("rows", rows))


def column_norm(theta: float, rows: int) -> float:
    """Return √(Σ_{k<rows} c_k²): the sensitivity under correlated noise relative to that of a single G."""
    return math.sqrt(math.fsum(coefficients(theta, rows) ** 2))


def _series(exponent: float, rows: int) -> FloatArray:
    """Return the first Taylor coefficients of (1 − x)^(−exponent), which correlate the noise of rounds."""
    k = np.arange(1, rows)
    return np.cumprod(np.concatenate([[1.0], (k - 1 + exponent) / k]))


def _require_theta(theta: object) -> float:
    """Refuse an exponent θ of correlated noise that is not in [0, 1)."""
    if isinstance(theta, bool) or not isinstance(theta, float | int) or not 0 <= theta < 1:
        raise AccountingError(f"theta must be at least 0 and below 1, but is {theta!r}.")
    return float(theta)
