"""The moments: no record moves all of them together by more than √6/n, or √11/n with a numeric target."""

import math

import numpy as np
import pytest

from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from tests.protocol.plan_document import MOMENTS_ONLY, Edits, plan_of
from tests.protocol.questions.neighbours import ROUNDING, Record, draw_record, draw_setting, farthest

LABEL: Edits = {
    "data.columns.cost": {"type": "categorical", "categories": ["a", "b"]},
    "training.loss": {"name": "logistic"},
}
QUESTION = Moments()
NUMERIC, LABELLED = plan_of(MOMENTS_ONLY), plan_of(MOMENTS_ONLY, LABEL)
every_plan = pytest.mark.parametrize(
    ("plan", "squared"), [(NUMERIC, 4 + 2 + 4 + 1), (LABELLED, 4 + 2)], ids=["number", "label"]
)


@every_plan
@pytest.mark.parametrize("records", [1, 2, 7, 40])
def test_replacing_a_record_moves_them_by_no_more_than_claimed(plan: Plan, squared: int, records: int) -> None:
    random = np.random.default_rng(records)
    setting = draw_setting(plan, QUESTION, random, records=records)
    assert setting.limit() == pytest.approx(math.sqrt(squared) / records)
    assert 0.8 * setting.limit() < farthest(setting, random) <= setting.limit() * ROUNDING


def test_each_of_its_parts_is_moved_as_far_as_the_proof_counts_on() -> None:
    """Means by 2/n, mean squares by √2/n, a target's by 2/n and 1/n; not all by the same record."""
    width, norm, bound = NUMERIC.data.width, NUMERIC.data.feature_norm, NUMERIC.data.target_bound
    setting = draw_setting(NUMERIC, QUESTION, np.random.default_rng(0), records=5)
    axes = norm * np.eye(width)

    def part(one: Record, other: Record, numbers: slice) -> float:
        return float(np.linalg.norm((setting.answer(one) - setting.answer(other))[numbers])) * 5

    means, target = slice(0, width), slice(width, width + 1)
    squares, target_square = slice(width + 1, 2 * width + 1), slice(2 * width + 1, None)
    assert part(Record(axes[0], 0.0), Record(-axes[0], 0.0), means) == pytest.approx(2)
    assert part(Record(axes[0], 0.0), Record(axes[1], 0.0), squares) == pytest.approx(math.sqrt(2))
    assert part(Record(axes[0], bound), Record(axes[0], -bound), target) == pytest.approx(2)
    assert part(Record(axes[0], bound), Record(axes[0], 0.0), target_square) == pytest.approx(1)


@pytest.mark.parametrize(("plan", "numbers"), [(NUMERIC, 12), (LABELLED, 10)], ids=["number", "label"])
def test_there_are_two_numbers_a_feature_and_two_of_a_numeric_target_none_larger_than_one(
    plan: Plan, numbers: int
) -> None:
    random = np.random.default_rng(1)
    assert (QUESTION.length(plan), QUESTION.largest(plan)) == (numbers, 1.0)
    for stretch in (1.0, 1000.0):
        setting = draw_setting(plan, QUESTION, random, records=5)
        far = draw_record(plan, random, stretch=stretch)
        answer = setting.answer(far._replace(target=far.target * stretch if plan is NUMERIC else far.target))
        assert answer.shape == (numbers,)
        assert np.abs(answer).max() <= ROUNDING


def test_they_are_means_and_mean_squares_in_public_units() -> None:
    random = np.random.default_rng(2)
    rows = [draw_record(NUMERIC, random) for _ in range(9)]
    setting = draw_setting(NUMERIC, QUESTION, random, records=9)._replace(others=rows[1:])
    columns = np.array([[*row.features / NUMERIC.data.feature_norm, row.target] for row in rows])
    np.testing.assert_allclose(
        setting.answer(rows[0]), [*columns.mean(axis=0), *(columns**2).mean(axis=0)], atol=2.0**-30
    )


def test_they_are_no_mean_of_vectors_of_one_norm_and_sum_up_every_number() -> None:
    assert QUESTION.record_norm(NUMERIC) is None
    assert QUESTION.terms_summed(NUMERIC) == 12
    assert not QUESTION.trains


def test_an_operator_is_told_of_which_columns_and_how_often() -> None:
    assert QUESTION.reveals(NUMERIC, 1) == ("Once, 12 numbers: mean and mean square of every feature and of the target")
    assert QUESTION.reveals(LABELLED, 2) == "In each of 2 rounds, 10 numbers: mean and mean square of every feature"
    assert "schema" in QUESTION.purpose()
    assert QUESTION.limits(NUMERIC) == QUESTION.uncovered(NUMERIC) == ""
