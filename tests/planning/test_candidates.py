"""What may be tried is told apart from what may not, before anything is spent."""

import dataclasses

import pytest

from ringfence.errors import PlanError
from ringfence.planning.candidates import TRIED, candidate_request, flags, grid, parse_tries
from ringfence.planning.request import PlanRequest


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
