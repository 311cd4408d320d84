"""What correlated noise (``accounting.correlation``) buys: the noise of sums of answers, and the best θ for them."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.accounting.correlation import column_norm, inverse_coefficients
from ringfence.accounting.events import require_count
from ringfence.errors import AccountingError

__all__ = ["PrefixSumNoise", "best_theta", "prefix_sum_noise", "workload_noise"]

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]


class PrefixSumNoise(NamedTuple):
    """Standard deviations, in units of one answer's independent noise at the same privacy.

    ``last`` is that of the sum of all answers, ``typical`` the root mean square over the sums of the first 1, 2, ....
    Independent noise has √rows and √((rows + 1)/2).
    """

    last: float
    typical: float


def prefix_sum_noise(theta: float, rows: int) -> PrefixSumNoise:
    """Return the noise of the sums of the first 1, 2, ... ``rows`` answers, with the column norm paid for."""
    # (I − S)⁻¹ C⁻¹ is a Toeplitz matrix too, with the sums of C⁻¹'s coefficients down every column.
    squares = np.cumsum(np.cumsum(inverse_coefficients(theta, rows)) ** 2)
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
