"""From sizes and budgets to a plan that spends each silo's budget, and no more, whatever was asked for."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import PlanError
from ringfence.planning import defaults
from ringfence.planning.algorithm_choice import BOUNDED, SHARES
from ringfence.planning.propose import make_plan, propose, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import (
    Absolute,
    Accelerated,
    Ball,
    Box,
    Curvature,
    EpsilonInsensitive,
    Guarantee,
    Hinge,
    Localized,
    Logistic,
    MinibatchSGD,
    MultiStage,
    NonSmooth,
    OwnNoise,
    Participation,
    Phase,
    Pinball,
    Plan,
    Preconditioned,
    Restart,
    SamplingName,
    Schema,
    Squared,
    parse_schema,
)
from tests.support import shift_in

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
EVEN = [Member(f"silo {i}", 400, 2.0, 1e-6) for i in range(4)]
UNEVEN = [
    Member("large", 5000, 0.5, 1e-7),
    Member("middle", 701, 1.0, 1e-6),
    Member("small", 160, 4.0, 1e-5),
]
WEIGHED = [replace(member, weight=weight) for member, weight in zip(UNEVEN, (1.0, 2.0, 5.0), strict=True)]


@pytest.fixture(scope="module")
def numeric() -> Schema:
    """Three numbers and a numeric target."""
    return parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "c": NUMBER, "y": NUMBER}}, target="y")


@pytest.fixture(scope="module")
def wide() -> Schema:
    """A hundred numbers and a label."""
    columns: dict[str, Any] = {f"x{i}": NUMBER for i in range(100)}
    return parse_schema({"columns": {**columns, "y": {"type": "categorical", "categories": ["a", "b"]}}}, target="y")


def assert_spends_every_budget(plan: Plan, members: list[Member]) -> None:
    assert [terms.name for terms in plan.silos] == [member.name for member in members]
    for terms, member in zip(plan.silos, members, strict=True):
        promised = Guarantee(epsilon=member.epsilon, delta=member.allowed_delta, against="anyone")
        assert (terms.records, terms.guarantees) == (member.records, (promised,))
        assert 0.999 * member.epsilon <= cost(plan_events(plan, terms), promised) <= member.epsilon


def surveys(plan: Plan) -> bool:
    """Return whether the plan begins with a survey of the curvature."""
    return plan.stages[0].query == Curvature()


# Budgets

COMBINATIONS = [
    *itertools.product(BOUNDED[:4], ["full", "fixed", "poisson", "one-pass"]),
    ("localized", "phased"),
]


@pytest.mark.parametrize(("method", "sampling"), COMBINATIONS)
@pytest.mark.parametrize("members", [EVEN, UNEVEN, WEIGHED], ids=["even", "uneven", "weighed"])
def test_every_method_and_sampling_spends_every_silo_s_budget_and_no_more(
    schema: Schema, method: str, sampling: SamplingName, members: list[Member]
) -> None:
    # Stages need strong convexity, and little noise to fit into rounds that must each have a record.
    stages = method == "multi-stage"
    members = [replace(m, records=1000 * m.records) if stages and sampling == "one-pass" else m for m in members]
    plan = make_plan(
        schema, members, PlanRequest(algorithm=method, sampling=sampling, most_rounds=150, ridge=1.0 if stages else 0.0)
    )
    assert {stage.sampling.name for stage in plan.stages if stage.query.trains} == {sampling}
    assert_spends_every_budget(plan, members)


@pytest.mark.parametrize("risk", ["empirical", "population"])
def test_batches_of_fixed_size_are_taken_only_where_they_are_asked_for(schema: Schema, risk: Any) -> None:
    proposal = propose(schema, EVEN, PlanRequest(risk=risk, most_rounds=150))
    assert proposal.alternatives
    assert "fixed" not in {choice.sampling for choice in proposal.alternatives}
    assert "fixed" not in {stage.sampling.name for stage in proposal.plan.stages}
    assert "fixed" not in {spec.default_sampling for spec in (Accelerated, Localized, MinibatchSGD, MultiStage)}


@pytest.mark.parametrize("participation", [Participation(silos=2), Participation(probability=0.4)], ids=str)
@pytest.mark.parametrize("method", BOUNDED)
def test_silos_that_are_asked_now_and_then_have_budgets_for_as_often_as_they_may_be(
    schema: Schema, method: str, participation: Participation
) -> None:
    """The server decides whom it asks: a silo counts on being asked every time, or as often as the plan lets it."""
    plan = make_plan(
        schema, UNEVEN, PlanRequest(algorithm=method, participation=participation, ridge=1.0, most_rounds=2000)
    )
    for stage in plan.training_stages:
        assert stage.participation.model_copy(update={"answers": None}) == participation
        turns = None if participation.silos is None else math.ceil(stage.rounds * 2 / len(UNEVEN))
        assert stage.participation.answers == turns
    assert_spends_every_budget(plan, UNEVEN)


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson", "one-pass"])
def test_a_surveyed_plan_spends_every_budget_on_survey_and_rounds_together(
    schema: Schema, sampling: SamplingName
) -> None:
    proposal = propose(schema, UNEVEN, PlanRequest(algorithm="accelerated", sampling=sampling, survey=True))
    assert surveys(proposal.plan)
    assert_spends_every_budget(proposal.plan, UNEVEN)
    assert proposal.choice is not None
    assert proposal.choice.survey in SHARES
    for terms in proposal.plan.silos:
        survey, *_ = plan_events(proposal.plan, terms)
        assert cost([survey], terms.guarantee) < terms.guarantee.epsilon
        if sampling in ("full", "one-pass"):  # where the whole is one Gaussian release too
            whole = accountant.as_one_gaussian(plan_events(proposal.plan, terms))
            assert whole is not None
            assert (shift_in(survey[0]) / whole) ** 2 == pytest.approx(proposal.choice.survey, rel=1e-5)


@pytest.mark.parametrize("theta", [0.2, 0.5, 0.9])
def test_correlated_noise_spends_every_budget(schema: Schema, theta: float) -> None:
    plan = make_plan(schema, UNEVEN, PlanRequest(sampling="one-pass", correlation=theta, rounds=40))
    assert plan.stages[-1].channel == OwnNoise(correlation=theta)
    assert_spends_every_budget(plan, UNEVEN)


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-9), (50.0, 1e-3), (0.5, 0.4)])
def test_extreme_budgets_are_met_too(schema: Schema, epsilon: float, delta: float) -> None:
    members = [Member("clinic", 40, epsilon, delta)]
    for wishes in ({}, {"sampling": "fixed"}, {"algorithm": "localized"}, {"algorithm": "accelerated", "survey": True}):
        assert_spends_every_budget(make_plan(schema, members, PlanRequest(**wishes)), members)


def test_a_thousand_silos_are_planned_for(schema: Schema) -> None:
    members = [Member(f"silo {i}", 50 + i % 13, 1.0 + i % 3, 1e-6) for i in range(1000)]
    plan = make_plan(schema, members)
    assert len(plan.silos) == 1000
    assert math.fsum(terms.weight for terms in plan.silos) == pytest.approx(1.0)
    sample = range(0, 1000, 97)
    for terms in [plan.silos[i] for i in sample]:
        promised = terms.guarantee.epsilon
        assert 0.999 * promised <= cost(plan_events(plan, terms), terms.guarantee) <= promised


# Weights, domain, rounds


def test_silos_weigh_as_many_records_as_they_hold_unless_they_name_weights(schema: Schema) -> None:
    sizes = np.array([member.records for member in UNEVEN])
    assert [t.weight for t in make_plan(schema, UNEVEN).silos] == pytest.approx(sizes / sizes.sum())
    assert [t.weight for t in make_plan(schema, WEIGHED).silos] == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    equal = propose_for(PlanRequest(epsilon=1.0, weights="equal"), schema, {"a": 10, "b": 1000}).plan
    assert [t.weight for t in equal.silos] == [0.5, 0.5]


def test_the_domain_reaches_three_times_as_far_as_the_best_weights_are_expected(schema: Schema) -> None:
    assert make_plan(schema, EVEN, PlanRequest(distance=7.0)).domain == Ball(radius=21.0)
    box = Box(lower=-1.0, upper=2.0)
    assert make_plan(schema, EVEN, PlanRequest(domain=box)).domain == box


def test_rounds_are_exactly_so_many_and_most_rounds_are_a_limit(schema: Schema) -> None:
    assert make_plan(schema, EVEN, PlanRequest(rounds=17)).steps == 17
    assert make_plan(schema, EVEN, PlanRequest(most_rounds=17)).steps <= 17
    assert make_plan(schema, EVEN).steps <= defaults.MOST_ROUNDS


@pytest.mark.parametrize("average", ["weighted", "last", "tail"])
def test_the_average_asked_for_is_taken_by_every_algorithm(schema: Schema, average: Any) -> None:
    for method in BOUNDED[1:]:
        plan = make_plan(schema, EVEN, PlanRequest(algorithm=method, average=average, ridge=1.0, most_rounds=400))
        assert not isinstance(plan.algorithm, MinibatchSGD | Preconditioned)
        assert plan.algorithm.average == average
    plain = make_plan(schema, EVEN, PlanRequest(algorithm="minibatch-sgd", average=average, rounds=40)).algorithm
    assert isinstance(plain, MinibatchSGD)
    assert plain.skip == {"weighted": 0, "last": 39, "tail": 30}[average]


def test_a_step_means_minibatch_sgd_with_that_step_and_nothing_compared(schema: Schema) -> None:
    proposal = propose_for(PlanRequest(epsilon=1.0, step=0.3), schema, {"a": 100})
    assert isinstance(proposal.plan.algorithm, MinibatchSGD)
    assert (proposal.plan.algorithm.step, proposal.plan.steps) == (0.3, defaults.MOST_ROUNDS)
    assert (proposal.choice, proposal.alternatives) == (None, ())


SPECS = [
    MinibatchSGD(step=0.2),
    Accelerated(smoothness=1.0, upsilon=3.0),
    MultiStage(smoothness=1.0, stages=(Restart(rounds=3, upsilon=1.0), Restart(rounds=4, upsilon=2.0))),
    Localized(smoothness=1.0, phases=(Phase(rounds=3, penalty=0.1), Phase(rounds=4, penalty=1.0))),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("survey", [False, True])
def test_an_algorithm_given_in_full_is_taken_as_it_is(schema: Schema, spec: Any, survey: bool) -> None:
    if survey and isinstance(spec, MinibatchSGD):
        with pytest.raises(PlanError, match="a step of minibatch-sgd is given"):
            propose(schema, UNEVEN, PlanRequest(algorithm=spec, ridge=0.1, survey=survey))
        return
    proposal = propose(schema, UNEVEN, PlanRequest(algorithm=spec, ridge=0.1, survey=survey))
    assert proposal.plan.algorithm == spec
    assert proposal.plan.steps == (7 if spec in SPECS[2:] else defaults.MOST_ROUNDS)
    assert surveys(proposal.plan) == survey
    assert proposal.choice is None
    assert_spends_every_budget(proposal.plan, UNEVEN)


def test_two_plans_of_the_same_request_are_two_runs(schema: Schema) -> None:
    first, second = make_plan(schema, EVEN), make_plan(schema, EVEN)
    assert first.digest() != second.digest()
    assert make_plan(schema, EVEN, PlanRequest(run="one")) == make_plan(schema, EVEN, PlanRequest(run="one"))


# Surveys


def test_accelerated_steps_are_surveyed_for_where_it_pays_and_nowhere_else(schema: Schema, wide: Schema) -> None:
    rich = [Member(f"silo {i}", 2000, 8.0, 1e-6) for i in range(5)]
    assert surveys(make_plan(wide, rich, PlanRequest(algorithm="accelerated", most_rounds=20)))
    poor = [Member("clinic", 40, 0.1, 1e-6)]
    assert not surveys(make_plan(wide, poor, PlanRequest(algorithm="accelerated")))
    assert not surveys(make_plan(wide, rich, PlanRequest(most_rounds=20, survey=False)))
    assert surveys(make_plan(schema, poor, PlanRequest(survey=True)))


def test_a_request_for_a_bound_gets_the_algorithm_with_the_least(schema: Schema) -> None:
    default, bounded = (propose(schema, EVEN, PlanRequest(algorithm=asked)) for asked in (None, "bounded"))
    assert default.choice is not None
    assert bounded.choice is not None
    assert default.choice.method not in BOUNDED
    assert bounded.choice.method in BOUNDED
    assert math.isfinite(bounded.choice.bound)
    assert bounded.choice.expected == min(other.expected for other in bounded.alternatives)


# Losses with a kink

Kinked = Hinge | Absolute | Pinball | EpsilonInsensitive
KINKED: list[Kinked] = [Hinge(), Absolute(), Pinball(quantile=0.9), EpsilonInsensitive(margin=0.1)]


@pytest.mark.parametrize("loss", KINKED, ids=lambda loss: loss.name)
@pytest.mark.parametrize("method", [None, *BOUNDED])
def test_a_loss_with_a_kink_is_smoothed_by_the_planner(
    schema: Schema, numeric: Schema, loss: Kinked, method: str | None
) -> None:
    data = schema if loss.target_kind == "label" else numeric
    plan = make_plan(data, EVEN, PlanRequest(loss=loss, algorithm=method, ridge=1.0, most_rounds=2000))
    assert isinstance(plan.loss, NonSmooth)
    assert plan.loss.width > 0
    assert plan.loss.with_width(0.0) == loss
    assert math.isfinite(plan.constants.smoothness)
    if not isinstance(plan.algorithm, MinibatchSGD | Preconditioned):
        assert plan.algorithm.smoothness == pytest.approx(plan.constants.smoothness - plan.ridge)


def test_a_smoothing_that_was_given_stays_and_so_does_a_kink_beside_given_steps(schema: Schema) -> None:
    smooth = Hinge(width=0.25)
    assert make_plan(schema, EVEN, PlanRequest(loss=smooth)).loss == smooth
    assert make_plan(schema, EVEN, PlanRequest(loss=Hinge(), algorithm=MinibatchSGD(step=0.1))).loss == Hinge()
    assert propose_for(PlanRequest(epsilon=1.0, loss="hinge", step=0.1), schema, {"a": 100}).plan.loss == Hinge()


def test_more_rounds_allow_less_smoothing(numeric: Schema) -> None:
    few, many = (make_plan(numeric, EVEN, PlanRequest(loss=Absolute(), most_rounds=most)).loss for most in (10, 500))
    assert many.smoothing_error < few.smoothing_error


def test_losses_are_known_by_name_and_take_their_parameters(schema: Schema, numeric: Schema) -> None:
    for name in ("logistic", "hinge"):
        assert propose_for(PlanRequest(epsilon=1.0, loss=name), schema, {"a": 100}).plan.loss.name == name
    for name in ("squared", "huber", "absolute", "pinball", "epsilon-insensitive"):
        asked = PlanRequest(epsilon=1.0, loss=name, quantile=0.9)
        assert propose_for(asked, numeric, {"a": 100}).plan.loss.name == name
    tolerant = PlanRequest(epsilon=1.0, loss="epsilon-insensitive", margin=0.0)
    assert getattr(propose_for(tolerant, numeric, {"a": 100}).plan.loss, "margin", None) == 0.0
    assert (defaults.default_loss(schema), defaults.default_loss(numeric)) == (Logistic(), Squared())
