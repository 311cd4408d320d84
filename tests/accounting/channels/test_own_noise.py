"""What an answer with the silo's own noise costs: its sensitivity over its noise, and every row that noise shares."""

import math

import pytest

from ringfence.accounting import correlation
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import (
    DisjointBatchRelease,
    FixedSizeRelease,
    PoissonRelease,
)
from ringfence.accounting.sampling import per_round_event
from ringfence.accounting.shifts import exact_rounding, rounding_of, shift_of
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.schedule import task
from ringfence.protocol.schema import Schema
from tests.accounting.plans import plan_for
from tests.support import about_moments, clip_of, rebuilt, restaged, shift_in


def test_a_full_round_s_shift_is_twice_the_clip_over_records_and_noise(schema: Schema) -> None:
    plan = plan_for(schema, "full")
    for terms in plan.silos:
        ((event, count),) = plan_events(plan, terms)
        assert count == 12
        exact = 2 * clip_of(plan) / (terms.records * terms.stages[0].sigma)
        assert exact < shift_in(event) < exact * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["full", "fixed", "poisson"])
def test_a_round_costs_what_the_accountant_says_of_the_same_numbers(schema: Schema, kind: str) -> None:
    plan = plan_for(schema, kind)
    for terms in plan.silos:
        own = terms.stages[0]
        assert task_event(plan, terms, task(plan, terms, 3, 3)) == per_round_event(
            kind,
            records=terms.records,
            batch=own.batch,
            clip=clip_of(plan),
            sigma=own.sigma,
            dimension=plan.dimension,
        )


def test_sampled_rounds_say_from_how_many_records_they_are_drawn(schema: Schema) -> None:
    fixed, poisson = (plan_for(schema, kind) for kind in ("fixed", "poisson"))
    ((drawn, _),) = plan_events(fixed, fixed.silos[0])
    assert isinstance(drawn, FixedSizeRelease)
    assert (drawn.records, drawn.batch) == (100, fixed.silos[0].stages[0].batch)
    ((by_chance, _),) = plan_events(poisson, poisson.silos[0])
    assert isinstance(by_chance, PoissonRelease)
    assert by_chance.rate == poisson.silos[0].stages[0].batch / 100


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


def test_the_more_noise_cancels_the_more_a_round_costs(schema: Schema) -> None:
    plan = plan_for(schema, "one-pass")
    shifts = [
        shift_in(plan_events(correlated, correlated.silos[0])[0][0])
        for correlated in (restaged(plan, channel=OwnNoise(correlation=theta)) for theta in (0.0, 0.3, 0.6, 0.9))
    ]
    assert shifts == sorted(shifts)
    assert len(set(shifts)) == 4


def test_a_survey_s_shift_is_its_sensitivity_over_its_noise(schema: Schema) -> None:
    plan = plan_for(schema, "full", survey=True)
    for asked in (plan, about_moments(plan)):
        for terms in asked.silos:
            survey, _ = plan_events(asked, terms)
            own = terms.stages[0]
            exact = asked.stages[0].question.sensitivity(asked, terms.records) / own.sigma
            assert exact <= shift_in(survey[0]) <= exact * (1 + 1e-6)


def test_rounding_is_paid_for_in_every_number_that_is_summed(schema: Schema) -> None:
    """Of the grid, √d half widths for either neighbour; of the sum, what the plan says that rounding adds."""
    surveyed = plan_for(schema, "full", survey=True)
    for plan, number, dimension, roundings in (
        (about_moments(surveyed), 0, 8, 2),  # moments of four features
        (surveyed, 0, 4, 2 * 8**2),
        (surveyed, 1, 4, 2),
    ):
        terms = plan.silos[0]
        work = task(plan, terms, number, 0)
        exact = work.stage.question.sensitivity(plan, terms.records) / work.sigma
        factors = {"exact": exact_rounding(100, 1, roundings), "floating-point": rounding_of(100, dimension)}
        for sums, factor in factors.items():
            charged = shift_in(task_event(rebuilt(plan, sums=sums), terms, work))
            assert charged == exact * factor + math.sqrt(dimension) * 2.0**-30


@pytest.mark.parametrize(("records", "more"), [(10**6, 4e-4), (10**7, 0.04), (5 * 10**7, 1.1)])
def test_exact_sums_cost_nothing_where_others_cost_ever_more(records: int, more: float) -> None:
    assert exact_rounding(records) < 1 + 2e-8
    assert rounding_of(records, 50) > 1 + more


def test_where_records_are_divided_the_row_itself_is_one_more_term(schema: Schema) -> None:
    plan = rebuilt(plan_for(schema, "one-pass"), sums="floating-point")
    terms = plan.silos[0]
    work = task(plan, terms, 5, 2)
    expected = shift_of(
        sensitivity=2 * clip_of(plan) / work.batch,
        sigma=work.sigma,
        summed=100,
        dimension=plan.dimension,
        rounding=rounding_of(101, plan.dimension),
    )
    assert task_event(plan, terms, work) == DisjointBatchRelease(plan.digest(), 2, expected)
