"""The curvature's answer moves by at most what is charged for it, whichever record is replaced."""

from fractions import Fraction

import numpy as np
import pytest

from ringfence.silo.queries.curvature import largest_eigenvalue, mean_moments, second_moments
from tests.silo.queries.neighbours import (
    TARGETS,
    Target,
    charged_for,
    check_bounds_are_public,
    farthest,
    surveyed,
)


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_no_replaced_record_moves_it_further_than_it_is_charged_for_and_some_come_close(target: Target, n: int) -> None:
    plan = surveyed(target, n)
    moved, sensitivity = farthest(plan, target), plan.stages[0].query.sensitivity(plan, n)
    assert moved <= charged_for(plan)
    assert 0.999 * sensitivity <= moved <= sensitivity * (1 + 1e-6)


def test_records_beyond_the_public_bounds_count_as_if_they_lay_on_them() -> None:
    check_bounds_are_public(surveyed("number", 3))
