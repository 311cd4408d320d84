"""Plans of one query: least noise for each silo's budget, and what is refused."""

import numpy as np
import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import PlanError
from ringfence.planning.propose import make_plan
from ringfence.planning.query_plans import SUMMARY_ROUNDS, make_query_plan, make_summary_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Full, OwnNoise, Plan, Schema, SecondMoments, Statistics, pack, parse_schema
from ringfence.protocol.plan.plan import EVERYBODY
from tests.support import renoised

COUNTS = Statistics(columns=("a", "b"))
MEMBERS = [Member("north", 4000, 2.0, 1e-6), Member("south", 900, 0.5)]


def assert_spends_every_budget(plan: Plan) -> None:
    for terms, member in zip(plan.silos, MEMBERS, strict=True):
        (promised,) = terms.guarantees
        assert (promised.epsilon, promised.delta, promised.against) == (member.epsilon, member.allowed_delta, "anyone")
        assert 0.999 * promised.epsilon <= cost(plan_events(plan, terms), promised) <= promised.epsilon
        less = renoised(plan, terms.name, sigma=terms.stages[0].sigma * 0.999)
        assert cost(plan_events(less, less.silos[plan.silos.index(terms)]), promised) > promised.epsilon


def test_it_asks_one_query_once_of_everybody_about_all_records_and_spends_every_budget(schema: Schema) -> None:
    plan = make_query_plan(schema, MEMBERS, COUNTS)
    (stage,) = plan.stages
    assert (stage.query, stage.rounds, stage.sampling) == (COUNTS, 1, Full())
    assert (stage.channel, stage.participation) == (OwnNoise(), EVERYBODY)
    assert (plan.rounds, plan.steps) == (1, 0)
    assert [terms.stages[0].batch for terms in plan.silos] == [4000, 900]
    assert [terms.weight for terms in plan.silos] == pytest.approx([40 / 49, 9 / 49])
    assert_spends_every_budget(plan)


def test_two_surveys_are_two_runs_unless_they_are_named(schema: Schema) -> None:
    assert make_query_plan(schema, MEMBERS, COUNTS).digest() != make_query_plan(schema, MEMBERS, COUNTS).digest()
    assert make_query_plan(schema, MEMBERS, COUNTS, run="one") == make_query_plan(schema, MEMBERS, COUNTS, run="one")


def test_members_that_make_no_plan_are_refused_in_a_sentence(schema: Schema) -> None:
    with pytest.raises(PlanError, match="No plan can be made from this: two silos have the same name"):
        make_query_plan(schema, [Member("twin", 40, 1.0)] * 2, COUNTS)


def summary(schema: Schema, loss: str | None = None) -> Plan:
    trained = make_plan(schema, MEMBERS, PlanRequest(rounds=3, loss=loss, curves=0))
    return make_summary_plan(trained, pack(np.zeros(trained.dimension)), MEMBERS)


def test_a_summary_asks_all_records_and_spends_every_silo_s_budget_and_no_more(schema: Schema) -> None:
    plan = summary(schema, loss="logistic")
    (stage,) = plan.stages
    assert isinstance(stage.query, SecondMoments)
    assert (stage.rounds, stage.section, plan.steps) == (SUMMARY_ROUNDS, None, 0)
    assert [terms.stages[0].batch for terms in plan.silos] == [4000, 900]
    assert_spends_every_budget(plan)


def test_a_loss_without_curvature_is_refused_in_a_sentence(schema: Schema) -> None:
    with pytest.raises(PlanError, match="the hinge loss has no second moments to ask for"):
        summary(schema, loss="hinge")


def test_more_features_than_the_budgets_can_carry_are_refused_before_anything_is_spent() -> None:
    columns = {f"x{place:02}": {"type": "numeric", "lower": 0.0, "upper": 1.0} for place in range(40)}
    with pytest.raises(PlanError, match=r"with 40 features the noise .* Allow a larger epsilon"):
        summary(parse_schema({"columns": columns}, target="x00"))
