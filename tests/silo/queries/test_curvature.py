"""The curvature: second moments without rounding, and an eigenvalue to the error that is charged for."""

from fractions import Fraction

import numpy as np
import pytest

from ringfence.silo.queries.curvature import largest_eigenvalue, mean_moments, second_moments


def test_it_is_the_largest_eigenvalue_of_the_mean_of_the_records_outer_products() -> None:
    features = np.rint(np.random.default_rng(0).uniform(-1, 1, (30, 5)) * 2.0**31) * 2.0**-31
    squares = [[float(sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)) / 30) for x in features.T]
               for y in features.T]  # fmt: skip
    moments = mean_moments(second_moments(features), 30)
    assert moments.tolist() == squares
    assert largest_eigenvalue(moments) == pytest.approx(np.linalg.norm(squares, 2), rel=1e-13)


@pytest.mark.parametrize("spectrum", [[0.0] * 4, [0.3] * 5, [1.0, 1 - 1e-9, 0.5], [1e-18, 0.0], [0.7, 0.7, 1e-8]])
def test_an_eigenvalue_is_found_to_what_is_charged_also_where_others_are_as_large(spectrum: list[float]) -> None:
    d = len(spectrum)
    basis, _ = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))
    matrix = basis @ np.diag(spectrum) @ basis.T
    allowed = (d + 4) ** 2 * 2.0**-53 + 2 * d * 2.0**-52  # the latter for making the matrix
    assert largest_eigenvalue(matrix) == pytest.approx(max(spectrum), rel=allowed, abs=0.0)
