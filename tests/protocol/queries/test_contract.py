"""What every query promises: totals that add up, an exact diameter, finite answers, and words for an operator.

The contract is run for every query, loss, kind of argument and rule for a person's rows; a new query without a case
fails. `tests.protocol.queries.contract` has what it says.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence import protocol
from ringfence.federation.custom_loss import custom_loss
from ringfence.protocol import (
    Curvature,
    Custom,
    FloatArray,
    Gradient,
    MeanQuery,
    Plan,
    PreconditionedGradient,
    Query,
    WholeSpace,
)
from ringfence.protocol.losses import LOSSES as NAMED_LOSSES
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.queries import COMPUTATIONS
from ringfence.silo.records.records import Records
from tests.every_loss import log_cosh
from tests.generated import examples
from tests.protocol.plan_document import COUNTED, CURVED, SURVEY, plan_of
from tests.protocol.queries import (
    test_column_distributions,
    test_comparison,
    test_evaluation,
    test_feature_moments,
    test_preconditioned_gradient,
    test_second_moments,
    test_statistics,
)
from tests.protocol.queries.contract import (
    Case,
    build_of_features,
    feature_rows,
    require_contract,
)
from tests.protocol.queries.neighbours import ROUNDING, Setting, draw_record, farthest
from tests.protocol.queries.test_gradient import CLIPS, LOSSES
from tests.support import rebuilt

CUSTOM = {"custom": {"training.loss": custom_loss(log_cosh, largest_score=6.0).model_dump(mode="json")}}


@pytest.fixture(autouse=True)
def _is_installed() -> None:
    """Install the custom loss: other tests of the same process forget what is installed."""
    custom_loss(log_cosh, largest_score=6.0)


def table_rows(plan: Plan, random: np.random.Generator) -> list[Any]:
    return [test_statistics.draw(random) for _ in range(40)]


def build_of_table(plan: Plan, rows: Sequence[Any], of_row: NDArray[np.int64] | None) -> Records:
    whose = np.zeros(len(rows), dtype=np.int64) if of_row is None else of_row
    return test_statistics.records_of(plan, [row | {"who": str(who)} for row, who in zip(rows, whose, strict=True)])


def timed_rows(plan: Plan, random: np.random.Generator) -> list[Any]:
    times = random.choice([0.0, 5.0, 20.0, 20.1, 50.0, 90.0, 100.0, 120.0], 40)
    return list(zip(times, random.integers(0, 2, 40), strict=True))


def build_of_times(plan: Plan, rows: Sequence[Any], of_row: NDArray[np.int64] | None) -> Records:
    ((offset, unit),) = plan.data.used["age"].scaling
    times, events = np.array(rows).T
    cells = {"age": Reading((times - offset) / unit, None), "ill": Reading(events.astype(np.int64), None)}
    return Records(plan.data, np.ones((len(rows), plan.data.width)), np.zeros(len(rows)), None, of_row, cells)


def weights(plan: Plan, random: np.random.Generator) -> FloatArray:
    drawn: FloatArray = random.normal(size=plan.dimension) * random.choice([0.0, 0.1, 3.0])
    return drawn


def window(plan: Plan, random: np.random.Generator) -> FloatArray:
    lower = random.normal()
    return np.array([lower, lower + np.exp(random.normal(scale=2.0))])


def nothing(plan: Plan, random: np.random.Generator) -> FloatArray:
    return np.zeros(plan.dimension)


def own_axes(plan: Plan) -> list[FloatArray]:
    """Ask at 0, along the features' own axes, long ones."""
    return [np.concatenate([np.zeros(plan.dimension), 2.0**20 * np.eye(plan.data.width).reshape(-1)])]


def featured(query: Any, plan: Plan, argument: Callable[..., FloatArray], *handmade: Any) -> Case:
    """Return the case of a query of features, with weights from the whole space."""
    if plan.training is not None:
        plan = rebuilt(plan, training=plan.training.model_copy(update={"domain": WholeSpace()}))
    return Case(query, plan, argument, feature_rows, build_of_features, *handmade)


