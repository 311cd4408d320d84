"""Proof that a ledger was rolled back or forked, from what its silo signed.

A ledger only grows: of two of its certificates, the shorter one's entries are the longer one's first, and every head
that its silo signed is one of its entries. Signatures that contradict this are a proof by themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import CertificateError, MessageError
from ringfence.protocol import SignedHead, parse_answer
from ringfence.protocol.documents.certificate import read_certificate
from ringfence.server.transcript import Answered, read_transcript
from ringfence.shuffler import sealing


def require_one_history(files: Sequence[Path]) -> None:
    """Raise CertificateError unless the (verified) certificates are all of one ledger that only grew."""
    certificates = [read_certificate(file.read_bytes()).certificate for file in files]
    longest = max(certificates, key=lambda certificate: len(certificate.entries))
    for certificate in certificates:
        if (certificate.public_key, certificate.entries[0].hash) != (longest.public_key, longest.entries[0].hash):
            raise CertificateError(
                "The certificates are not of the same ledger: they are signed with different keys, or start with "
                "different entries. Compare certificates of the same silo; a silo that started a new ledger must say "
                "why."
            )
        for ours, theirs in zip(certificate.entries, longest.entries, strict=False):
            if ours.hash != theirs.hash:
                raise CertificateError(
                    f"The certificates of silo '{longest.silo}' prove a fork: both are signed with its key, and they "
                    f"differ from entry {ours.number} on ({ours.kind} on {ours.time}, and {theirs.kind} on "
                    f"{theirs.time}). Its ledger was rolled back or copied, and continued twice: the silo's true cost "
                    "is that of both together."
                )


@dataclass(frozen=True)
class TranscriptHeads:
    """What a run's transcript shows about a silo's ledger: heads that match its certificate, and others."""

    heads: int
    elsewhere: int
    """Heads that the silo signed of another ledger."""
    unsigned: int
    """What is not signed with the certificate's key, and proves nothing."""

    def text(self) -> str:
        """Return in words what the transcript's heads add to a certificate, as proof against forks."""
        others = f"; {self.elsewhere} more belong to another ledger of this silo" if self.elsewhere else ""
        others += f"; {self.unsigned} more were not signed with this key, and prove nothing" if self.unsigned else ""
        if not self.heads:
            return f"The transcript holds no head of this ledger, so it proves nothing about it{others}."
        return f"The transcript holds {self.heads} heads of this ledger, and each matches an entry{others}."


def require_transcript_heads(file: Path, folder: Path) -> TranscriptHeads:
    """Raise CertificateError if a run's transcript holds a head that is not an entry of the (verified) certificate."""
    certificate = read_certificate(file.read_bytes()).certificate
    on_it, elsewhere, unsigned = 0, 0, 0
    ledger, entries = certificate.entries[0].hash, certificate.entries
    for head in _signed_heads(certificate.silo, folder):
        if not sealing.verify(certificate.public_key, head.signed_bytes(), head.signature):
            unsigned += 1
        elif head.ledger != ledger:
            elsewhere += 1
        elif head.number > len(entries):
            raise CertificateError(
                f"The silo signed that its ledger had entry {head.number}, but this certificate ends with entry "
                f"{len(entries)}: it is older than the run, or its ledger was rolled back. Ask the silo for a new "
                "certificate; if none holds that entry, this proves that the ledger lost it."
            )
        elif entries[head.number - 1].hash != head.hash:
            raise CertificateError(
                f"The silo signed a different entry {head.number} from the one in this certificate: this proves a "
                "fork. Its ledger was rolled back or copied, and continued twice."
            )
        else:
            on_it += 1
    return TranscriptHeads(on_it, elsewhere, unsigned)


def _signed_heads(silo: str, folder: Path) -> Iterator[SignedHead]:
    """Yield the ledger heads that a silo signed in a run's transcript, to find forks."""
    for entry in read_transcript(folder)[1]:
        if isinstance(entry, Answered) and entry.silo == silo:
            with suppress(MessageError):
                if (head := parse_answer(entry.answer()).head) is not None:
                    yield head
