"""How this version reads what is remembered outside of ledgers: as `reading.py`, it touches Ringfence's internals."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringfence.deployment.door import CarriedHead
from ringfence.deployment.nvflare import federation, policy
from ringfence.deployment.nvflare import kit as kits
from ringfence.deployment.nvflare.authority import fingerprint
from ringfence.errors import RingfenceError
from ringfence.evidence.forks import require_one_history, require_transcript_heads
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store
from ringfence.shuffler.witness import Witness
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger, watermark
from ringfence.silo.ledger.registry import Registry
from ringfence.silo.operator import decisions
from ringfence.silo.operator.setup import create_folder, make_settings


def _refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except RingfenceError as problem:
        return str(problem)
    return ""


# -- what a user remembers of ledgers --


@contextmanager
def state_home(folder: Path) -> Iterator[None]:
    """Be a user whose state is in this folder."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    try:
        yield
    finally:
        del os.environ["XDG_STATE_HOME"]
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before


def registry_facts() -> dict[str, Any]:
    """Return which ledgers the registry knows, for which silo, of how many records, and which took whose place."""
    with Registry() as registry:
        return {
            identity: {
                "silo": known.silo,
                "records": [version.records for version in known.versions],
                "is_settled": known.settled is not None,
                "successor": known.successor,
            }
            for identity, known in registry.ledgers.items()
        }


def registered_at(ledger: Path) -> Path:
    """Return where the registry says that a ledger is."""
    with Registry() as registry:
        return registry.ledgers[head_of(ledger)[0]].path


def head_of(ledger: Path) -> tuple[str, int, str]:
    """Return what a ledger is known by, and its last entry's number and hash, whether it is the newest or not."""
    with Ledger.open(ledger, marked=False) as opened:
        account = opened.account()
        return account.identity, account.number, account.head


def marked(ledger: Path) -> tuple[int, str]:
    """Return how far the user's watermark says that a ledger had come."""
    with watermark(head_of(ledger)[0], 0, "0" * 64) as mark:
        return mark.read()


def carried(door: str) -> dict[str, Any]:
    """Return the head that a courier carried out of a door."""
    head: dict[str, Any] = json.loads(CarriedHead(door).read() or "{}")
    return head


def agent_objection(folder: Path) -> str:
    """Say why a silo's agent would not start; nothing if it would."""

    def start() -> None:
        silo_folder = SiloFolder.open(folder)
        with silo_folder.ledger() as ledger:
            silo_folder.current_records(ledger)

    return _refusal(start)


def second_ledger_objection(folder: Path, another: Path, data: Path | None = None, schema: Path | None = None) -> str:
    """Say why there can be no second silo for the same records, or for a file made of them; nothing if there can."""
    settings = SiloFolder.open(folder).settings
    files = {"data_file": str(data or settings.data_file), "schema_file": str(schema or settings.schema_file)}
    made = make_settings(name="another", **files)
    return _refusal(lambda: create_folder(another, made, Budget(1.0, 1e-6)))


def register(folder: Path) -> None:
    """Let a silo's operator say that its ledger is that of its data."""
    decisions.register(SiloFolder.open(folder), "")


# -- what silos signed, and what a shuffler's witness saw --


def fork(*certificates: Path) -> str:
    """Say how these certificates contradict each other; nothing if they are of one ledger that only grew."""
    return _refusal(lambda: require_one_history(certificates))


def heads_shown(certificate: Path, run: Path) -> dict[str, int]:
    """Return how many heads in a run's transcript are entries of the certificate, and how many are anything else."""
    return vars(require_transcript_heads(certificate, run))


def shuffler_objection(folder: Path) -> str:
    """Say why a shuffler may not be served by this user; nothing if it may."""
    with Store(folder) as store:
        return _refusal(Shuffler(store, witness=Witness(store)).settle)


# -- federations and their kits --


def kit_faults(kit: Path, folder: Path) -> str:
    """Say what a silo's kit allows that it may not; nothing if it may run."""
    for part in ("startup", "local"):
        (kit / part).chmod(0o700)
    try:
        policy.check_policy(kit, folder)
    except Exception as problem:
        return str(problem)
    return ""


def administrator(kit: Path) -> str:
    """Return who an administrator's kit is for."""
    return kits.user_of(kit)


def federation_facts(folder: Path) -> dict[str, Any]:
    """Return who takes part in a federation, by its organiser's folder, and its authority."""
    found = federation.read_federation(folder)
    response = kits.Response.read(folder / "north.response")
    return {
        "server": found.server,
        "silos": list(found.silos),
        "administrator": federation.admin_user(found.admin),
        "response": [response.server, fingerprint(response.root.public_key())],
    }


def renewed(folder: Path, kit: Path, silo: Path) -> str:
    """Sign a silo's request again, let its kit join with the response, and say what the kit then allows too much."""
    response, _ = federation.sign_requests(folder, folder / "north.request")
    for file in ("resources.json", "authorization.json", "ringfence.toml"):
        (kit / "local" / file).unlink()
    policy.join_kit(silo, kit, kits.Response.read(response), same_user=True)
    return kit_faults(kit, silo)
