"""What a plan costs is what its rounds cost, task by task and stage by stage, against each observer, and never less."""

import itertools
import math

import pytest

from ringfence import protocol
from ringfence.accounting import accountant
from ringfence.accounting.charges import cost, costs, plan_events, task_event
from ringfence.accounting.events import DisjointBatchRelease, seen_by
from ringfence.protocol import Full, Plan, Schema, SiloTerms, Stage
from ringfence.protocol.plan.plan import task
from tests.accounting.plans import KINDS, all_rounds, mixed_plan, plan_for
from tests.support import clip_of, rebuilt, renoised, restaged, shift_in


@pytest.fixture(scope="module")
def mixed() -> dict[str, Plan]:
    """Plans of three silos of different sizes, two of which are enough, by sampling."""
    return {sampling: mixed_plan(sampling) for sampling in ("full", "one-pass")}


@pytest.mark.parametrize(
    ("kind", "survey"), [*itertools.product(KINDS, [False, True]), ("full", None), ("one-pass", None)]
)
def test_the_plan_s_events_cost_what_its_rounds_cost_one_by_one_against_each_observer(
    schema: Schema, mixed: dict[str, Plan], kind: str, survey: bool | None
) -> None:
    """Where a survey is None, the plan goes through a shuffler."""
    plan = mixed[kind] if survey is None else plan_for(schema, kind, survey)
    observers = ["anyone"] if survey is not None else ["server", "anyone"]
    for terms in plan.silos:
        assert [claimed.against for claimed in terms.guarantees] == observers
        for claimed in terms.guarantees:
            at_once = cost(plan_events(plan, terms), claimed)
            assert at_once == pytest.approx(cost(all_rounds(plan, terms), claimed), rel=1e-9)
            assert (0.0 if survey is None else 0.999) * claimed.epsilon < at_once <= claimed.epsilon


def test_the_cost_against_an_observer_is_that_of_what_it_sees(mixed: dict[str, Plan]) -> None:
    plan = mixed["full"]
    terms = plan.silos[0]
    events = plan_events(plan, terms)
    found = costs(events, plan.observers, 1e-6)
    assert found == tuple(
        protocol.Guarantee(
            epsilon=accountant.epsilon(seen_by(observer, events), 1e-6), delta=1e-6, against=observer
        )
        for observer in plan.observers
    )  # fmt: skip
    assert found[0].epsilon < found[1].epsilon, "other silos' coins are worth something"
    for claimed in found:
        assert cost(events, claimed) == claimed.epsilon


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


def test_every_phase_costs_about_as_much_and_none_more_than_is_claimed(schema: Schema) -> None:
    plan = plan_for(schema, "phased")
    for terms in plan.silos:
        shifts = [math.sqrt(count) * shift_in(event) for event, count in plan_events(plan, terms)]
        assert shifts == pytest.approx([shifts[0]] * 3, rel=1e-5)
        assert accountant.as_one_gaussian(plan_events(plan, terms)) == pytest.approx(max(shifts), rel=1e-9)


def test_less_noise_in_any_stage_costs_more(schema: Schema) -> None:
    for kind in KINDS:
        plan = plan_for(schema, kind, survey=True)
        before = cost(plan_events(plan, plan.silos[0]), plan.silos[0].guarantee)
        for number in (0, 1):
            sigma = plan.silos[0].stages[number].sigma
            quieter = renoised(plan, "north", number=number, sigma=sigma * 0.8)
            assert cost(plan_events(quieter, quieter.silos[0]), plan.silos[0].guarantee) > before


# Plans of many stages


def with_stage(plan: Plan, stage: Stage, sigma: float) -> Plan:
    """Return the plan with one more stage over all records."""

    def longer(own: SiloTerms) -> SiloTerms:
        return own.model_copy(update={"stages": (*own.stages, protocol.StageTerms(batch=own.records, sigma=sigma))})

    return rebuilt(plan, stages=(*plan.stages, stage), silos=tuple(map(longer, plan.silos)))


