"""The moments: no record moves all of them together by more than √4.5/n, or √8.5/n with a numeric target."""

import math

import numpy as np
import pytest

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from tests.protocol.plan_document import MOMENTS_ONLY, Edits, plan_of
from tests.protocol.questions.neighbours import ROUNDING, Record, draw_record, draw_setting, farthest

LABEL: Edits = {
    "data.columns.cost": {"type": "categorical", "categories": ["a", "b"]},
    "training.loss": {"name": "logistic"},
}
QUESTION, FORMER = Moments(bound="joint"), Moments()
NUMERIC, LABELLED = plan_of(MOMENTS_ONLY), plan_of(MOMENTS_ONLY, LABEL)
every_plan = pytest.mark.parametrize(
    ("plan", "squared"), [(NUMERIC, 4.5 + 4), (LABELLED, 4.5)], ids=["number", "label"]
)


@every_plan
@pytest.mark.parametrize("records", [1, 2, 7, 40])
def test_replacing_a_record_moves_them_by_no_more_than_claimed(plan: Plan, squared: float, records: int) -> None:
    random = np.random.default_rng(records)
    setting = draw_setting(plan, QUESTION, random, records=records)
    assert setting.limit() == pytest.approx(math.sqrt(squared) / records)
    assert 0.9 * setting.limit() < farthest(setting, random) <= setting.limit() * ROUNDING


@every_plan
def test_two_records_move_them_exactly_as_far_as_that(plan: Plan, squared: float) -> None:
    setting = draw_setting(plan, QUESTION, np.random.default_rng(3), records=5)
    near, far = math.sin(math.pi / 12), math.cos(math.pi / 12)
    rest = [0.0] * (plan.data.width - 2)
    norm, bound = plan.data.feature_norm, plan.data.target_bound
    one, other = np.array([far, near, *rest]) * norm, np.array([-near, -far, *rest]) * norm
    moved = setting.moves(Record(one, bound), Record(other, -bound)) * 5  # rounded towards zero before they are added
    assert moved == pytest.approx(math.sqrt(squared), rel=1e-8)
    assert moved <= math.sqrt(squared)


@pytest.mark.parametrize("width", [1, 2, 3, 6])
def test_no_optimiser_finds_features_that_move_them_further_and_one_feature_moves_them_less(width: int) -> None:
    """The lemma's function itself, uphill from 200 random pairs on and in the ball."""

    def square(pairs: FloatArray) -> FloatArray:
        x, y = np.moveaxis(pairs / np.maximum(np.linalg.norm(pairs, axis=-1, keepdims=True), 1.0), -2, 0)
        total: FloatArray = np.sum((x - y) ** 2 + (x * x - y * y) ** 2, axis=-1)
        return total

    random = np.random.default_rng(width)
    pairs = random.normal(size=(200, 2, width)) * random.choice([0.3, 1.0, 3.0], size=(200, 1, 1))
    for step in np.geomspace(1.0, 1e-5, 400):
        tried = pairs + step * random.normal(size=pairs.shape)
        better = square(tried) > square(pairs)
        pairs[better] = tried[better]
    best = float(square(pairs).max())
    assert best <= (4.0 if width == 1 else 4.5) * (1 + 1e-12)
    assert best == pytest.approx(4.0 if width == 1 else 4.5, rel=1e-3)


def test_plans_that_do_not_say_how_they_are_bounded_are_charged_what_they_always_were() -> None:
    assert NUMERIC.stages[0].question == FORMER
    assert FORMER.sensitivity(NUMERIC, 7) == math.sqrt(11) / 7
    assert FORMER.sensitivity(LABELLED, 7) == math.sqrt(6) / 7


def test_each_of_its_parts_is_moved_as_far_as_the_former_bound_counts_on() -> None:
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
