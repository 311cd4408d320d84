"""What a plan costs is what its rounds cost, task by task, and never less."""

import itertools
import math
from typing import Any

import pytest

from ringfence.errors import AccountingError
from ringfence.planning import accountant, correlation
from ringfence.planning.charges import plan_events, task_event
from ringfence.planning.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    as_seen_alone,
)
from ringfence.planning.prescribe import Member, make_plan
from ringfence.protocol.algorithms import Localized, Phase
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import survey_sensitivity, task
from ringfence.protocol.schema import Schema
from ringfence.protocol.shuffle import Keys
from tests.shuffle.mixed import make_mixed, schema_of
from tests.support import about_moments, shift_in

PHASES = Localized(smoothness=1.0, phases=tuple(Phase(rounds=r, penalty=0.1) for r in (4, 1, 7)))
KINDS: dict[str, dict[str, Any]] = {
    "full": {"sampling": "full"},
    "fixed": {"sampling": "fixed"},
    "poisson": {"sampling": "poisson"},
    "one-pass": {"sampling": "one-pass"},
    "correlated": {"sampling": "one-pass", "correlation": 0.4},
    "phased": {"algorithm": PHASES},
}


def plan_for(schema: Schema, kind: str, survey: bool = False, **changes: Any) -> Plan:
    members = [Member("north", 100, 1.0, 1e-6), Member("south", 37, 0.5, 1e-7)]
    given = {"algorithm": "accelerated", "rounds": 12, "survey": survey, **KINDS[kind], **changes}
    return make_plan(schema, members, **given)


def all_rounds(plan: Plan, terms: SiloTerms) -> list[tuple[Event, int]]:
    """Charge round by round, as a gate does that answers them all."""
    return [
        (task_event(plan, terms, task(plan, terms, round, round - plan.preliminaries)), 1)
        for round in range(plan.exchanges)
    ]


@pytest.mark.parametrize(("kind", "survey"), list(itertools.product(KINDS, [False, True])))
def test_the_plan_s_events_cost_what_its_rounds_cost_one_by_one(schema: Schema, kind: str, survey: bool) -> None:
    plan = plan_for(schema, kind, survey)
    for terms in plan.silos:
        at_once = accountant.epsilon(plan_events(plan, terms), terms.delta)
        one_by_one = accountant.epsilon(all_rounds(plan, terms), terms.delta)
        assert at_once == pytest.approx(one_by_one, rel=1e-9)
        assert 0.999 * terms.epsilon < at_once <= terms.epsilon


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("full", GaussianRelease),
        ("fixed", FixedSizeRelease),
        ("poisson", PoissonRelease),
        ("one-pass", DisjointBatchRelease),
        ("correlated", DisjointBatchRelease),
        ("phased", DisjointBatchRelease),
    ],
)
def test_each_sampling_has_its_event(schema: Schema, kind: str, type_: type[Event]) -> None:
    plan = plan_for(schema, kind, survey=True)
    survey, *gradients = plan_events(plan, plan.silos[0])
    assert isinstance(survey[0], GaussianRelease)
    assert survey[1] == 1
    assert all(isinstance(event, type_) for event, _ in gradients)


def test_a_full_round_s_shift_is_twice_the_clip_over_records_and_noise(schema: Schema) -> None:
    plan = plan_for(schema, "full")
    for terms in plan.silos:
        ((event, count),) = plan_events(plan, terms)
        assert count == 12
        assert shift_in(event) == pytest.approx(2 * plan.clip / (terms.records * terms.sigma), rel=1e-6)


def test_correlated_rounds_pay_for_every_row_that_a_record_moves(schema: Schema) -> None:
    plan = plan_for(schema, "correlated")
    for terms in plan.silos:
        ((event, count),) = plan_events(plan, terms)
        assert count == 1
        alone = 2 * plan.clip / (terms.batch * terms.sigma)
        assert shift_in(event) == pytest.approx(alone * correlation.column_norm(0.4, 12), rel=1e-6)
        assert shift_in(event) > 1.2 * alone


def test_every_part_belongs_to_the_plan_s_own_partition(schema: Schema) -> None:
    for kind in ("one-pass", "correlated", "phased"):
        first, second = plan_for(schema, kind), plan_for(schema, kind)
        names = set()
        for plan in (first, second):
            for event, _ in all_rounds(plan, plan.silos[0]):
                assert isinstance(event, DisjointBatchRelease)
                names.add(event.partition)
        assert names == {first.digest(), second.digest()}


