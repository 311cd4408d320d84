"""The second accountant knows every query, sampling rule and channel, one after the other in one plan too."""

from typing import Any, get_args

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import seen_by
from ringfence.evidence.audit.plans import OTHER, SILO, private_keys
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import make_single_stage_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    Channel,
    ColumnDistributions,
    Comparison,
    Curvature,
    Evaluation,
    FeatureMeans,
    FeatureMoments,
    Full,
    Gradient,
    Observer,
    PersonRule,
    Plan,
    PreconditionedGradient,
    Query,
    Schema,
    SecondMoments,
    SiloTerms,
    Stage,
    StageTerms,
    Statistics,
    SurvivalCurve,
    pack,
    parse_schema,
)
from ringfence.protocol.plan.sampling import SAMPLING_NAMES
from ringfence.protocol.schema.maps.curves import Spline
from ringfence.protocol.schema.schema import TableColumns, without_target
from ringfence.research.audit.second import counts, releases, second_epsilon, second_epsilon_of_counts
from tests.support import rebuilt

DELTA = 1e-6
RULES: dict[str, dict[str, Any]] = {
    "full": {"sampling": "full"},
    "fixed": {"sampling": "fixed"},
    "poisson": {"sampling": "poisson"},
    "one-pass": {"sampling": "one-pass"},
    "correlated": {"sampling": "one-pass", "correlation": 0.5},
    "phased": {"algorithm": "localized"},
}
PERSONS: dict[str, dict[str, Any]] = {
    "mean": {"person_rule": "mean"},
    "rows": {"person_rule": "rows", "rows_per_person": 7},
    "sum": {"person_rule": "sum"},
}
ASKED: list[Query] = [
    ColumnDistributions(bins=8),
    Curvature(),
    FeatureMeans(),
    FeatureMoments(),
    Evaluation(),
    Comparison(models=4, part="sizes"),
    Comparison(models=4, part="losses"),
    SecondMoments(start=pack(np.zeros(3))),
    Statistics(columns=("a", "b"), cross=(("a", "b"),)),
]

CURVE = SurvivalCurve(time="days", event="died", cuts=(2.0, 5.0))
"""Asked of columns of its own."""


def schema_with(target: str, **more: str) -> Schema:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    columns = {"a": number, "b": number, "y": label if target == "label" else number}
    return parse_schema({"columns": columns, **more}, target="y")


def asked_before(asked: Query, plan: Plan) -> Plan:
    """The plan with a query of all records before its own stages, twice, at a cost that is not to be overlooked."""

    def more(terms: SiloTerms) -> SiloTerms:
        own = StageTerms(batch=terms.records, sigma=10.0 / terms.records)
        return terms.model_copy(update={"stages": (own, *terms.stages)})

    first = Stage(query=asked, rounds=2, sampling=Full())
    return rebuilt(plan, stages=(first, *plan.stages), silos=tuple(more(terms) for terms in plan.silos))


def claimed(plan: Plan, against: Observer = "anyone") -> float:
    return accountant.epsilon(seen_by(against, plan_events(plan, plan.silos[0])), DELTA)


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("kind", ["label", "number", *PERSONS])
@pytest.mark.parametrize("rule", RULES)
def test_both_agree_on_every_query_before_rounds_of_every_sampling_rule_and_rule_for_persons(
    rule: str, kind: str, asked: Query
) -> None:
    persons = PERSONS.get(kind, {})
    request = PlanRequest(survey=False, rounds=None if rule == "phased" else 8, **RULES[rule], **persons)
    schema = schema_with("number", person="who") if persons else schema_with(kind)
    if isinstance(asked, ColumnDistributions):
        schema = schema.with_maps((Spline(columns=("a", "b"), knots=5, degree=1, surveyed=True),))
    alone = make_plan(schema, [Member("clinic", 400, 1.0, DELTA)], request)
    both = asked_before(asked, alone)
    assert both.unit == ("person" if persons else "record")
    assert persons or claimed(both) > 1.05 * claimed(alone), "the query must count for anything"
    assert second_epsilon(releases(both), DELTA) == pytest.approx(claimed(both), rel=1e-3)


