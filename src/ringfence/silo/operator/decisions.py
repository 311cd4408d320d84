"""What a silo's operator decides, on the silo's folder: each takes effect at once, also while its agent runs."""

import hashlib
from pathlib import Path
from typing import Any

from ringfence.errors import ApprovalError
from ringfence.protocol.custody import DataChange, Registration
from ringfence.protocol.plan import Plan, load_plan
from ringfence.silo import custody
from ringfence.silo.account import Account
from ringfence.silo.budget import Budget
from ringfence.silo.consent import require_usual
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.review import Review, review
from ringfence.silo.summary import summarise

_SHORTEST = 8
_REVIEWED = 12


def review_plan(folder: SiloFolder, plan: Plan) -> Review:
    """Say what the plan would reveal and cost, and whether it would be approved; change nothing."""
    with folder.ledger() as ledger:
        records = folder.current_records(ledger)
        gate = Gate(records, ledger, folder.key(), limits=folder.limits)
        try:
            gate.check(plan)
            objection = ""
        except ApprovalError as problem:
            objection = str(problem)
        clamped = [] if records.difference(plan.data) else records.clamped_parts(plan.data, plan.data.target)
        return review(plan, ledger.account(), objection, clamped)


def require_reviewed(plan: Plan, digest: str) -> None:
    """Raise ApprovalError if the digest, or its beginning, that was read in a review is not this plan's.

    A file can be another between a review and an approval; its digest cannot.
    """
    if len(digest) < _REVIEWED:
        raise ApprovalError(
            f"Give the digest that the review showed, or at least its first {_REVIEWED} characters: '{digest}' is too "
            "short to identify a plan."
        )
    if not plan.digest().startswith(digest.lower()):
        raise ApprovalError(
            f"The file holds plan {plan.digest()}, not the one whose digest begins with '{digest}': it is not what "
            "was reviewed, or the digest belongs to another plan. Nothing was approved; review it again."
        )


def approve_plan(folder: SiloFolder, plan: Plan, *, note: str = "") -> Review:
    """Let the plan's rounds be answered, and reserve their cost."""
    with folder.ledger() as ledger:
        Gate(folder.current_records(ledger), ledger, folder.key(), limits=folder.limits).approve(plan, note=note)
        return review(plan, ledger.account(), "")


def end_plan(folder: SiloFolder, which: str, *, revoke: bool, note: str = "") -> str:
    """Answer no further round of a plan, named by its file or by the first characters of its digest."""
    with folder.ledger() as ledger:
        return _end(ledger, which, revoke=revoke, note=note)


def end_in_ledger(path: Path, which: str, *, note: str = "") -> str:
    """Finish a plan in a ledger's file that need not be in a silo's folder: what a killed `train` left reserved."""
    with Ledger.open(path) as ledger:
        return _end(ledger, which, revoke=False, note=note)


def _end(ledger: Ledger, which: str, *, revoke: bool, note: str) -> str:
    digest = _find(which, ledger.account())
    ledger.end(digest, revoke=revoke, note=note)
    return digest


def set_budget(folder: SiloFolder, budget: Budget, *, note: str = "", unusual_budget: bool = False) -> None:
    """Set the total budget of the silo's data; a larger one than before must be a usual one, or confirmed.

    A lower budget is always accepted, without looking at the data.
    """
    with folder.ledger() as ledger:
        if not unusual_budget and not ledger.account().budget.covers(budget):
            require_usual(budget.limits, len(folder.records()))
        ledger.grant(budget, note=note)


def allow_same_user(folder: SiloFolder) -> None:
    """Let the courier run as a user who can read the silo's private files; the ledger records it for good."""
    with folder.ledger() as ledger:
        ledger.allow_same_user()


def update_data(folder: SiloFolder, reason: str) -> DataChange:
    """Continue the ledger with the silo's data as it is now."""
    with folder.ledger() as ledger:
        return custody.update(ledger, folder.records().marks, reason)


def register(folder: SiloFolder, reason: str) -> Registration:
    """Say that the silo's ledger is that of its data, where the registry does not know."""
    with folder.ledger() as ledger:
        return custody.register(ledger, folder.records().marks, reason)


def status(folder: SiloFolder) -> dict[str, Any]:
    """Return what the ledger says, why it may not be charged (if so), whether an agent is serving, and its key."""
    from ringfence.sealed_sums.sealing import verifying_key

    with folder.ledger() as ledger:
        objection = custody.objection(ledger)
    return {
        **summarise(folder.ledger_path),
        "objection": objection,
        "serving": folder.is_served(),
        "public_key": verifying_key(folder.key()),
    }


def list_entries(folder: SiloFolder) -> list[dict[str, Any]]:
    """Return every entry of the ledger, without the vectors and plans that belong to them."""
    with folder.ledger() as ledger:
        return [
            {"number": entry.number, "time": entry.time, "kind": entry.kind, **_brief(dict(entry.body), entry.payload)}
            for entry in ledger.entries()
        ]


def _brief(body: dict[str, Any], payload: bytes) -> dict[str, Any]:
    if "events" in body:  # an approval: the plan is the payload
        return {"plan": hashlib.sha256(payload).hexdigest(), **body}
    return body


def _find(which: str, account: Account) -> str:
    path = Path(which)
    if path.is_file():
        return load_plan(path).digest()
    found = [digest for digest in account.plans if len(which) >= _SHORTEST and digest.startswith(which.lower())]
    if len(found) != 1:
        raise ApprovalError(
            f"'{which}' is neither a plan's file nor the digest (or at least its first {_SHORTEST} characters) of a "
            f"plan that silo '{account.silo}' has approved; `ringfence silo status` and `ringfence ledger` list them."
        )
    return found[0]
