"""All plans of a choice together cost every silo what it grants, whatever its candidates ask for."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.charges import all_events, costs
from ringfence.errors import PlanError
from ringfence.federation.local_shuffler import local_shuffler
from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import (
    TRIED,
    CandidateRequest,
    SearchProposal,
    candidate_request,
    flags,
    grid,
    parse_tries,
    propose_search,
)
from ringfence.protocol import Schema, parse_schema

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
LABEL = {"type": "categorical", "categories": ["no", "yes"]}
MEMBERS = [Member("large", 4000, 0.5, 1e-7, held_out=1000), Member("small", 160, 4.0, 1e-5, held_out=40)]
CLIPS: list[dict[str, Any]] = [{"clip": clip} for clip in (0.25, 0.5, 1.0, 2.0)]


def schema(**more: Any) -> Schema:
    columns = dict.fromkeys(("x1", "x2", "x3"), NUMBER) | {"y": LABEL}
    return parse_schema({"columns": columns, **more}, target="y")


def proposed(
    settings: list[dict[str, Any]], members: list[Member] = MEMBERS, data: Schema | None = None, **asked: Any
) -> SearchProposal:
    request = PlanRequest(held_out=0.2, **asked)
    return propose_search(
        data or schema(), [CandidateRequest(own, replace(request, **own), members) for own in settings]
    )


def test_candidates_and_comparison_together_cost_exactly_what_each_silo_grants() -> None:
    made = proposed(CLIPS)
    assert {stage.section for plan in made.plans[:-1] for stage in plan.stages} == {"training"}
    for member in MEMBERS:
        whole = all_events(made.plans, member.name)
        assert accountant.epsilon(whole, member.allowed_delta) == pytest.approx(member.epsilon, rel=1e-4)
        assert accountant.epsilon(whole, member.allowed_delta) <= member.epsilon
        for places in (made.plans[:-1], made.plans[-1:]):  # those that train, and those that are held out
            paid = accountant.epsilon(all_events(places, member.name), member.allowed_delta)
            assert paid == pytest.approx(member.epsilon, rel=1e-4)


def test_each_of_k_candidates_has_root_k_times_the_noise_of_one_alone() -> None:
    made = proposed(CLIPS)
    alone = propose(schema(), MEMBERS, PlanRequest(held_out=0.2, clip=1.0, rounds=20), evaluated=False).plan
    rounds = proposed([{"clip": 1.0}, {"clip": 1.0, "ridge": 0.1}], rounds=20)
    assert made.share == pytest.approx(1 / 2)
    for terms, other in zip(rounds.candidates[0].plan.silos, alone.silos, strict=True):
        assert terms.stages[0].sigma / other.stages[0].sigma == pytest.approx(math.sqrt(2), rel=1e-3)
    assert "each trains with 2 times the noise it would have alone" in made.explain()[0]


@pytest.mark.parametrize(
    "settings",
    [
        [{"sampling": "poisson", "batch": 16}, {"sampling": "fixed", "batch": 16}],
        [{"sampling": "full"}, {"sampling": "poisson", "batch": 16}, {"sampling": "one-pass"}],
        [
            {"algorithm": "localized"},
            {"algorithm": "multi-stage", "ridge": 0.1},
            {"algorithm": "accelerated", "survey": True},
        ],
    ],
)
def test_candidates_of_any_kind_keep_to_what_was_granted(settings: list[dict[str, Any]]) -> None:
    members = [Member("one", 320, 1.0, 1e-6, batch=16, held_out=80), Member("two", 400, 2.0, 1e-6, held_out=100)]
    members = [replace(member, batch=None) for member in members]
    candidates = [
        CandidateRequest(
            own,
            PlanRequest(held_out=0.2, most_rounds=20, **own),
            [replace(member, batch=own.get("batch")) for member in members],
        )
        for own in settings
    ]
    made = propose_search(schema(), candidates)
    for member in members:
        paid = accountant.epsilon(all_events(made.plans, member.name), 1e-6)
        assert 0.9 * member.epsilon < paid <= member.epsilon


def test_candidates_through_a_shuffler_keep_both_guarantees() -> None:
    members = [Member(name, 400, 1.0, 1e-6, held_out=100) for name in ("one", "two", "three")]
    with local_shuffler([member.name for member in members]) as shuffler:
        made = proposed(CLIPS[:2], members, trust="shuffler", keys=shuffler.keys, rounds=5)
    for member in members:
        server, anyone = made.promised[member.name]
        found = costs(all_events(made.plans, member.name), ("server", "anyone"), 1e-6)
        assert 0.9 < found[0].epsilon <= server.epsilon == 1.0
        assert found[1].epsilon <= anyone.epsilon
        assert server.against == "server"


def test_persons_are_promised_as_a_whole() -> None:
    data = parse_schema({"columns": {"x": NUMBER, "y": LABEL}, "person": "who"}, target="y")
    made = proposed([{"person_rule": "mean"}, {"person_rule": "sum"}], data=data)
    assert {plan.unit for plan in made.plans} == {"person"}
    assert accountant.epsilon(all_events(made.plans, "small"), 1e-5) <= 4.0


def test_a_kinked_loss_is_compared_as_it_is_and_not_as_candidates_smooth_it() -> None:
    made = proposed([{"clip": 0.5}, {"clip": 1.0}], loss="hinge")
    assert all(each.plan.loss.smoothing_error > 0 for each in made.candidates)
    assert made.comparison.loss.smoothing_error == 0


def test_a_silo_that_holds_nothing_out_has_nothing_to_compare_by() -> None:
    with pytest.raises(PlanError, match="silo 'small' holds none out: give a held-out share"):
        proposed(CLIPS, [MEMBERS[0], replace(MEMBERS[1], held_out=0)])


def test_too_many_candidates_for_the_budget_are_warned_of_before_anything_is_spent() -> None:
    members = [Member("one", 80, 0.02, 1e-6, held_out=20)]
    few, many = proposed(CLIPS[:2], MEMBERS), proposed(CLIPS, members)
    assert few.warnings() == []
    (blind,) = many.warnings()  # and candidates that would learn nothing are refused by their rehearsal
    assert blind.startswith("The held-out records are too few to choose with: noise hides differences of up to")


def test_a_candidate_that_no_plan_can_be_made_of_is_named() -> None:
    with pytest.raises(
        PlanError, match=r"The candidate algorithm=multi-stage cannot be trained\. Stages halve the error"
    ):
        proposed([{"algorithm": "accelerated"}, {"algorithm": "multi-stage"}])


def test_values_are_read_by_the_type_of_their_option() -> None:
    tried = parse_tries(["clip=0.5, 1,auto", "rounds=10,20", "algorithm=accelerated,auto", "survey=yes,no"])
    assert tried == {
        "clip": [0.5, 1.0, None],
        "rounds": [10, 20],
        "algorithm": ["accelerated", None],
        "survey": [True, False],
    }


def test_options_have_the_names_that_the_command_line_gives_them() -> None:
    assert parse_tries(["max-rounds=10,20", "--person-rule=mean,sum"]) == {
        "max-rounds": [10, 20],
        "person-rule": ["mean", "sum"],
    }
    asked = candidate_request(PlanRequest(epsilon=1.0, ridge=0.1), {"max-rounds": 20, "clip": None})
    assert (asked.most_rounds, asked.clip, asked.ridge, asked.epsilon) == (20, None, 0.1, 1.0)


def test_every_combination_is_a_candidate_in_the_order_that_was_given() -> None:
    assert grid({"clip": [1.0, 2.0], "ridge": [0.0, 0.1]}) == [
        {"clip": 1.0, "ridge": 0.0},
        {"clip": 1.0, "ridge": 0.1},
        {"clip": 2.0, "ridge": 0.0},
        {"clip": 2.0, "ridge": 0.1},
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["clip"], "not of the form OPTION=VALUE,VALUE"),
        (["clip="], "not of the form OPTION=VALUE,VALUE"),
        (["clop=1,2"], "the options to try are algorithm, average, batch, clip"),
        (["clip=1,much"], "'much' is not a value of 'clip', which takes a number"),
        (["clip=1,nan"], "'nan' is not a value of 'clip'"),
        (["clip=1,inf"], "'inf' is not a value of 'clip'"),
        (["clip=1,,2"], "'' is not a value of 'clip', which takes a number"),
        (["rounds=10,1.5"], "'1.5' is not a value of 'rounds', which takes a whole number"),
        (["survey=yes,perhaps"], "'perhaps' is not a value of 'survey', which takes yes or no"),
        (["ridge=0,auto"], "'auto' is not a value of 'ridge', which takes a number"),
        (["clip=1", "clip=2"], "'clip' is given twice: list all its values at once"),
        (["epsilon=1,2"], "'epsilon' cannot be tried: it says what is granted and for whom"),
        (["held-out=0.1,0.2"], "'held-out' cannot be tried: it says what is granted and for whom"),
        (["trust=nobody,shuffler"], "'trust' cannot be tried: it says whom the guarantee relies on"),
        (["loss=logistic,hinge"], "'loss' cannot be tried: candidates are compared by their loss"),
        (["weights=records,equal"], "'weights' cannot be tried: it says whom the model is for"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_the_reason(options: list[str], says: str) -> None:
    with pytest.raises(PlanError, match=says.replace("(", r"\(")):
        parse_tries(options)


@pytest.mark.parametrize(
    ("tried", "says"),
    [
        ({"clip": [1.0]}, "one candidate, so there is nothing to choose from"),
        ({}, "one candidate, so there is nothing to choose from"),
        ({"clip": [1.0, 2.0, 1.0]}, "A value of 'clip' is listed twice"),
        ({"clip": [1, 1.0]}, "A value of 'clip' is listed twice"),
        (
            {"clip": [float(n) for n in range(1, 14)], "ridge": [0.0, 0.1, 0.2, 0.3, 0.4]},
            "65 candidates, more than the 64 allowed",
        ),
    ],
)
def test_a_grid_of_one_of_too_many_or_of_equals_is_refused(tried: dict[str, list[float]], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        grid(tried)


def test_every_option_of_a_plan_either_may_be_tried_or_says_why_not() -> None:
    offered = set(flags().values())
    assert set(TRIED) <= offered <= {field.name for field in dataclasses.fields(PlanRequest)}
    for flag, field in flags().items():
        if field not in TRIED:
            with pytest.raises(PlanError, match=f"'{flag}' cannot be tried: .* Give it once, as --{flag}"):
                parse_tries([f"{flag}=1,2"])
