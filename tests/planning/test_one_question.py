"""A plan of one question that all records are asked once, for each silo's whole budget."""

import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import PlanError
from ringfence.planning.one_question import make_survey
from ringfence.planning.request import Member
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.plan import EVERYBODY
from ringfence.protocol.questions import Moments
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema
from tests.support import renoised

MOMENTS = Moments(bound="joint")
MEMBERS = [Member("north", 400, 2.0, 1e-6), Member("south", 90, 0.5)]


def test_it_asks_one_question_once_of_everybody_about_all_records(schema: Schema) -> None:
    plan = make_survey(schema, MEMBERS, MOMENTS)
    (stage,) = plan.stages
    assert (stage.question, stage.rounds, stage.sampling) == (MOMENTS, 1, Full())
    assert (stage.channel, stage.participation) == (OwnNoise(), EVERYBODY)
    assert (plan.rounds, plan.steps) == (1, 0)
    assert [terms.stages[0].batch for terms in plan.silos] == [400, 90]
    assert [terms.weight for terms in plan.silos] == pytest.approx([400 / 490, 90 / 490])


def test_it_spends_every_silo_s_budget_and_no_more(schema: Schema) -> None:
    plan = make_survey(schema, MEMBERS, MOMENTS)
    for terms, member in zip(plan.silos, MEMBERS, strict=True):
        (promised,) = terms.guarantees
        assert (promised.epsilon, promised.delta, promised.against) == (member.epsilon, member.allowed_delta, "anyone")
        assert 0.999 * promised.epsilon <= cost(plan_events(plan, terms), promised) <= promised.epsilon
        less = renoised(plan, terms.name, sigma=terms.stages[0].sigma * 0.999)
        assert cost(plan_events(less, less.silos[plan.silos.index(terms)]), promised) > promised.epsilon


def test_two_surveys_are_two_runs_unless_they_are_named(schema: Schema) -> None:
    assert make_survey(schema, MEMBERS, MOMENTS).digest() != make_survey(schema, MEMBERS, MOMENTS).digest()
    assert make_survey(schema, MEMBERS, MOMENTS, run="one") == make_survey(schema, MEMBERS, MOMENTS, run="one")


def test_members_that_make_no_plan_are_refused_in_a_sentence(schema: Schema) -> None:
    with pytest.raises(PlanError, match="No plan can be made from this: two silos have the same name"):
        make_survey(schema, [Member("twin", 40, 1.0)] * 2, MOMENTS)
