"""A ledger's summary for its operator: plain data, ready to print."""

from collections import Counter
from pathlib import Path
from typing import Any

from ringfence.planning import accountant
from ringfence.planning.events import as_seen_alone
from ringfence.silo.ledger import Account, Approved, Ledger


def summarise(path: Path) -> dict[str, Any]:
    """Verify the ledger and say what was released, when, at what cost, and what is left of the budget.

    `spent` composes every charged event exactly, at the budget's delta; a plan's own epsilon is at its own
    delta, so the plans' numbers do not add up to it. `left` is what one more release may cost on top. What ends in
    `_alone` is the same against a server that works together with the shuffler of plans that trust one.
    """
    with Ledger.open(path) as ledger:
        account = ledger.account()
        entries = ledger.entries()
    spent = account.spent()
    committed = accountant.epsilon(account.reserved(), account.budget.delta)
    committed_alone = accountant.epsilon(as_seen_alone(account.reserved()), account.budget.delta)
    times: dict[str, list[str]] = {}
    for entry in entries:
        if entry.kind == "released":
            times.setdefault(entry.body["plan"], []).append(entry.time)
    return {
        "silo": account.silo,
        "entries": len(entries),
        "chain": "intact",
        "budget": account.budget.as_data(),
        "spent": spent,
        "reserved": max(0.0, committed - spent),
        "left": max(0.0, account.budget.epsilon - committed),
        "spent_alone": account.spent_alone(),
        "left_alone": max(0.0, account.budget.most_alone - committed_alone),
        "plans": [
            _plan(digest, account, approved, times.get(digest, [])) for digest, approved in account.plans.items()
        ],
        "refusals": dict(Counter(entry.body["reason"] for entry in entries if entry.kind == "refused")),
    }


def _plan(digest: str, account: Account, approved: Approved, times: list[str]) -> dict[str, Any]:
    terms = approved.plan.terms(account.silo)
    delta = terms.delta if terms else account.budget.delta
    return {
        "plan": digest,
        "approved": approved.time,
        "state": approved.ended or "running",
        "rounds": approved.plan.exchanges,
        "charged": len(approved.rounds),
        "released": len(times),
        "trust": approved.plan.trust,
        "epsilon": accountant.epsilon(approved.charged(), delta),
        "alone_epsilon": accountant.epsilon(as_seen_alone(approved.charged()), delta),
        "delta": delta,
        "first_release": times[0] if times else "",
        "last_release": times[-1] if times else "",
    }


def describe_entry(entry: dict[str, Any]) -> str:
    """Return what an entry of `decisions.list_entries` is about, in a few words."""
    plan = str(entry.get("plan", ""))[:12]
    match entry["kind"]:
        case "opened":
            return f"silo '{entry['silo']}', {entry['adjacency']}"
        case "budget":
            alone = f", {entry['alone']:g} without a shuffler" if "alone" in entry else ""
            return f"epsilon {entry['epsilon']:g} at delta {entry['delta']:g}{alone}"
        case "ended":
            return f"plan {plan}: {entry['why']}"
        case "refused":
            return f"plan {plan}, round {entry['round']}: {entry['reason']}"
        case "charged" | "released":
            return f"plan {plan}, round {entry['round']}"
        case _:
            return f"plan {plan}"
