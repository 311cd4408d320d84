"""An operator's consent: who gave it, in which words, and what nobody grants in passing."""

import os
import pwd
from collections.abc import Sequence

from ringfence.errors import ApprovalError, LedgerError
from ringfence.protocol.guarantee import LARGE_EPSILON, Guarantee
from ringfence.protocol.plan import Plan
from ringfence.silo.budget import Budget

LONGEST_NOTE = 1000


def decided(note: str) -> dict[str, str]:
    """Return what a decision's entry says of who made it: the account's name, and what they added in words, if any."""
    if len(note) > LONGEST_NOTE:
        raise LedgerError(f"A note has at most {LONGEST_NOTE} characters, but this one has {len(note)}: shorten it.")
    return {"by": account_name(), "note": note} if note else {"by": account_name()}


def account_name() -> str:
    """Return the name of the account under which this process decides."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container whose user was given by number
        return f"uid {os.getuid()}"


def require_usual(limits: Sequence[Guarantee], records: int, word: str = "--unusual-budget") -> None:
    """Raise ApprovalError if a budget for that many records protects almost nobody, unless that is intended.

    At epsilon 20, a guess whether a record was there may be wrong with probability 2·10⁻⁹ only. A delta above 1/n
    allows some records to be given away entirely. `word` is how the caller's user confirms such a budget.
    """
    for limit in limits:
        if limit.epsilon > LARGE_EPSILON or limit.delta > 1 / records:
            what = (
                f"epsilon {limit.epsilon:g} is above {LARGE_EPSILON:g}"
                if limit.epsilon > LARGE_EPSILON
                else f"delta {limit.delta:g} is above 1/n for n = {records}"
            )
            raise ApprovalError(
                f"This budget protects almost nobody: {what}. Choose a smaller one, or confirm it with {word}."
            )


def require_usual_plan(plan: Plan, cap: Budget | None = None, *, word: str = "--unusual-budget") -> None:
    """Refuse to grant, in passing, what protects nobody: the guarantees asked for, or a cap on all runs."""
    for terms in plan.silos:
        require_usual([terms.guarantee, *(() if cap is None else cap.limits)], terms.records, word)