def test_both_agree_on_a_survival_curve() -> None:
    number = {"type": "numeric", "lower": 0.0, "upper": 9.0}
    columns = {"days": number, "dose": number, "died": {"type": "boolean"}}
    stage = Stage(query=CURVE, rounds=2, sampling=Full())
    data = without_target(TableColumns.model_validate({"columns": columns}, strict=False))
    plan = make_single_stage_plan(stage, [Member("clinic", 400, 1.0, DELTA)], data=data, unit="record")
    assert second_epsilon(releases(plan), DELTA) == pytest.approx(claimed(plan), rel=1e-3)


@pytest.mark.parametrize("rule", RULES)
def test_both_agree_on_silos_that_take_turns(rule: str) -> None:
    request = PlanRequest(available=2, survey=False, rounds=None if rule == "phased" else 9, **RULES[rule])
    members = [Member(name, 400, 1.0, DELTA) for name in ("clinic", "north", "south")]
    plan = make_plan(schema_with("number"), members, request)
    assert all(stage.most_answers < stage.rounds for stage in plan.stages if stage.rounds > 2)
    assert second_epsilon(releases(plan), DELTA) == pytest.approx(claimed(plan), rel=1e-3)


@pytest.mark.parametrize("person_rule", [None, *PERSONS])
def test_both_agree_on_gradients_along_axes_and_the_survey_before_them(person_rule: str | None) -> None:
    persons = {} if person_rule is None else {"person": "who"}
    request = PlanRequest(algorithm="preconditioned", **PERSONS.get(person_rule or "", {}))
    plan = make_plan(schema_with("number", **persons), [Member("clinic", 400, 1.0, DELTA)], request)
    assert [stage.query.name for stage in plan.stages] == ["feature-moments", "preconditioned-gradient"]
    assert second_epsilon(releases(plan), DELTA) == pytest.approx(claimed(plan), rel=1e-3)


@pytest.mark.parametrize(
    ("wishes", "asked"),
    [
        *[({"sampling": rule}, asked) for rule in ("full", "one-pass") for asked in (None, Curvature())],
        *[({"algorithm": "bounded", **rule}, None) for rule in PERSONS.values()],
    ],
    ids=str,
)
def test_counts_are_claimed_above_the_truth_and_near_it_for_records_and_persons_and_beside_a_query(
    wishes: dict[str, Any], asked: Curvature | None
) -> None:
    request = PlanRequest(trust="shuffler", rounds=4, colluders=0, keys=private_keys().public(), **wishes)
    schema = schema_with("label", person="who") if "person_rule" in wishes else schema_with("label")
    plan = make_plan(schema, [Member(name, 60, 2.0, DELTA) for name in (SILO, OTHER)], request)
    if asked is not None:
        plan = asked_before(asked, plan)
    assert plan.observers == ("server", "anyone")
    for against in plan.observers:
        second = second_epsilon_of_counts(counts(plan, against), DELTA, releases(plan))
        assert 0.9 * claimed(plan, against) < second <= claimed(plan, against)


def test_no_query_sampling_rule_channel_or_rule_for_persons_is_left_out() -> None:
    def names(kinds: Any) -> set[str]:
        return {kind.model_fields["name"].default for kind in get_args(get_args(kinds)[0])}

    trained: list[Query] = [Gradient(clip=1.0), PreconditionedGradient()]
    assert {query.name for query in [*ASKED, *trained, CURVE]} == names(Query)
    assert {wishes.get("sampling", "phased") for wishes in RULES.values()} == set(SAMPLING_NAMES)
    assert names(Channel) == {"own-noise", "shuffler"}
    assert set(PERSONS) == set(get_args(PersonRule))
