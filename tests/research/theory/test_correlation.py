"""What correlated noise buys: sums are as noisy as the matrices say, and the best power is the best of all."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from ringfence.accounting.correlation import coefficients, column_norm
from ringfence.errors import AccountingError
from ringfence.research.theory.correlation import best_theta, prefix_sum_noise, workload_noise

Floats = NDArray[np.float64]
THETAS = [0.0, 0.1, 0.5, 0.77, 0.999]


def lower(column: Floats) -> Floats:
    """The lower triangular Toeplitz matrix with this first column."""
    return np.asarray(toeplitz(column, np.zeros(len(column))), dtype=np.float64)


@pytest.mark.parametrize("rows", [12, 100])
def test_the_last_sum_is_as_noisy_as_theory_says_and_far_less_than_with_independent_noise(rows: int) -> None:
    assert prefix_sum_noise(0.5, rows).last == pytest.approx(column_norm(0.5, rows) ** 2)
    independent = prefix_sum_noise(0.0, rows)
    assert independent.last == pytest.approx(math.sqrt(rows))
    assert independent.typical == pytest.approx(math.sqrt((rows + 1) / 2))
    assert prefix_sum_noise(0.5, rows).typical < independent.typical


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("rows", [1, 2, 30])
def test_noise_of_sums_is_what_the_matrices_give(theta: float, rows: int) -> None:
    sums = np.tril(np.ones((rows, rows)))
    mixed = sums @ np.linalg.inv(lower(coefficients(theta, rows)))
    deviations = np.linalg.norm(mixed, axis=1) * np.linalg.norm(lower(coefficients(theta, rows)), axis=0).max()
    noise = prefix_sum_noise(theta, rows)
    assert noise.last == pytest.approx(deviations[-1])
    assert noise.typical == pytest.approx(math.sqrt(np.mean(deviations**2)))
    assert workload_noise(sums, theta, rows) == pytest.approx(noise.typical)
    assert workload_noise(sums[-1], theta, rows) == pytest.approx(noise.last)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 25), lines=st.integers(1, 5), theta=st.floats(0, 0.999))
def test_noise_of_any_workload_is_what_the_matrices_give(seed: int, rows: int, lines: int, theta: float) -> None:
    workload = np.random.default_rng(seed).normal(size=(lines, rows))
    correlation = lower(coefficients(theta, rows))
    covariance = workload @ np.linalg.inv(correlation.T @ correlation) @ workload.T
    expected = math.sqrt(np.trace(covariance) / lines) * np.linalg.norm(correlation, axis=0).max()
    assert workload_noise(workload, theta, rows) == pytest.approx(expected, rel=1e-9)


WORKLOADS: list[tuple[str, Callable[[int], Floats]]] = [
    ("sum", np.ones),
    ("all sums", lambda rows: np.tril(np.ones((rows, rows)))),
    ("last answer", lambda rows: np.eye(rows)[-1]),
    ("fading", lambda rows: np.exp(-0.2 * np.arange(rows, 0.0, -1))),
    ("accelerated", lambda rows: np.arange(1.0, rows + 1)),
    ("alternating", lambda rows: np.cos(math.pi * np.arange(rows))),
]


@pytest.mark.parametrize("rows", [1, 2, 12, 60])
@pytest.mark.parametrize(("name", "workload"), WORKLOADS)
def test_the_best_power_is_the_best_of_all(name: str, workload: Callable[[int], Floats], rows: int) -> None:
    found = best_theta(workload(rows), rows)
    least = min(workload_noise(workload(rows), thousandths / 1000, rows) for thousandths in range(1000))
    assert workload_noise(workload(rows), found, rows) <= least * (1 + 1e-12)
    if name in ("last answer", "alternating") or rows == 1:
        assert found == 0.0
    if name == "sum" and rows > 1:
        assert found == pytest.approx(0.5)


@pytest.mark.parametrize(
    "workload",
    [np.ones(4), np.ones((2, 4)), np.ones((5, 4)), np.ones((0, 5)), np.full(5, math.nan), np.ones((1, 1, 5))],
)
def test_a_workload_needs_a_finite_number_for_every_row(workload: Floats) -> None:
    with pytest.raises(AccountingError, match="workload must have"):
        best_theta(workload, 5)


@pytest.mark.parametrize("theta", [-0.1, 1.0, math.nan, True])
def test_a_power_outside_zero_to_one_is_refused(theta: float) -> None:
    with pytest.raises(AccountingError, match="theta must be"):
        prefix_sum_noise(theta, 5)
