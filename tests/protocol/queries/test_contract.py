"""What every query promises: its length, its largest number, its sensitivity, and totals that add up over records."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from ringfence import protocol
from ringfence.protocol import FloatArray, Gradient, Plan, PreconditionedGradient, Query
from ringfence.protocol.losses import LOSSES as NAMED_LOSSES
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.queries import COMPUTATIONS, compute
from ringfence.silo.records.records import Records
from tests.protocol.plan_document import CURVED, SURVEY, plan_of
from tests.protocol.queries import (
    test_comparison,
    test_evaluation,
    test_feature_moments,
    test_preconditioned_gradient,
    test_second_moments,
    test_statistics,
)
from tests.protocol.queries.neighbours import ROUNDING, Setting, corners, draw_record, farthest, records_of
from tests.protocol.queries.test_gradient import CLIPS, LOSSES


def feature_rows(plan: Plan, random: np.random.Generator) -> Records:
    """Return 20 ordinary records, those at the ends of what the schema allows and beyond, and 30 more."""
    rows = [draw_record(plan, random, stretch=random.choice([0.0, 1.0, 10.0])) for _ in range(20)] + corners(plan)
    rows += [draw_record(plan, random, stretch=random.choice([1.0, 5.0])) for _ in range(30)]
    return records_of(plan, rows)


def table_rows(plan: Plan, random: np.random.Generator) -> Records:
    return test_statistics.records_of(plan, [test_statistics.draw(random) for _ in range(100)])


def timed_rows(plan: Plan, random: np.random.Generator) -> Records:
    ((offset, unit),) = plan.data.used["age"].scaling
    times = random.choice([0.0, 5.0, 20.0, 20.1, 50.0, 90.0, 120.0], 60)
    cells = {"age": Reading((times - offset) / unit, None), "ill": Reading(random.integers(0, 2, 60), None)}
    return Records(plan.data, np.ones((60, plan.data.width)), np.zeros(60), cells=cells)


class Case(NamedTuple):
    """A query, its plan, how a hostile server may draw an argument, and records to draw from."""

    query: Any
    plan: Plan
    argument: Callable[[Plan, np.random.Generator], FloatArray]
    records: Callable[[Plan, np.random.Generator], Records] = feature_rows


def weights(plan: Plan, random: np.random.Generator) -> FloatArray:
    return plan.domain.project(random.normal(size=plan.dimension) * random.choice([0.0, 0.1, 3.0]))


def window(plan: Plan, random: np.random.Generator) -> FloatArray:
    lower = random.normal()
    return np.array([lower, lower + np.exp(random.normal(scale=2.0))])


def nothing(plan: Plan, random: np.random.Generator) -> FloatArray:
    return np.zeros(plan.dimension)


def every_case() -> dict[str, Case]:
    cases = {}
    axes = test_preconditioned_gradient
    for loss, edits in LOSSES.items():
        plan = plan_of(edits)
        for clip in CLIPS[1:]:
            cases[f"gradient of {loss}, clip {clip}"] = Case(Gradient(clip=clip), plan, weights)
        if not plan.loss.shares_slopes:
            cases[f"preconditioned {loss}"] = Case(PreconditionedGradient(), plan, axes.asked)
            rank_one = PreconditionedGradient(axes="rank-one")
            cases[f"preconditioned {loss}, rank one"] = Case(rank_one, plan, axes.asked_of_rank_one)
        if loss in ("squared", "logistic", "softmax"):
            cases[f"means and {loss}"] = Case(protocol.FeatureMeans(), plan, window)
            cases[f"moments and {loss}"] = Case(
                protocol.FeatureMoments(), plan, lambda *given: test_feature_moments.draw_view(*given).packed()
            )
    for loss in NAMED_LOSSES:
        plan = test_evaluation.plan_with(loss)
        for query in (protocol.Evaluation(), protocol.Evaluation(against=protocol.pack(np.zeros(plan.dimension)))):
            name = f"{query.name} of {loss}, {query.against is not None}"
            cases[name] = Case(query, plan, partial(test_evaluation.drawn_request, query))
        for part in test_comparison.PARTS:
            compared = protocol.Comparison(models=3, part=part)
            cases[f"{part} of {loss}"] = Case(compared, plan, partial(test_comparison.drawn_request, compared))
    for plan in (test_second_moments.NUMERIC, test_second_moments.LABELLED):
        cases[f"second moments and {plan.loss.name}"] = Case(
            plan.stages[0].query, plan, lambda *given: test_second_moments.draw_asked(*given).packed()
        )
    for name, statistics in test_statistics.QUERIES.items():
        cases[f"statistics: {name}"] = Case(statistics, test_statistics.plan_of(statistics, 9), nothing, table_rows)
    cases["survival curve"] = Case(plan_of(CURVED).stages[0].query, plan_of(CURVED), nothing, timed_rows)
    cases["curvature"] = Case(protocol.Curvature(), plan_of(SURVEY), weights)
    return cases


CASES = every_case()
every = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def test_every_query_has_a_case() -> None:
    assert {type(case.query) for case in CASES.values()} == set(get_args(get_args(Query)[0]))


@every
@pytest.mark.parametrize(("others", "batch"), [(0, 1), (6, 7), (20, 5)], ids=["one", "all", "more than the batch"])
def test_replacing_a_record_changes_the_answer_by_no_more_than_the_sensitivity(
    case: Case, others: int, batch: int
) -> None:
    query, plan, random = case.query, case.plan, np.random.default_rng(others)
    records = case.records(plan, random)
    argument = case.argument(plan, random)
    assert len(argument) == query.argument_length(plan)
    assert query.accepts(plan, argument)
    worlds = np.eye(len(records))[others:]
    worlds[:, :others] = 1.0
    answers = np.array([compute(query, plan, argument, records, chosen, batch) for chosen in worlds])
    assert answers.shape[1] == query.length(plan)
    assert pdist(answers).max(initial=0.0) <= query.sensitivity(plan, batch) * ROUNDING
    if others < batch:
        assert np.max(np.abs(answers)) <= query.largest(plan) * ROUNDING
    if (norm := query.record_norm(plan)) is not None:
        nobody = compute(query, plan, argument, records, worlds[0] * (np.arange(len(records)) < others), batch)
        assert np.max(np.linalg.norm(answers - nobody, axis=1)) <= norm / batch * ROUNDING


SEARCHED = {
    name: case
    for name, case in CASES.items()
    if case.records is feature_rows and not isinstance(case.query, Gradient | PreconditionedGradient)
}


@pytest.mark.parametrize("case", SEARCHED.values(), ids=list(SEARCHED))
def test_no_search_finds_records_that_change_the_answer_by_more_than_the_sensitivity(case: Case) -> None:
    """Uphill from the worst of many pairs; the gradients' own tests also say how near a search comes."""
    random = np.random.default_rng(2)
    others = [draw_record(case.plan, random, stretch=random.choice([0.0, 1.0, 10.0])) for _ in range(6)]
    setting = Setting(case.plan, case.query, case.argument(case.plan, random), others, 7)
    assert farthest(setting, random, steps=60) <= setting.limit() * ROUNDING


