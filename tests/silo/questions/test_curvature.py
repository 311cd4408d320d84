"""The curvature's answer moves by at most what is charged for it, whichever record is replaced."""

import numpy as np
import pytest

from ringfence.silo.questions.curvature import largest_eigenvalue
from tests.silo.questions.neighbours import (
    TARGETS,
    Target,
    charged_for,
    check_bounds_are_public,
    farthest,
    surveyed,
)


def test_it_is_the_largest_eigenvalue_of_the_mean_of_the_records_outer_products() -> None:
    features = np.random.default_rng(0).normal(size=(30, 5))
    squares = sum(np.outer(x, x) for x in features) / 30
    assert largest_eigenvalue(features) == pytest.approx(np.linalg.norm(squares, 2), rel=1e-12)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_no_replaced_record_moves_it_further_than_it_is_charged_for_and_some_come_close(target: Target, n: int) -> None:
    plan = surveyed(target, n)
    moved, sensitivity = farthest(plan, target), plan.stages[0].question.sensitivity(plan, n)
    assert moved <= charged_for(plan)
    assert 0.999 * sensitivity <= moved <= sensitivity * (1 + 1e-6)


def test_records_beyond_the_public_bounds_count_as_if_they_lay_on_them() -> None:
    check_bounds_are_public(surveyed("number", 3))
