"""What is a budget, which of two allows more, and where one begins to protect almost nobody: exact to the limit."""

import math

import pytest

from ringfence.errors import AccountingError, ApprovalError, LedgerError
from ringfence.protocol import Guarantee
from ringfence.protocol.plan.guarantee import LARGE_EPSILON
from ringfence.silo.ledger.budget import Budget, BudgetUse, basis_of
from ringfence.silo.ledger.ledger import LONGEST_NOTE, decided
from ringfence.silo.operator.usual_budgets import require_usual

DELTA = 1e-6


def limit(epsilon: float, delta: float = DELTA, against: str = "anyone") -> Guarantee:
    return Guarantee.model_validate({"epsilon": epsilon, "delta": delta, "against": against})


def test_a_budget_may_be_as_large_against_the_server_as_against_anyone_and_no_larger() -> None:
    assert Budget(1.0, DELTA, anyone=1.0).limits == (limit(1.0, against="server"), limit(1.0))
    assert Budget(1.0, DELTA, anyone=3.0).epsilon == 1.0
    with pytest.raises(AccountingError, match="cannot be lower"):
        Budget(1.0, DELTA, anyone=math.nextafter(1.0, 0.0))
    with pytest.raises(AccountingError):
        Budget(1.0, DELTA, anyone=0.0)


@pytest.mark.parametrize(
    "limits",
    [
        [limit(1.0, against="server")],
        [limit(1.0), limit(2.0)],
        [limit(1.0, against="server"), limit(1.0, against="server"), limit(2.0)],
        [limit(1.0, against="server"), limit(2.0, 1e-5)],
    ],
    ids=["nothing against anyone", "two against anyone", "two against the server", "two deltas"],
)
def test_limits_that_are_no_budget_are_refused(limits: list[Guarantee]) -> None:
    with pytest.raises(AccountingError, match="one limit per observer, and one delta"):
        Budget.of(limits)


def test_a_budget_is_read_back_from_its_limits() -> None:
    for budget in (Budget(1.0, DELTA), Budget(1.0, DELTA, anyone=3.0)):
        assert Budget.of(budget.limits) == Budget.of(budget.limits[::-1]) == budget


def test_a_budget_covers_itself_and_whatever_is_no_larger_against_any_observer() -> None:
    budget = Budget(1.0, DELTA, anyone=3.0)
    less = math.nextafter(1.0, 0.0)
    assert budget.covers(budget)
    assert budget.covers(Budget(less, DELTA, anyone=3.0))
    assert budget.covers(Budget(1.0, DELTA / 2))
    assert not Budget(less, DELTA, anyone=3.0).covers(budget)
    assert not Budget(1.0, DELTA, anyone=2.999).covers(budget)
    assert not Budget(1.0, DELTA / 2, anyone=3.0).covers(budget)
    assert not Budget(1.0, DELTA).covers(budget)
    assert Budget(3.0, DELTA).covers(budget)


def test_a_raised_budget_is_the_least_that_covers_both() -> None:
    spent = [limit(2.0, 1e-5, "server"), limit(2.5, 1e-5)]
    assert Budget(1.0, DELTA, anyone=3.0).raised(spent) == Budget(2.0, 1e-5, anyone=3.0)
    assert Budget(2.0, DELTA, anyone=2.2).raised([limit(1.0)]) == Budget(2.0, DELTA, anyone=2.2)
    assert Budget(2.0, 1e-4).raised([limit(2.0, 1e-5)]) == Budget(2.0, 1e-4)
    assert Budget(2.0, DELTA).raised([limit(3.0)]) == Budget(3.0, DELTA)


def test_a_budget_is_usual_up_to_the_limits_themselves() -> None:
    require_usual([limit(LARGE_EPSILON), limit(1.0, 1 / 1000)], 1000)
    with pytest.raises(ApprovalError, match="protects almost nobody: epsilon"):
        require_usual([limit(1.0), limit(math.nextafter(LARGE_EPSILON, 100.0))], 1000)
    with pytest.raises(ApprovalError, match="above 1/n for n = 1000"):
        require_usual([limit(1.0), limit(1.0, math.nextafter(1 / 1000, 1.0))], 1000)


def test_a_guarantee_that_is_not_the_first_budget_rests_on_the_odometer() -> None:
    assert basis_of(limit(1.0), limit(1.0), limit(1.0)) == "budget"
    assert basis_of(limit(1.0), limit(1.0), limit(2.0)) == "first-budget"
    assert basis_of(limit(2.0), limit(1.0), limit(2.0)) == "odometer"


def test_a_note_has_a_thousand_characters_at_most() -> None:
    assert LONGEST_NOTE == 1000
    assert decided("n" * 1000)["note"] == "n" * 1000
    assert "note" not in decided("")
    with pytest.raises(LedgerError, match="at most 1000 characters, but this one has 1001"):
        decided("n" * 1001)


def test_a_budget_that_is_used_up_says_by_how_much_and_one_that_is_not_says_what_is_left() -> None:
    assert "Used and reserved are epsilon 1.2 at delta 1e-06, more than the budget of 1: nothing is left." in (
        BudgetUse(limit(1.0), used=0.6, reserved=0.6, left=0.0).words()
    )
    assert BudgetUse(limit(1.0), used=0.5, reserved=0.5, left=0.0).words() == (
        "Of the budget of epsilon 1.000 at delta 1e-06, 0.500 is used, 0.500 is reserved for running plans, 0.000 is "
        "kept for plans that earlier answers may lead to, and 0.000 is left."
    )
    assert "epsilon 20.00 at delta 1e-06, 5.00 is used" in BudgetUse(limit(20.0), 5.0, 0.0, 15.0).words()
    assert BudgetUse(limit(1.0), 0.25, 0.25, 0.125).kept == 0.375
    assert BudgetUse(limit(1.0), 0.75, 0.5, 0.0).kept == 0.0


def test_a_budget_is_written_with_every_limit_and_its_observer() -> None:
    assert str(Budget(1.0, DELTA)) == "epsilon 1 at delta 1e-06"
    assert str(Budget(1.0, DELTA, anyone=3.0)).startswith("epsilon 1 at delta 1e-06, 3 ")
