"""Noise that cancels in part over the rounds of one pass: the Toeplitz family C = (I − S)^(−θ), 0 ≤ θ < 1.

S shifts by one row. C is lower triangular, with the Taylor coefficients of (1 − x)^(−θ) down every column; its inverse
holds those of (1 − x)^θ. θ = 0 is independent noise, θ = 1/2 the square root of the prefix sum.

*What a silo does.* In row k of a block it has the clipped means G_0 … G_k, each over its own records. It forms

    M_k = round(Σ_{j≤k} c_{k−j} G_j) + Z_k,   Z_k independent discrete Gaussian noise of standard deviation σ,

with ``coefficients`` c, and sends y_k = Σ_{j≤k} d_{k−j} M_j with ``inverse_coefficients`` d. But for rounding, that
is G_k plus the noise Σ_j d_{k−j} Z_j, whose sums over the rounds are smaller than those of independent noise.

*Why it is private.* y is computed from M, so M may be thought of as public. A record takes part in one G_k only. Given
the rows so far, and whatever weights the server chose after seeing them, replacing that record moves the mean of row
k + i by c_i (G_k − G'_k), of norm at most c_i · 2L/K, and leaves earlier rows alone. So row k + i is a Gaussian release
of shift c_i · 2L/(Kσ), and adaptive composition makes all rows one Gaussian release of shift (2L/(Kσ)) · √(Σ_i c_i²),
at most (2L/(Kσ)) · ``column_norm``. That C is lower triangular is what allows adaptive weights (Denisov, McMahan, Rush,
Smith & Guha Thakurta 2022). A silo that restarts forgets G and M and begins a new block: its columns end
with their block, so they are no longer than before, and the same bound holds. A row whose y was never sent, or sent
again unchanged, costs no more either. A second pass over the same records is a new partition.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import AccountingError
from ringfence.planning.events import require_count

__all__ = [
    "PrefixSumNoise",
    "best_theta",
    "coefficients",
    "column_norm",
    "inverse_coefficients",
    "prefix_sum_noise",
    "workload_noise",
]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]


class PrefixSumNoise(NamedTuple):
    """Standard deviations, in units of one answer's independent noise at the same privacy.

    ``last`` is that of the sum of all answers, ``typical`` the root mean square over the sums of the first 1, 2, ....
    Independent noise has √rows and √((rows + 1)/2).
    """

    last: float
    typical: float


def coefficients(theta: float, rows: int) -> Floats:
    """Return the first column of C: c_0 = 1, c_k = c_{k−1} (k − 1 + θ)/k. They fall, and none is negative."""
    return _series(_require_theta(theta), require_count("rows", rows))


def inverse_coefficients(theta: float, rows: int) -> Floats:
    """Return the first column of C⁻¹: d_0 = 1, d_k = d_{k−1} (k − 1 − θ)/k. All but the first are at most 0."""
    return _series(-_require_theta(theta), require_count("rows", rows))


def column_norm(theta: float, rows: int) -> float:
    """Return √(Σ_{k<rows} c_k²): how much further a record moves ``rows`` rows of M than a single G."""
    return math.sqrt(math.fsum(coefficients(theta, rows) ** 2))


def prefix_sum_noise(theta: float, rows: int) -> PrefixSumNoise:
    """Return the noise of the sums of the first 1, 2, ... ``rows`` answers, with the column norm paid for."""
    # Prefix sums are (I − S)⁻¹, and (I − S)⁻¹ C⁻¹ = (I − S)^(−(1−θ)) is of the same family.
    squares = np.cumsum(_series(1 - _require_theta(theta), require_count("rows", rows)) ** 2)
    norm = column_norm(theta, rows)
    return PrefixSumNoise(norm * math.sqrt(squares[-1]), norm * math.sqrt(np.mean(squares)))


def workload_noise(workload: Floats, theta: float, rows: int) -> float:
    """Return the noise of A·y for a linear ``workload`` A, in the units of ``PrefixSumNoise``.

    A has one column per row of noise. For a vector it is the standard deviation of that one combination of the
    answers; for a matrix, the root mean square over its lines: √(‖A C⁻¹‖_F²/lines) · column_norm.
    """
    return _noise_of(_spectrum(workload, rows), theta, rows)


def best_theta(workload: Floats, rows: int) -> float:
    """Return the θ, to three digits, with the least ``workload_noise``; 0.0 if independent noise is as good as any.

    θ is public: it may depend on the plan, never on records.
    """
    spectrum = _spectrum(workload, rows)
    best = 0
    for step, reach in ((50, 1000), (7, 49), (1, 6)):  # in thousandths: the noise varies slowly with θ
        around = range(max(0, best - reach), min(1000, best + reach + 1), step)
        best = min([*around, best], key=lambda thousandths: _noise_of(spectrum, thousandths / 1000, rows))
    return best / 1000


def _spectrum(workload: Floats, rows: int) -> Complexes:
    """Return the Fourier transform of every line of the workload, padded so that correlations do not wrap around."""
    A = np.atleast_2d(np.asarray(workload, dtype=np.float64))
    if A.ndim != 2 or A.shape[1] != require_count("rows", rows) or not len(A) or not np.all(np.isfinite(A)):
        raise AccountingError(
            f"The workload must have one finite number for each of the {rows} rows of noise, but has shape "
            f"{np.shape(workload)} or holds other values."
        )
    return np.fft.rfft(A, 2 * rows)


def _noise_of(spectrum: Complexes, theta: float, rows: int) -> float:
    # (A C⁻¹)_j = Σ_{k≥j} a_k d_{k−j} correlates every line of A with d.
    inverse = np.fft.rfft(inverse_coefficients(theta, rows), 2 * rows)
    mixed = np.fft.irfft(spectrum * np.conj(inverse), 2 * rows)[:, :rows]
    return column_norm(theta, rows) * math.sqrt(float(np.sum(mixed**2)) / len(spectrum))


def _series(exponent: float, rows: int) -> Floats:
    """Return the first Taylor coefficients of (1 − x)^(−exponent)."""
    k = np.arange(1, rows)
    return np.cumprod(np.concatenate([[1.0], (k - 1 + exponent) / k]))


def _require_theta(theta: object) -> float:
    if isinstance(theta, bool) or not isinstance(theta, float | int) or not 0 <= theta < 1:
        raise AccountingError(f"theta must be at least 0 and below 1, but is {theta!r}.")
    return float(theta)
