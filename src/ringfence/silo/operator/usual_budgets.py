"""Budgets that protect somebody: others are granted only if the user confirms them."""

from collections.abc import Sequence

from ringfence.errors import ApprovalError
from ringfence.protocol import Guarantee, Plan
from ringfence.protocol.plan.guarantee import LARGE_EPSILON
from ringfence.silo.ledger.budget import Budget


def require_usual(limits: Sequence[Guarantee], records: int, word: str = "--unusual-budget") -> None:
    """Raise ApprovalError if a budget for that many records protects almost nobody, unless that is intended.

    At epsilon 20, a guess whether a record was there may be wrong with probability 2·10⁻⁹ only. A delta above 1/n
    allows some records to be given away entirely. `word` is how the caller's user confirms such a budget.
    """
    for limit in limits:
        if limit.epsilon > LARGE_EPSILON:
            excess = f"epsilon {limit.epsilon:g} is above {LARGE_EPSILON:g}"
        elif limit.delta > 1 / records:
            excess = f"delta {limit.delta:g} is above 1/n for n = {records}"
        else:
            continue
        raise ApprovalError(
            f"This budget protects almost nobody: {excess}. Choose a smaller one, or confirm it with {word}."
        )


def require_usual_plan(plan: Plan, cap: Budget | None = None, *, word: str = "--unusual-budget") -> None:
    """Refuse to grant, in passing, what protects nobody: the guarantees asked for, or a cap on all runs."""
    for terms in plan.silos:
        require_usual([terms.guarantee, *(() if cap is None else cap.limits)], terms.records, word)
