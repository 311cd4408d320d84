"""A plan that asks for second moments around a model's weights: of all records, for each silo's whole budget."""

import numpy as np
import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import PlanError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.summaries import ROUNDS, make_summary
from ringfence.protocol.messages import pack
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.schema import Schema, parse_schema

MEMBERS = [Member("north", 4000, 2.0, 1e-6), Member("south", 900, 0.5)]


def trained(schema: Schema, loss: str | None = None) -> Plan:
    return make_plan(schema, MEMBERS, PlanRequest(rounds=3, loss=loss))


def test_it_asks_all_records_and_spends_every_silo_s_budget_and_no_more(schema: Schema) -> None:
    before = trained(schema, loss="logistic")
    plan = make_summary(before, pack(np.zeros(before.dimension)), MEMBERS)
    (stage,) = plan.stages
    assert isinstance(stage.question, SecondMoments)
    assert (stage.rounds, stage.section, plan.steps) == (ROUNDS, None, 0)
    assert [terms.stages[0].batch for terms in plan.silos] == [4000, 900]
    for terms in plan.silos:
        assert 0.999 * terms.guarantee.epsilon <= cost(plan_events(plan, terms), terms.guarantee)
        assert cost(plan_events(plan, terms), terms.guarantee) <= terms.guarantee.epsilon


def test_a_loss_without_curvature_is_refused_in_a_sentence(schema: Schema) -> None:
    before = trained(schema, loss="hinge")
    with pytest.raises(PlanError, match="the hinge loss has no second moments to ask for"):
        make_summary(before, pack(np.zeros(before.dimension)), MEMBERS)


@pytest.mark.parametrize("second", ["town", "curved"])
def test_interactions_that_add_up_to_other_features_are_refused_with_the_remedy(second: str) -> None:
    number = {"type": "numeric", "lower": 0.0, "upper": 1.0}
    columns = {
        "age": number,
        "curved": number,
        "cost": number,
        "town": {"type": "categorical", "categories": ["a", "b"]},
    }
    maps = [{"type": "spline", "columns": ["curved"]}, {"type": "interaction", "columns": ["age", second]}]
    before = trained(parse_schema({"columns": columns, "maps": maps}, target="cost"))
    with pytest.raises(PlanError, match="Train a model without that interaction"):
        make_summary(before, pack(np.zeros(before.dimension)), MEMBERS)


def test_more_features_than_the_budgets_can_carry_are_refused_before_anything_is_spent() -> None:
    columns = {f"x{place:02}": {"type": "numeric", "lower": 0.0, "upper": 1.0} for place in range(40)}
    wide = parse_schema({"columns": columns}, target="x00")
    before = trained(wide)
    with pytest.raises(PlanError, match=r"with 40 features the noise .* Allow a larger epsilon"):
        make_summary(before, pack(np.zeros(before.dimension)), MEMBERS)
