"""The comparison: whatever models and ruler a request has, no record moves the answer by more than 1/n."""

import math
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import LOSSES
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Comparison
from ringfence.protocol.questions.evaluation import CURVE
from ringfence.silo.questions import compute
from ringfence.silo.records import Records
from tests.protocol.questions.neighbours import Record, Setting, candidates, draw_record, worst
from tests.protocol.questions.test_evaluation import plan_with

PARTS: tuple[Literal["sizes"], Literal["losses"]] = ("sizes", "losses")


def drawn_request(question: Comparison, plan: Plan, random: np.random.Generator) -> FloatArray:
    """Any models, alike or far apart, and a ruler of any size in no order."""
    around = random.normal(size=plan.dimension)
    spread = random.choice([0.0, 0.01, 3.0])
    models = [plan.domain.project(around + spread * random.normal(size=plan.dimension)) for _ in range(question.models)]
    ruler = random.normal(size=question.ruler) * 10.0 ** random.integers(-3, 2)
    return np.concatenate([*models, ruler])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_pair_of_records_moves_it_further_than_claimed_whatever_is_asked(
    loss: str, part: Literal["sizes", "losses"]
) -> None:
    plan, random = plan_with(loss), np.random.default_rng(len(loss))
    for models in (2, 5):
        question = Comparison(models=models, part=part)
        for _ in range(3):
            argument = drawn_request(question, plan, random)
            assert len(argument) == question.argument_length(plan)
            assert question.accepts(plan, argument)
            setting = Setting(plan, question, argument, [draw_record(plan, random) for _ in range(2)], 3)
            moved, *_ = worst(setting, candidates(setting, random, drawn=20))
            assert moved <= setting.limit()


def opposite(plan: Plan, cut: float) -> Setting:
    """Two models that are wrong where the other is right: a record's target decides which of them is better."""
    along = np.zeros(plan.dimension)
    along[0] = 1.0
    argument = np.concatenate([along, -along, [cut]])
    return Setting(plan, Comparison(models=2, part="losses"), argument, [], 1)


def test_some_pair_moves_losses_exactly_as_far_as_claimed() -> None:
    plan = plan_with("logistic")
    setting = opposite(plan, cut=1e-6)
    features = np.zeros(plan.data.width)
    features[0] = 1.0
    assert setting.moves(Record(features, 1.0), Record(features, -1.0)) == pytest.approx(setting.limit(), rel=1e-8)


def test_some_pair_moves_sizes_exactly_as_far_as_claimed() -> None:
    plan, question = plan_with("logistic"), Comparison(models=2, part="sizes")
    along = np.zeros(plan.dimension)
    along[0] = 1.0
    features = np.zeros(plan.data.width)
    features[0] = 1.0
    argument = np.concatenate([along, -along, np.full(question.ruler, 1e-3)])  # all edges at one place
    setting = Setting(plan, question, argument, [], 1)
    nobody = Record(np.zeros(plan.data.width), 1.0)
    assert setting.moves(Record(features, 1.0), nobody) == pytest.approx(setting.limit(), rel=1e-8)


def test_a_vector_beside_its_squared_length_moves_no_further_than_the_vector_alone() -> None:
    """Two vectors of lengths r and s are at most r + s apart, and their squares r² − s²."""
    r = np.linspace(0, 1, 801)
    moved = (r[:, None] + r) ** 2 + CURVE**2 * (r[:, None] ** 2 - r**2) ** 2
    assert moved.max() == pytest.approx(4.0)


@pytest.mark.parametrize("part", PARTS)
def test_the_terms_of_a_record_keep_the_bound_in_exact_arithmetic(part: Literal["sizes", "losses"]) -> None:
    plan, random, question = plan_with("logistic"), np.random.default_rng(5), Comparison(models=4, part=part)
    for _ in range(5):
        setting = Setting(plan, question, drawn_request(question, plan, random), [], 1)
        _, one, other = worst(setting, candidates(setting, random, drawn=20))
        moved = [Fraction(a) - Fraction(b) for a, b in zip(setting.answer(one), setting.answer(other), strict=True)]
        assert sum(d * d for d in moved) <= Fraction(setting.limit()) ** 2


@pytest.mark.parametrize(
    ("part", "weight", "cut"), [("losses", 1e99, 1e-99), ("losses", 1e-99, 1e-99), ("sizes", 1e99, 0.0)]
)
def test_losses_beyond_all_bounds_and_cuts_of_nothing_keep_it_too(
    part: Literal["sizes", "losses"], weight: float, cut: float
) -> None:
    plan = plan_with("squared")
    question = Comparison(models=3, part=part)
    argument = np.concatenate([weight * np.arange(3 * plan.dimension), np.full(question.ruler, cut)])
    setting = Setting(plan, question, argument, [], 1)
    random = np.random.default_rng(2)
    moved, *_ = worst(setting, candidates(setting, random, drawn=20))
    assert moved <= setting.limit()


def test_losses_that_differ_by_less_than_the_cut_are_told_as_they_are() -> None:
    plan, random = plan_with("logistic"), np.random.default_rng(3)
    question = Comparison(models=3, part="losses")
    models = 0.1 * random.normal(size=(3, plan.dimension))
    rows = [draw_record(plan, random) for _ in range(20)]
    records = Records(plan.data, np.array([row.features for row in rows]), np.array([row.target for row in rows]))
    argument = np.concatenate([models.reshape(-1), [10.0]])
    answer = compute(question, plan, argument, records, np.ones(20), 20) / question.scale
    losses = np.array(
        [plan.loss.values(records.features @ own.reshape(plan.data.width, -1), records.targets) for own in models]
    )
    differences = losses - losses.mean(axis=0)
    assert 10.0 * answer[:3] == pytest.approx(differences.mean(axis=1), abs=1e-7)
    assert 100.0 * answer[3] / CURVE == pytest.approx(np.mean(np.sum(differences**2, axis=0)), abs=1e-6)


def test_a_request_with_models_outside_of_the_domain_or_with_no_finite_ruler_is_refused() -> None:
    plan, question = plan_with("logistic"), Comparison(models=2, part="losses")
    fine = drawn_request(question, plan, np.random.default_rng(0))
    assert question.accepts(plan, fine)
    for place, value in [(-1, math.nan), (-1, math.inf), (0, math.inf), (plan.dimension, 1e101)]:
        spoilt = fine.copy()
        spoilt[place] = value
        assert not question.accepts(plan, spoilt)


def test_operators_are_told_how_many_models_and_that_differences_are_cut() -> None:
    plan = plan_with("logistic")
    told = Comparison(models=3, part="losses").reveals(plan, 1)
    assert told.startswith("Once, 4 numbers: of 3 models that the server names")
    assert "clipped" in told
