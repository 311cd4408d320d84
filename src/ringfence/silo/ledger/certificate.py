"""Exporting a silo's certificate: its ledger, without the vectors, under its signature."""

import hashlib
import math
from datetime import UTC, datetime
from pathlib import Path

from ringfence.errors import WHY, LedgerError, OutputError, PlanError, os_error_as
from ringfence.protocol import Plan
from ringfence.protocol.documents.certificate import Certificate, CertifiedEntry, SignedCertificate
from ringfence.shuffler.sealing import sign, verifying_key
from ringfence.silo.folder import SiloFolder
from ringfence.storage.chain import Entry, body_text


def export(folder: SiloFolder, out: Path) -> Certificate:
    """Write the certificate of everything that was ever released from the silo's data to a file."""
    signed = certify(folder)
    with os_error_as(OutputError, f"{out} cannot be written: {WHY}."):
        out.write_bytes(signed.to_file())
    return signed.certificate


def certify(folder: SiloFolder) -> SignedCertificate:
    """Return the signed certificate of the ledger as it stands."""
    key = folder.key()
    with folder.ledger() as ledger:
        account, entries = ledger.look(lambda account: (account, ledger.entries()))
        entries = entries[: account.number]  # another process may have added some since
        spent = account.spent()
    if not all(math.isfinite(cost.epsilon) for cost in spent):
        raise LedgerError(
            f"What silo '{folder.name}' released cannot be bounded at its budget's delta, so there is nothing to "
            "certify: set a budget with a larger delta."
        )
    certificate = Certificate(
        silo=folder.name,
        issued=datetime.now(UTC).isoformat(timespec="seconds"),
        entries=tuple(map(_certified, entries)),
        head=entries[-1].hash,
        spent=spent,
        charged=sum(entry.kind == "charged" for entry in entries),
        released=sum(entry.kind == "released" for entry in entries),
        public_key=verifying_key(key),
    )
    return SignedCertificate(certificate, sign(key, certificate.signed_bytes()))


def _certified(entry: Entry) -> CertifiedEntry:
    """Return a ledger's entry as the certificate shows it: a hash in place of its payload."""
    return CertifiedEntry(
        number=entry.number,
        time=entry.time,
        kind=entry.kind,
        body=body_text(entry.body),
        payload=hashlib.sha256(entry.payload).hexdigest(),
        plan=Plan.parse(entry.payload, error=PlanError) if entry.kind == "approved" else None,
        hash=entry.hash,
    )
