"""The moments' answer moves by at most what is charged for it, whichever record is replaced."""

import numpy as np
import pytest

from tests.silo.questions.neighbours import (
    TARGETS,
    Target,
    answer_of,
    charged_for,
    check_bounds_are_public,
    farthest,
    surveyed,
)
from tests.support import about_moments, own_terms


@pytest.mark.parametrize("target", TARGETS)
def test_they_are_means_and_mean_squares_in_public_units(target: Target) -> None:
    plan = about_moments(surveyed(target, 6))
    random = np.random.default_rng(0)
    features, targets = random.uniform(-1, 1, (6, 3)), random.uniform(-1, 1, 6)
    columns = [x / plan.data.feature_norm for x in features.T] + ([targets] if target == "number" else [])
    expected = [sum(x) / 6 for x in columns] + [sum(x * x) / 6 for x in columns]
    np.testing.assert_allclose(answer_of(plan, features, targets), expected, atol=own_terms(plan, 0).sigma * 2.0**-30)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_no_replaced_record_moves_them_further_than_is_charged_for_and_some_as_far(target: Target, n: int) -> None:
    plan = about_moments(surveyed(target, n))
    moved, sensitivity = farthest(plan, target), plan.stages[0].question.sensitivity(plan, n)
    assert moved <= charged_for(plan)
    assert moved == pytest.approx(sensitivity, rel=1e-6)


def test_records_beyond_the_public_bounds_count_as_if_they_lay_on_them() -> None:
    check_bounds_are_public(about_moments(surveyed("number", 3)))
