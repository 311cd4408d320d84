"""Exporting a silo's certificate: its ledger, without the vectors, under its signature."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.errors import OutputError, PlanError
from ringfence.protocol.certificate import Certificate, CertifiedEntry
from ringfence.protocol.plan import Plan
from ringfence.silo.chain import Entry, body_text
from ringfence.silo.house import House
from ringfence.silo.sealed import public_key


def export(house: House, out: Path) -> Certificate:
    """Write the certificate of everything that was ever released from the silo's data."""
    certificate = certify(house)
    try:
        out.write_bytes(certificate.to_file())
    except OSError as problem:
        raise OutputError(f"{out} cannot be written: {problem.strerror}.") from None
    return certificate


def certify(house: House) -> Certificate:
    """Return the signed certificate of the ledger as it stands."""
    key = house.key()
    with house.ledger() as ledger:
        account, entries = ledger.look(lambda account: (account, ledger.entries()))
        entries = entries[: account.tail()[0]]  # another process may have added some since
        epsilon, alone, delta = account.spent(), account.spent_alone(), account.budget.delta
    unsigned = Certificate(
        silo=house.name,
        issued=datetime.now(UTC).isoformat(timespec="seconds"),
        entries=tuple(_certified(entry) for entry in entries),
        head=entries[-1].hash,
        epsilon=epsilon,
        alone_epsilon=alone,
        delta=delta,
        charged=sum(entry.kind == "charged" for entry in entries),
        released=sum(entry.kind == "released" for entry in entries),
        public_key=public_key(key),
        signature="",
    )
    signature = Ed25519PrivateKey.from_private_bytes(key).sign(unsigned.signed_bytes())
    return unsigned.model_copy(update={"signature": signature.hex()})


def _certified(entry: Entry) -> CertifiedEntry:
    return CertifiedEntry(
        number=entry.number,
        time=entry.time,
        kind=entry.kind,
        body=body_text(entry.body),
        payload=hashlib.sha256(entry.payload).hexdigest(),
        plan=Plan.parse(entry.payload, error=PlanError) if entry.kind == "approved" else None,
        hash=entry.hash,
    )
