"""The decisions of a silo's operator. Each takes effect at once, also while the agent runs.

Plans wait for a decision as files in the folder `plans` of the silo's folder, where anybody may put them. That decides
nothing: only an approval does, and it names a plan by its digest, so that a file which is changed after it was read
approves nothing else. A refused plan's file is renamed, not deleted.
"""

import hashlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import WHY, ApprovalError, PlanError, SiloError, os_error_as
from ringfence.protocol import DataChange, Plan, Registration, load_plan
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.operator.review import Review, review
from ringfence.silo.operator.usual_budgets import require_usual
from ringfence.silo.records.repeated_persons import PersonAdvice
from ringfence.storage.chain import Entry
from ringfence.storage.files import read_file, write_private

_SHORTEST = 8
_REVIEWED = 12

MOST_FILES = 100
"""Of more plans that wait, the others are not read: an operator decides on a few."""

MOST_BYTES = 4 * 2**20
"""Bytes of all waiting plans together: reading what was made to be slow must not keep an operator from the page."""


def review_plan(folder: SiloFolder, plan: Plan) -> Review:
    """Return the review of a plan: what it would reveal and cost, and whether the gate would approve it."""
    persons = PersonAdvice(folder.columns())
    with folder.ledger() as ledger:
        records = folder.current_records(ledger, persons.add)
        gate = Gate(records, ledger, folder.key(), limits=folder.limits)
        try:
            gate.check(plan)
            objection = ""
        except ApprovalError as problem:
            objection = str(problem)
        clamped = [] if records.difference(plan.data) else records.clamped_parts(plan.data, plan.data.target)
        return review(plan, ledger.account(), objection, clamped, persons.sentences())


def require_reviewed(plan: Plan, digest: str) -> None:
    """Raise ApprovalError if the digest that the operator reviewed, or its beginning, is not this plan's.

    A file can change between a review and an approval; its digest cannot.
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
    """Approve the plan and reserve its cost; return the review that includes it."""
    with folder.ledger() as ledger:
        Gate(folder.current_records(ledger), ledger, folder.key(), limits=folder.limits).approve(plan, note=note)
        return review(plan, ledger.account(), "")


def end_plan(folder: SiloFolder, which: str, *, revoke: bool, note: str = "") -> str:
    """End a plan, named by its file or the first characters of its digest; return its digest."""
    with folder.ledger() as ledger:
        return _end(ledger, which, revoke=revoke, note=note)


def end_in_ledger(path: Path, which: str, *, note: str = "") -> str:
    """Finish a plan in any ledger's file, such as one that a killed `train` left running."""
    with Ledger.open(path) as ledger:
        return _end(ledger, which, revoke=False, note=note)


def _end(ledger: Ledger, which: str, *, revoke: bool, note: str) -> str:
    """End the plan that the operator names in a ledger, and return its digest."""
    digest = _find(which, ledger.account())
    ledger.end(digest, revoke=revoke, note=note)
    return digest


def set_budget(folder: SiloFolder, budget: Budget, *, note: str = "", unusual_budget: bool = False) -> None:
    """Set the total budget of the silo's data. A larger one must protect somebody, or be confirmed.

    A lower budget is always accepted, without reading the data.
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
    """Continue the ledger with the silo's changed data, by the operator's decision."""
    with folder.ledger() as ledger:
        return custody.update(ledger, folder.records().marks, reason)


def register(folder: SiloFolder, reason: str) -> Registration:
    """Register the silo's ledger on the operator's decision, if the registry or its watermark is lost."""
    with Ledger.open(folder.ledger_path, owner=folder.name, named=True) as ledger:
        return custody.register(ledger, folder.records().marks, reason)


def status(folder: SiloFolder) -> dict[str, Any]:
    """Return the silo's status for its operator: ledger's summary, objection to charging, agent and public key."""
    from ringfence.shuffler.sealing import verifying_key

    with folder.ledger() as ledger:
        objection = custody.objection(ledger)
    return {
        **summarise(folder.ledger_path),
        "objection": objection,
        "serving": folder.is_served(),
        "public_key": verifying_key(folder.key()),
    }


def list_entries(folder: SiloFolder) -> list[dict[str, Any]]:
    """Return every entry of the ledger for the operator, without vectors and plans."""

    def of_plan(entry: Entry) -> dict[str, str]:
        """Return the digest of the plan that an entry approved, for the operator's list of entries."""
        return {"plan": hashlib.sha256(entry.payload).hexdigest()} if entry.kind == "approved" else {}

    with folder.ledger() as ledger:
        return [
            {"number": entry.number, "time": entry.time, "kind": entry.kind, **of_plan(entry), **entry.body}
            for entry in ledger.entries()
        ]


def _find(which: str, account: Account) -> str:
    """Return the digest of the approved plan that the operator names by file or first characters."""
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


@dataclass(frozen=True)
class PendingPlans:
    """The waiting plans and their files by digest, and the unreadable files with the reason."""

    plans: dict[str, Plan]
    files: dict[str, Path]
    unreadable: dict[str, str]


def plans_folder(folder: SiloFolder) -> Path:
    """Return the folder of plans that await the operator's decision; create it, closed to others, if necessary."""
    path = folder.path / "plans"
    with os_error_as(SiloError, f"The folder {path} cannot be made: {WHY}."):
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def pending_plans(folder: SiloFolder, decided: Container[str]) -> PendingPlans:
    """Return the waiting plans, without those whose digest is among the `decided`."""
    found, room = PendingPlans({}, {}, {}), MOST_BYTES
    for path in sorted(plans_folder(folder).glob("*.json"))[:MOST_FILES]:
        try:
            content = read_file(path, "plan", PlanError, room)
            room -= len(content)
            plan = Plan.parse(content, error=PlanError, source=str(path))
        except PlanError as problem:
            found.unreadable[path.name] = str(problem)
            continue
        if plan.digest() not in decided:
            found.plans[plan.digest()] = plan
            found.files[plan.digest()] = path
    return found


def add_pending_plan(folder: SiloFolder, content: bytes) -> Plan:
    """Save a plan among those that await the operator's decision; one that is there already stays as it is."""
    plan = Plan.parse(content, error=PlanError)
    path = plans_folder(folder) / f"{plan.digest()}.json"
    try:
        write_private(path, plan.content, end=b"")  # named by its very bytes
    except FileExistsError:
        pass
    except OSError as problem:
        raise SiloError(f"The plan could not be saved at {path}: {problem.strerror}.") from None
    return plan


def refuse_pending_plan(path: Path) -> None:
    """Rename a waiting plan's file as refused."""
    with os_error_as(SiloError, f"{path} could not be renamed: {WHY}."):
        path.rename(path.with_name(path.name + ".refused"))