def test_parts_of_one_pass_are_numbered_by_answers_and_parts_of_phases_by_phase(schema: Schema) -> None:
    def parts(kind: str) -> list[int]:
        plan = plan_for(schema, kind, survey=True)
        events = [event for event, _ in all_rounds(plan, plan.silos[0])]
        return [event.part for event in events if isinstance(event, DisjointBatchRelease)]

    assert parts("one-pass") == list(range(12))
    assert parts("phased") == [0] * 4 + [1] + [2] * 7


def test_a_survey_s_shift_is_its_sensitivity_over_its_noise(schema: Schema) -> None:
    plan = plan_for(schema, "full", survey=True)
    for asked in (plan, about_moments(plan)):
        for terms in asked.silos:
            survey, _ = plan_events(asked, terms)
            exact = survey_sensitivity(asked, terms.records) / (terms.survey_sigma or math.nan)
            assert exact <= shift_in(survey[0]) <= exact * (1 + 1e-6)


def test_every_phase_costs_about_as_much_and_none_more_than_is_claimed(schema: Schema) -> None:
    plan = plan_for(schema, "phased")
    for terms in plan.silos:
        shifts = [math.sqrt(count) * shift_in(event) for event, count in plan_events(plan, terms)]
        assert shifts == pytest.approx([shifts[0]] * 3, rel=1e-5)
        assert accountant.as_one_gaussian(plan_events(plan, terms)) == pytest.approx(max(shifts), rel=1e-9)


def test_less_noise_costs_more_in_every_kind(schema: Schema) -> None:
    for kind in KINDS:
        plan = plan_for(schema, kind, survey=True)
        terms = plan.silos[0]
        for name in ("sigma", "survey_sigma"):
            quieter = terms.model_copy(update={name: getattr(terms, name) * 0.8})
            assert accountant.epsilon(plan_events(plan, quieter), 1e-6) > accountant.epsilon(
                plan_events(plan, terms), 1e-6
            )


# -- through a shuffler --


@pytest.fixture(scope="module")
def mixed() -> dict[str, Plan]:
    """Plans of three silos of different sizes, two of which are enough, by sampling."""
    keys = Keys(server="5e" * 32, shuffler="5f" * 32, silos=dict.fromkeys(("big", "mid", "small"), "a0" * 32))
    sizes = {"big": 300, "mid": 200, "small": 120}
    return {
        sampling: make_mixed(schema_of(3), keys, sizes, quorum=2, sampling=sampling, epsilon=2.0)
        for sampling in ("full", "one-pass")
    }


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_what_goes_through_a_shuffler_costs_what_its_rounds_cost_in_both_views(
    mixed: dict[str, Plan], sampling: str
) -> None:
    plan = mixed[sampling]
    for terms in plan.silos:
        assert terms.alone_epsilon is not None
        for view, claimed in ((list, terms.epsilon), (as_seen_alone, terms.alone_epsilon)):
            at_once = accountant.epsilon(view(plan_events(plan, terms)), terms.delta)
            one_by_one = accountant.epsilon(view(all_rounds(plan, terms)), terms.delta)
            assert at_once == pytest.approx(one_by_one, rel=1e-9)
            assert at_once <= claimed


@pytest.mark.parametrize("sampling", ["full", "one-pass"])
def test_a_silo_counts_on_its_own_coins_and_those_of_the_smallest_others(mixed: dict[str, Plan], sampling: str) -> None:
    plan = mixed[sampling]
    shuffle = plan.shuffle
    assert shuffle is not None
    parts = {"full": 1, "one-pass": 3}[sampling]
    for name, own, other in (("big", 300, 120), ("mid", 200, 120), ("small", 120, 200)):
        terms = plan.terms(name)
        assert terms is not None
        event = task_event(plan, terms, task(plan, terms, 1, 1))
        assert isinstance(event, BinomialRelease)
        assert event.own == shuffle.coins * (own // parts)
        assert event.trials == shuffle.coins * (own // parts + other // parts)
        assert event.reach == pytest.approx(shuffle.levels, rel=1e-9)
        assert event.reach > shuffle.levels, "rounding errors included"
        assert (event.dimension, event.slack) == (plan.dimension, shuffle.slack)
        assert (event.partition, event.part) == ((plan.digest(), 1) if sampling == "one-pass" else ("", 0))


def test_too_few_shares_cost_nothing_because_they_are_refused(mixed: dict[str, Plan]) -> None:
    plan = mixed["full"]
    assert plan.shuffle is not None
    fewer = plan.model_copy(update={"shuffle": plan.shuffle.model_copy(update={"shares": plan.shuffle.shares - 1})})
    with pytest.raises(AccountingError, match="more shares"):
        plan_events(fewer, plan.silos[0])
