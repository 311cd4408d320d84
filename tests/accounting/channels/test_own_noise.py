"""What an answer with the silo's own noise costs: its sensitivity over its noise, and every row that noise shares."""

import math

import pytest

from ringfence.accounting import correlation
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.runs import per_round_event
from ringfence.accounting.sampling import exact_rounding
from ringfence.protocol import Schema
from ringfence.protocol.plan.plan import task
from tests.accounting.plans import plan_for
from tests.support import clip_of, shift_in


@pytest.mark.parametrize("kind", ["full", "fixed", "poisson"])
def test_a_round_costs_what_the_accountant_says_of_the_same_numbers(schema: Schema, kind: str) -> None:
    plan = plan_for(schema, kind)
    for terms in plan.silos:
        own = terms.stages[0]
        assert task_event(plan, terms, task(plan, terms, 3, 3)) == per_round_event(
            kind, records=terms.records, batch=own.batch, clip=clip_of(plan), sigma=own.sigma, dimension=plan.dimension
        )


def test_correlated_rounds_pay_for_every_row_that_a_record_moves(schema: Schema) -> None:
    plan = plan_for(schema, "correlated")
    for terms in plan.silos:
        ((event, count),) = plan_events(plan, terms)
        assert count == 1
        alone = 2 * clip_of(plan) / (terms.stages[0].batch * terms.stages[0].sigma)
        assert shift_in(event) == pytest.approx(alone * correlation.column_norm(0.4, 12), rel=1e-6)
        assert shift_in(event) > 1.2 * alone


def test_rows_are_those_of_the_stage_and_not_of_the_whole_plan(schema: Schema) -> None:
    alone, surveyed = (plan_for(schema, "correlated", survey) for survey in (False, True))
    norms = [
        shift_in(plan_events(plan, plan.silos[0])[-1][0])
        * plan.silos[0].stages[-1].batch
        * plan.silos[0].stages[-1].sigma
        / (2 * clip_of(plan))
        for plan in (alone, surveyed)
    ]  # fmt: skip
    assert norms == pytest.approx([correlation.column_norm(0.4, 12)] * 2, rel=1e-6)


def test_rounding_is_paid_for_in_every_number_that_is_summed(schema: Schema) -> None:
    """Of the grid, √d half widths for either neighbour; of the sum, what the plan says that rounding adds."""
    plan = plan_for(schema, "full", survey=True)
    terms = plan.silos[0]
    for number, dimension, roundings in ((0, 4, 2 * 8**2), (1, 4, 2)):
        work = task(plan, terms, number, 0)
        exact = work.stage.query.sensitivity(plan, terms.records) / work.sigma
        charged = shift_in(task_event(plan, terms, work))
        assert charged == exact * exact_rounding(100, 1, roundings) + math.sqrt(dimension) * 2.0**-30
