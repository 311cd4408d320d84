"""What no plan can be made of is refused, in one sentence that says what to change."""

import math
from typing import Any

import pytest

from ringfence.accounting.charges import cost, plan_events
from ringfence.errors import AccountingError, PlanError, RingfenceError
from ringfence.planning.algorithm_choice import METHODS
from ringfence.planning.propose import Proposal, propose, propose_for
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Accelerated, Localized, MultiStage, Phase, Restart, Schema, WholeSpace, parse_schema

NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}
EVEN = [Member(f"silo {i}", 400, 2.0, 1e-6) for i in range(4)]
RESTARTS = MultiStage(smoothness=1.0, stages=(Restart(rounds=3, upsilon=1.0), Restart(rounds=4, upsilon=2.0)))
PHASES = Localized(smoothness=1.0, phases=(Phase(rounds=3, penalty=0.1), Phase(rounds=4, penalty=1.0)))


def requested(**asked: Any) -> Proposal:
    label = {"type": "categorical", "categories": ["no", "yes"]}
    schema = parse_schema({"columns": {"a": NUMBER, "b": NUMBER, "y": label}}, target="y")
    return propose_for(PlanRequest(**{"epsilon": 1.0, **asked}), schema, {"north": 300, "south": 77})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"algorithm": "adam"}, "choose one of minibatch-sgd, accelerated, regularised, multi-stage, localized"),
    ({"algorithm": "multi-stage"}, "give a ridge"),
    ({"algorithm": "multi-stage", "ridge": 0.01, "rounds": 5}, "ask for more rounds"),
    ({"algorithm": "localized", "sampling": "full"}, "leave the sampling out"),
    ({"algorithm": "minibatch-sgd", "survey": True}, "Only the accelerated and the"),
    ({"sampling": "phased", "survey": True}, "leave it out"),
    ({"sampling": "one-pass", "rounds": 78}, "the smallest silo has 61: ask for fewer rounds"),
    ({"sampling": "one-pass", "rounds": 10, "batch": 50}, "one pass of 10 rounds of 50 records needs more"),
    ({"step": 0.1, "algorithm": "accelerated"}, "leave the step out"),
    ({"step": 0.0}, "step: Input should be greater than 0"),
    ({"correlation": 0.5}, "correlated noise needs one-pass sampling"),
    ({"correlation": 0.5, "sampling": "fixed"}, "correlated noise needs one-pass sampling"),
    ({"correlation": 1.0, "sampling": "one-pass"}, "correlation: Input should be less than 1"),
    ({"batch": 5, "algorithm": "localized"}, "leave the batch out"),
    ({"batch": 5, "sampling": "full"}, "leave the batch out, or choose poisson"),
    ({"batch": 301, "sampling": "fixed"}, "lower the batch"),
    ({"rounds": 10**7 + 1}, "rounds: Input should be less than or equal to 10000000"),
    ({"loss": "ramp"}, "There is no loss 'ramp'; choose one of logistic, "),
    ({"loss": "squared"}, "does not fit the target"),
    ({"loss": "pinball", "quantile": 1.0}, "quantile: Input should be less than 1"),
    ({"loss": "huber", "margin": 0.0}, "threshold: Input should be greater than 0"),
    ({"available": 3}, "cannot ask more silos than the plan has"),
    ({"available": 0}, "silos: Input should be greater than or equal to 1"),
    *[({"epsilon": bad}, "epsilon must be a finite number above 0") for bad in (0.0, -1.0, math.nan, math.inf)],
    *[({"delta": bad}, "delta must lie strictly between 0 and 1") for bad in (0.0, 1.0, math.nan)],
]


@pytest.mark.parametrize(("asked", "says"), BAD, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_a_bad_request_is_refused_in_one_sentence_that_says_what_to_change(asked: dict[str, Any], says: str) -> None:
    with pytest.raises((PlanError, AccountingError)) as caught:
        requested(**asked)
    sentence = str(caught.value)
    assert says in sentence
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("members", "asked", "says"),
    [
        ([], {}, "at least one silo"),
        ([Member("empty", 0, 1.0)], {}, "Silo 'empty' has no records"),
        ([Member("twin", 9, 1.0)] * 2, {}, "two silos have the same name"),
        ([Member("a", 9, 1.0, weight=0.5), Member("b", 9, 1.0)], {}, "Either every silo names its weight, or none"),
        ([Member("a", 9, 1.0, weight=0.0), Member("b", 9, 1.0, weight=0.0)], {}, "weight must be a positive number"),
        ([Member("a", 9, 1.0, weight=-1.0), Member("b", 9, 1.0, weight=2.0)], {}, "weight must be a positive number"),
        ([Member("hermit", 1, 1.0)], {"algorithm": "localized"}, "every silo needs at least 2"),
        (EVEN, {"algorithm": "localized", "domain": WholeSpace()}, "give a ball or a box"),
        (EVEN, {"algorithm": "minibatch-sgd", "ridge": 0.1, "domain": WholeSpace()}, "give a ball or a box"),
        (EVEN, {"algorithm": PHASES, "sampling": "full"}, "go together"),
        (EVEN, {"algorithm": PHASES, "rounds": 8}, "must add up to the plan's rounds"),
        (EVEN, {"algorithm": Accelerated(smoothness=1.0), "sampling": "phased"}, "go together"),
        ([Member("few", 3, 1.0)], {"algorithm": PHASES}, "Silo 'few' is too small for 2 phases"),
        ([Member("hermit", 1, 1.0)], {"algorithm": PHASES}, "Silo 'hermit' is too small for 1 phases"),
        (EVEN, {"algorithm": RESTARTS, "rounds": 8, "ridge": 1.0}, "must add up to the plan's rounds"),
        (EVEN, {"algorithm": RESTARTS}, "give a ridge or a penalty"),
        ([Member("huge", 10**9, 1.0)], {"rounds": 1}, "less than a millionth of the clip"),
    ],
    ids=str,
)
def test_members_and_settings_that_make_no_plan_are_refused_in_one_sentence(
    schema: Schema, members: list[Member], asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(RingfenceError, match=says) as caught:
        propose(schema, members, PlanRequest(**asked))
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("ridge", [1e-12, 1e-3, 1e9])
@pytest.mark.parametrize("epsilon", [1e-6, 1e6])
def test_a_far_fetched_but_possible_request_makes_a_plan_or_one_sentence(ridge: float, epsilon: float) -> None:
    for method in (None, *METHODS):
        sentence, costs = "", []
        try:
            plan = requested(ridge=ridge, epsilon=epsilon, algorithm=method).plan
            costs = [cost(plan_events(plan, terms), terms.guarantee) for terms in plan.silos]
        except (PlanError, AccountingError) as refused:
            sentence = str(refused)
        assert sentence.count(". ") == 0
        assert all(found <= epsilon for found in costs)
