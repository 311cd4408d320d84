"""What a silo's operator decides, on the silo's folder: each takes effect at once, also while its agent runs."""

import hashlib
from pathlib import Path
from typing import Any

from ringfence.errors import ApprovalError
from ringfence.protocol.custody import DataChange, Registration
from ringfence.protocol.plan import Plan, load_plan
from ringfence.silo import custody
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Account, Budget
from ringfence.silo.review import Review, review
from ringfence.silo.summary import summarise

_SHORTEST = 8


def review_plan(folder: SiloFolder, plan: Plan) -> Review:
    """Say what the plan would reveal and cost, and whether it would be approved; change nothing."""
    with folder.ledger() as ledger:
        gate = Gate(folder.current_records(ledger), ledger, folder.key())
        try:
            gate.check(plan)
            objection = ""
        except ApprovalError as problem:
            objection = str(problem)
        return review(plan, ledger.account(), objection)


def approve_plan(folder: SiloFolder, plan: Plan) -> Review:
    """Let the plan's rounds be answered, and reserve their cost."""
    with folder.ledger() as ledger:
        Gate(folder.current_records(ledger), ledger, folder.key()).approve(plan)
        return review(plan, ledger.account(), "")


def end_plan(folder: SiloFolder, which: str, *, revoke: bool) -> str:
    """Answer no further round of a plan, named by its file or by the first characters of its digest."""
    with folder.ledger() as ledger:
        digest = _find(which, ledger.account())
        ledger.end(digest, revoke=revoke)
        return digest


def set_budget(folder: SiloFolder, budget: Budget) -> None:
    """Set the total budget of the silo's data."""
    with folder.ledger() as ledger:
        ledger.grant(budget)


def update_data(folder: SiloFolder, reason: str) -> DataChange:
    """Let the ledger go on for the silo's data as it is now."""
    with folder.ledger() as ledger:
        return custody.update(ledger, folder.records().marks, reason)


def register(folder: SiloFolder, reason: str) -> Registration:
    """Say that the silo's ledger is that of its data, where the registry does not know."""
    with folder.ledger() as ledger:
        return custody.register(ledger, folder.records().marks, reason)


def status(folder: SiloFolder) -> dict[str, Any]:
    """Return what stands in the ledger, whether an agent serves the folder, and the key that signs certificates."""
    from ringfence.sealed_sums.sealing import verifying_key

    return {**summarise(folder.ledger_path), "serving": folder.is_served(), "public_key": verifying_key(folder.key())}


def list_entries(folder: SiloFolder) -> list[dict[str, Any]]:
    """Return every entry of the ledger, without the vectors and plans that belong to them."""
    with folder.ledger() as ledger:
        return [
            {"number": entry.number, "time": entry.time, "kind": entry.kind, **_brief(dict(entry.body), entry.payload)}
            for entry in ledger.entries()
        ]


def _brief(body: dict[str, Any], payload: bytes) -> dict[str, Any]:
    if "events" in body:  # an approval: the plan is the payload
        return {"plan": hashlib.sha256(payload).hexdigest(), "events": body["events"]}
    return body


def _find(which: str, account: Account) -> str:
    path = Path(which)
    if path.is_file():
        return load_plan(path).digest()
    found = [digest for digest in account.plans if len(which) >= _SHORTEST and digest.startswith(which.lower())]
    if len(found) != 1:
        raise ApprovalError(
            f"'{which}' is neither a plan's file nor the digest, or its first {_SHORTEST} characters or more, of one "
            f"plan that silo '{account.silo}' has approved; `ringfence silo status` lists them."
        )
    return found[0]