@every
def test_totals_of_parts_of_the_records_add_up_and_a_record_that_takes_no_part_counts_nothing(case: Case) -> None:
    query, plan, random = case.query, case.plan, np.random.default_rng(1)
    records, argument, total = case.records(plan, random), case.argument(plan, random), COMPUTATIONS[type(query)].total
    chosen: FloatArray = np.where(random.random(len(records)) < 0.7, 1.0, 0.0)
    parts = np.array_split(random.permutation(len(records)), 3)
    whole = total(query, plan, argument, records, chosen)
    summed: Any = sum(total(query, plan, argument, records.take(own), chosen[own]) for own in parts)
    assert np.array_equal(whole, summed)
    alone = np.flatnonzero(chosen)
    assert np.array_equal(whole, total(query, plan, argument, records.take(alone), np.ones(len(alone))))


WORDS = {
    "gradient of huber, clip 1.5": "the average gradient of the huber loss, for predicting 'cost' from age, town, at "
    "weights that the server chooses…Each record's gradient is clipped to norm 1.5",
    "preconditioned huber": "at weights and along axes that the server chooses…, along the requested axes, is clipped",
    "curvature": "the largest eigenvalue of the features' second-moment matrix…counts towards the silos' epsilon",
    "means and logistic": "the means of age, town, …a budgeted survey…clipped to their largest norm",
    "moments and logistic": "how age, town vary together, …a budgeted survey…clipped to norm 1",
    "losses of logistic": "of 3 models that the server names…clipped losses…are clipped",
    "evaluation of logistic, False": "how well a model that the server names predicts 'cost', …clipped losses…clipped",
    "evaluation of logistic, True": "how well two models that the server names predict 'cost', …clipped losses",
    "second moments and squared": "the average curvature…'cost' from age, town, …an interval…clipped to norm 1",
    "statistics: all, and tables": "or none, of age, dose, …the cross tables of ill by ward, age by dose…schema",
    "survival curve": "'age' ends in each of 3 parts, with and without 'ill'…a survival curve…Each record counts once",
}
"""Parts, in order, of what an operator reads of a query: what leaves, what for, and how a record is limited."""


@every
def test_an_operator_reads_how_often_how_many_numbers_leave(case: Case) -> None:
    count = "one number" if isinstance(case.query, protocol.Curvature) else f"{case.query.length(case.plan)} numbers"
    assert case.query.reveals(case.plan, 3).startswith(f"In each of 3 rounds, {count}: ")
    assert not case.query.reveals(case.plan, 3).endswith(".")


@pytest.mark.parametrize("name", WORDS)
def test_an_operator_reads_what_leaves_what_for_and_how_a_record_is_limited(name: str) -> None:
    query, plan = CASES[name].query, CASES[name].plan
    said = f"{query.reveals(plan, 1)} {query.purpose} {query.limits(plan)}"
    for part in WORDS[name].split("…"):
        _, found, said = said.partition(part)
        assert found, part
