"""What an operator reads of a ledger, in words."""

from typing import Any

import pytest

from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.summary import budget_words, describe_entry

PLAN = "0123456789abcdef" * 4
BUDGET = Budget(2.0, 1e-6).as_data()


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("opened", {"silo": "clinic", "adjacency": "replace-one", "by": "ada"}, "silo 'clinic', replace-one, by ada"),
        ("approved", {"plan": PLAN, "by": "ada", "note": "a study"}, "plan 0123456789ab, by ada: “a study”"),
        ("ended", {"plan": PLAN, "why": "revoked"}, "plan 0123456789ab: revoked"),
        ("charged", {"plan": PLAN, "round": 3}, "plan 0123456789ab, round 3"),
        ("refused", {"plan": PLAN, "round": 3, "reason": "budget"}, "plan 0123456789ab, round 3: budget"),
        ("refused", {"plan": PLAN, "round": 3, "reason": "\x1b[2J"}, "plan 0123456789ab, round 3: \\u001b[2J"),
        ("budget", {"limits": BUDGET, "by": "ada", "note": "x"}, "epsilon 2 at delta 1e-06, by ada: “x”"),
    ],
)
def test_an_entry_says_what_it_is_about_who_decided_and_why(kind: str, body: dict[str, Any], words: str) -> None:
    assert describe_entry({"number": 3, "time": "2026-01-01T00:00:00Z", "kind": kind, **body}) == words


def test_an_entry_on_custody_says_who_decided_once() -> None:
    body = {"before": 40, "after": 45, "reason": "five more", "by": "ada"}
    said = describe_entry({"number": 3, "time": "2026-01-01T00:00:00Z", "kind": "data", **body})
    assert said.count("ada") == 1
    assert "five more" in said
    assert "plan" not in said


@pytest.mark.parametrize(("left", "reserved", "spent"), [(0.0, 0.0, True), (0.1, 0.0, False), (0.0, 0.1, False)])
def test_a_budget_of_which_nothing_is_left_is_said_to_be_used_up(left: float, reserved: float, spent: bool) -> None:
    cost = {"basis": "odometer", "left": left, "reserved": reserved, "used": 1.9, "budget": 2.0, "against": "server"}
    said = budget_words(cost, 1e-6)
    assert said.endswith("Nothing of the budget is left.") == spent
