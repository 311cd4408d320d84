"""What Gaussian sketches cost is exact, and no pair of neighbours costs more than the pair that is counted."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

from ringfence.accounting.profiles import gaussian_delta
from ringfence.research.experiments.relatives.mixing import sketch_delta, sketches


@pytest.mark.parametrize(("shift", "epsilon"), [(0.2, 0.5), (0.5, 1.0), (1.0, 3.0), (0.1, 1.0)])
def test_without_sketches_it_is_the_gaussian_profile(shift: float, epsilon: float) -> None:
    assert sketch_delta(epsilon, shift, 0, 1e-9) == pytest.approx(gaussian_delta(shift, epsilon), rel=1e-6)


def two_eigenvalues(epsilon: float, rows: int, larger: float, smaller: float) -> float:
    """Return δ(ε) of rows of N(0, diag(larger, smaller)) against N(0, I), by integrals of chi-squared distributions."""
    # The loss of sums of squares a and b is ½·(1 − 1/larger)·a − ½·(1/smaller − 1)·b − rows/2·ln(larger·smaller).
    up, down = (1 - 1 / larger) / 2, (1 / smaller - 1) / 2
    threshold = epsilon + rows / 2 * math.log(larger * smaller)

    def tail(scale: tuple[float, float]) -> float:
        """Return the probability of a loss above ε, of sums of squares with these variances."""
        if down == 0:
            return float(chi2.sf(threshold / up / scale[0], rows))
        if up == 0:
            return float(chi2.cdf(-threshold / down / scale[1], rows))
        return float(
            quad(
                lambda b: chi2.pdf(b, rows) * chi2.sf((threshold + down * scale[1] * b) / up / scale[0], rows),
                *(chi2.ppf(1e-14, rows), chi2.isf(1e-14, rows)),
                epsabs=0,
                epsrel=1e-9,
                limit=500,
            )[0]
        )

    return tail((larger, smaller)) - math.exp(epsilon) * tail((1.0, 1.0))


@pytest.mark.parametrize(("rows", "reach", "epsilon"), [(5, 0.3, 1.0), (40, 0.1, 1.0), (200, 0.05, 2.0)])
def test_without_gaussian_answers_it_is_an_integral_over_chi_squared_sums(
    rows: int, reach: float, epsilon: float
) -> None:
    found = sketch_delta(epsilon, 1e-9, rows, reach)
    assert found == pytest.approx(two_eigenvalues(epsilon, rows, 1 + reach, 1 / (1 + reach)), rel=1e-5)


def test_no_neighbours_cost_more_than_the_pair_that_is_counted() -> None:
    random, rows, reach, epsilon, width = np.random.default_rng(2), 30, 0.3, 1.0, 4
    counted, most = sketch_delta(epsilon, 1e-9, rows, reach), 0.0
    for trial in range(60):
        u, v = (own / np.linalg.norm(own) * math.sqrt(reach) for own in random.normal(size=(2, width)))
        if trial % 3 == 0:
            u = u - (u @ v) / (v @ v) * v  # at right angles, the worst case if both are as long as they may be
            u *= math.sqrt(reach) / np.linalg.norm(u)
        if trial % 3 == 1:
            v *= random.uniform(0.05, 1.0)
        one, two = np.eye(width) + np.outer(u, u), np.eye(width) + np.outer(v, v)
        values = np.linalg.eigvals(np.linalg.solve(two, one)).real
        assert np.sum(np.abs(values - 1) > 1e-9) <= 2
        cost = two_eigenvalues(epsilon, rows, max(1.0, values.max()), min(1.0, values.min()))
        assert cost <= counted * (1 + 1e-6)
        most = max(most, cost)
    assert most > 0.99 * counted


def test_more_budget_needs_less_ridge_and_more_rows_need_more() -> None:
    def least(epsilon: float, rounds: int, rows: float) -> float:
        return sketches(epsilon, 1e-6, 2.0, 5, rounds, rows, 0.5).least

    assert least(3.0, 3, 6.0) < least(1.0, 3, 6.0) < least(1.0, 3, 12.0)
    assert least(1.0, 1, 6.0) < least(1.0, 3, 6.0)