def every_case() -> dict[str, Case]:
    cases = {}
    axes = test_preconditioned_gradient
    for loss, edits in (LOSSES | CUSTOM).items():
        plan = plan_of(edits)
        for clip in CLIPS:
            cases[f"gradient of {loss}, clip {clip}"] = featured(Gradient(clip=clip), plan, weights)
        if not plan.loss.shares_slopes:
            cases[f"preconditioned {loss}"] = featured(PreconditionedGradient(), plan, axes.asked, own_axes)
            rank_one = PreconditionedGradient(axes="rank-one")
            cases[f"preconditioned {loss}, rank one"] = featured(rank_one, plan, axes.asked_of_rank_one)
        if loss in ("squared", "logistic", "softmax"):
            cases[f"means and {loss}"] = featured(protocol.FeatureMeans(), plan, window)
            cases[f"moments and {loss}"] = featured(
                protocol.FeatureMoments(), plan, lambda *given: test_feature_moments.draw_view(*given).packed()
            )
    for loss in [*NAMED_LOSSES, *CUSTOM]:
        plan = test_evaluation.plan_with(loss) if loss in LOSSES else plan_of(COUNTED, CUSTOM[loss])
        for query in (protocol.Evaluation(), protocol.Evaluation(against=protocol.pack(np.zeros(plan.dimension)))):
            name = f"{query.name} of {loss}, {query.against is not None}"
            cases[name] = featured(query, plan, partial(test_evaluation.drawn_request, query))
        for part in test_comparison.PARTS:
            compared = protocol.Comparison(models=3, part=part)
            cases[f"{part} of {loss}"] = featured(compared, plan, partial(test_comparison.drawn_request, compared))
    for plan in (test_second_moments.NUMERIC, test_second_moments.LABELLED):
        cases[f"second moments and {plan.loss.name}"] = featured(
            plan.stages[0].query, plan, lambda *given: test_second_moments.draw_asked(*given).packed()
        )
    for name, statistics in test_statistics.QUERIES.items():
        plan = test_statistics.plan_of(statistics, 9)
        cases[f"statistics: {name}"] = Case(statistics, plan, nothing, table_rows, build_of_table)
    cases["survival curve"] = Case(
        plan_of(CURVED).stages[0].query, plan_of(CURVED), nothing, timed_rows, build_of_times
    )
    columns = test_column_distributions
    cases["column distributions"] = Case(columns.QUERY, columns.PLAN, columns.ends, columns.rows, columns.build)
    cases["curvature"] = featured(protocol.Curvature(), plan_of(SURVEY), weights)
    return cases


CASES = every_case()
every = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def test_every_and_every_loss_has_a_case() -> None:
    asked = {type(case.query) for case in CASES.values()}
    assert asked == set(get_args(get_args(Query)[0])) == set(COMPUTATIONS)
    assert {kind for kind in asked if not issubclass(kind, MeanQuery)} == {Curvature}
    lost = {case.plan.loss.name for case in CASES.values() if isinstance(case.query, Gradient)}
    assert lost == {*NAMED_LOSSES, Custom.model_fields["name"].default}


@every
@given(seed=st.integers(0, 2**32))
@examples(2)
def test_a_total_is_the_sum_of_its_members_own_and_no_two_of_these_are_further_apart_than_is_charged(
    case: Case, seed: int
) -> None:
    """Bit for bit, and as fractions: of records, and of persons by each rule for their rows that differs."""
    random = np.random.default_rng(seed)
    require_contract(case, random)
    for rule in ("mean", "rows", "sum") if case.query.trains else ("mean",):
        require_contract(case.of_persons(rule), random)


SEARCHED = {
    name: case
    for name, case in CASES.items()
    if case.rows is feature_rows and not case.query.trains and case.plan.loss.name != "custom"
}


@pytest.mark.parametrize("case", SEARCHED.values(), ids=list(SEARCHED))
def test_no_search_finds_records_that_change_the_answer_by_more_than_the_sensitivity(case: Case) -> None:
    """Uphill from the worst of many pairs; the gradients' own tests also say how near a search comes."""
    random = np.random.default_rng(2)
    others = [draw_record(case.plan, random, stretch=random.choice([0.0, 1.0, 10.0])) for _ in range(6)]
    setting = Setting(case.plan, case.query, case.argument(case.plan, random), others, 7)
    assert farthest(setting, random, steps=30) <= setting.limit() * ROUNDING


WORDS = {
    "gradient of huber, clip 0.3": "the average gradient of the huber loss, for predicting 'cost' from age, town, at "
    "weights that the server chooses…Each record's gradient is clipped to norm 0.3",
    "preconditioned huber": "at weights and along axes that the server chooses…, along the requested axes, is clipped",
    "curvature": "the largest eigenvalue of the features' second-moment matrix…counts towards the silos' epsilon",
    "means and logistic": "the means of age, town, …a budgeted survey…clipped to their largest norm",
    "moments and logistic": "how age, town vary together, …a budgeted survey…clipped to norm 1",
    "losses of logistic": "of 3 models that the server names…clipped losses…are clipped",
    "evaluation of logistic, False": "how well a model that the server names predicts 'cost', …clipped losses…clipped",
    "evaluation of logistic, True": "how well two models that the server names predict 'cost', …clipped losses",
    "second moments and squared": "the average curvature…'cost' from age, town, …an interval…clipped to norm 1",
    "statistics: all, and tables": "or none, of age, dose, …the cross tables of ill by ward, age by dose…schema",
    "column distributions": "how many records lie in each of 8 parts of age, dose…places the knots of curves",
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
