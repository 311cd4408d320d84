"""A ledger's summary for its operator: plain data, ready to print."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringfence.accounting.charges import costs
from ringfence.errors import visible
from ringfence.protocol import Guarantee
from ringfence.protocol.documents.custody import remarks
from ringfence.protocol.plan.plan import fewest_colluders, protected_by
from ringfence.silo.ledger.budget import BASIS_WORDS, BudgetUse, read_budget
from ringfence.silo.ledger.history import Account, ApprovedPlan
from ringfence.silo.ledger.ledger import Ledger


def summarise(path: Path) -> dict[str, Any]:
    """Verify the ledger and return what was released, when, at what cost, and what is left of the budget.

    Costs and budget are for each `unit`, against each kind of observer. `guarantee` holds for all releases together,
    whenever you stop, and `basis` says what it rests on. At the budget's delta, `used`, `reserved`, `kept` and `left`
    add up to `budget` (`BudgetUse`). A plan's own cost is at its own delta, so plans do not add up to `used`.
    `colluders` is the number of other silos that may collude with the server for its costs to hold: the least that a
    plan names.
    """
    with Ledger.open(path) as ledger:
        account = ledger.account()
        entries = ledger.entries()
    times: dict[str, list[str]] = {}
    for entry in entries:
        if entry.kind == "released":
            times.setdefault(entry.body["plan"], []).append(entry.time)
    return {
        "silo": account.silo,
        "entries": len(entries),
        "chain": "intact",
        "unit": protected_by(account.approved_plans),
        "delta": account.budget.delta,
        "colluders": fewest_colluders(account.approved_plans),
        "costs": [
            {
                "against": guarantee.against,
                "guarantee": {"epsilon": guarantee.epsilon, "delta": guarantee.delta},
                "basis": basis,
                **use.as_data(),
            }
            for guarantee, basis, use in zip(account.guarantees(), account.bases(), account.uses(), strict=True)
        ],
        "plans": [
            _plan(digest, account, approved, times.get(digest, [])) for digest, approved in account.plans.items()
        ],
        "remarks": account.remarks,
        "same_user": account.same_user,
        "refusals": dict(Counter(entry.body["reason"] for entry in entries if entry.kind == "refused")),
    }


def budget_words(cost: Mapping[str, Any], delta: float) -> str:
    """Return how a guarantee in the summary is related to the budget, and what has become of the budget."""
    if cost["basis"] == "odometer" and not cost["left"] and not cost["reserved"]:
        return f"{BASIS_WORDS['odometer']} Nothing of the budget is left."
    limit = Guarantee(epsilon=cost["budget"], delta=delta, against=cost["against"])
    use = BudgetUse(limit, cost["used"], cost["reserved"], cost["left"])
    return f"{BASIS_WORDS[cost['basis']]} {use.words()}"


def _plan(digest: str, account: Account, approved: ApprovedPlan, times: list[str]) -> dict[str, Any]:
    """Describe an approved plan for the summary of a ledger: its state, rounds and costs."""
    terms = approved.plan.terms(account.silo)
    delta = terms.guarantee.delta if terms else account.budget.delta
    return {
        "plan": digest,
        "approved": approved.time,
        "state": approved.ended or "running",
        "rounds": approved.plan.rounds,
        "charged": len(approved.rounds),
        "released": len(times),
        "trust": approved.plan.trust,
        "colluders": approved.plan.most_colluders,
        "costs": [cost.model_dump() for cost in costs(approved.charged(), approved.plan.observers, delta)],
        "first_release": times[0] if times else "",
        "last_release": times[-1] if times else "",
    }


def describe_entry(entry: dict[str, Any]) -> str:
    """Return one line about an entry of `decisions.list_entries`, for the ledger's summary: subject and decider."""
    said = remarks(entry["kind"], {name: entry[name] for name in entry.keys() - {"number", "time", "kind"}})
    is_budget = entry["kind"] == "budget"
    subject = str(read_budget(entry)) if is_budget else _SUBJECTS.get(entry["kind"], "plan {plan:.12}").format(**entry)
    about = " ".join([subject, *said]).strip()
    if "by" in entry and not said:  # else the remark says it
        about += f", by {entry['by']}"
    if "note" in entry:
        about += f": “{entry['note']}”"
    return visible(about)


_SUBJECTS = {
    "opened": "silo '{silo}', {adjacency}",
    "registered": "",
    "data": "",
    "ended": "plan {plan:.12}: {why}",
    "used": "{use} the model of plan {plan:.12} inside the silo; nothing left it and nothing is charged",
    "courier": "the courier may run as a user who can read the data",
    "refused": "plan {plan:.12}, round {round}: {reason}",
    "charged": "plan {plan:.12}, round {round}",
    "released": "plan {plan:.12}, round {round}",
}
"""The subject of an entry in words, by its kind; of any other kind, it is the plan."""