def test_every_stage_adds_its_own_cost_as_often_as_it_asks(schema: Schema) -> None:
    plan = plan_for(schema, "full")
    terms = plan.silos[0]
    for query, rounds in ((protocol.Curvature(), 1), (protocol.FeatureMeans(), 3), (protocol.Gradient(clip=0.1), 5)):
        longer = with_stage(plan, Stage(query=query, rounds=rounds, sampling=Full()), 0.5)
        (training, more) = plan_events(longer, longer.silos[0])
        assert training == plan_events(plan, terms)[0]
        exact = query.sensitivity(longer, terms.records) / 0.5
        assert more[1] == rounds
        assert exact <= shift_in(more[0]) <= exact * (1 + 1e-6)
        assert accountant.epsilon(plan_events(longer, longer.silos[0]), 1e-6) == pytest.approx(
            accountant.epsilon(all_rounds(longer, longer.silos[0]), 1e-6), rel=1e-9
        )


def test_a_phase_that_is_asked_in_two_stages_is_paid_for_twice(schema: Schema) -> None:
    """Two stages about the same part are about the same records; two about different parts are not."""
    plan = plan_for(schema, "full", algorithm="minibatch-sgd")

    def phases(*numbers: int) -> Plan:
        stages = tuple(
            plan.stages[0].model_copy(update={"sampling": protocol.Phased(phase=number)}) for number in numbers
        )

        def divided(own: SiloTerms) -> SiloTerms:
            parts = tuple(protocol.StageTerms(batch=own.records >> (number + 1), sigma=0.5) for number in numbers)
            return own.model_copy(update={"stages": parts})

        return rebuilt(plan, stages=stages, silos=tuple(map(divided, plan.silos)))

    def shift(asked: Plan) -> float:
        found = accountant.as_one_gaussian(plan_events(asked, asked.silos[0]))
        assert found is not None
        return found

    once, both, twice = phases(1), phases(0, 1), phases(1, 1)
    assert shift(both) == pytest.approx(shift(once), rel=1e-9), "the smaller part is the dearer one"
    assert shift(twice) == pytest.approx(math.sqrt(2) * shift(once), rel=1e-9)


def test_a_survey_beside_a_shuffled_stage_costs_the_same_in_everybody_s_eyes(mixed: dict[str, Plan]) -> None:
    """What is sent with a silo's own noise is seen by all; what goes through the shuffler is not."""
    plan = mixed["full"]
    surveyed = with_stage(plan, Stage(query=protocol.Curvature(), rounds=1, sampling=Full()), 5.0)
    terms = surveyed.silos[0]
    counts, (survey, once) = plan_events(surveyed, terms)
    assert (counts, once) == (plan_events(plan, plan.silos[0])[0], 1)
    for observer in plan.observers:
        assert seen_by(observer, [(survey, 1)]) == [(survey, 1)]
        with_it, without = (
            accountant.epsilon(seen_by(observer, events), 1e-6)
            for events in (plan_events(surveyed, terms), plan_events(plan, plan.silos[0]))
        )
        assert with_it > without


def test_a_task_costs_by_its_stage_s_query_and_not_by_the_plan_s_first(schema: Schema) -> None:
    plan = plan_for(schema, "full", survey=True)
    terms = plan.silos[0]
    for round in (0, 1):
        work = task(plan, terms, round, 0)
        exact = plan.stages[round].query.sensitivity(plan, terms.records) / terms.stages[round].sigma
        assert exact <= shift_in(task_event(plan, terms, work)) <= exact * (1 + 1e-6)
    halved = restaged(plan, protocol.Gradient(clip=clip_of(plan) / 2))
    whole, half = (shift_in(plan_events(asked, asked.silos[0])[1][0]) for asked in (plan, halved))
    assert half == pytest.approx(whole / 2, rel=1e-6)
