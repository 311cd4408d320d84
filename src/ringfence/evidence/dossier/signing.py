"""A dossier's signature, in a file beside it: Ed25519, under the digests of the dossier and of its sources."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from ringfence.errors import CertificateError
from ringfence.protocol import Digest, Document, Public, Signature
from ringfence.shuffler import sealing
from ringfence.storage.files import LARGE_LIMIT, read_file, write_key

# So that a signature cannot be passed off as one of something else.
_PURPOSE = b"ringfence dossier 1\n"


class DossierContent(Document):
    """What is signed: the plan, when, the dossier's files and its sources by SHA-256, and the key that signs."""

    format: Literal[1] = 1
    plan: Digest
    issued: str
    files: dict[str, Digest] = Field(min_length=1)
    sources: dict[str, Digest]
    public_key: Digest


class DossierSignature(Public):
    """The content's bytes as text, and the Ed25519 signature under them."""

    format: Literal[1] = 1
    kind: Literal["ringfence-dossier"] = "ringfence-dossier"
    content: str
    signature: Signature

    newest_format: ClassVar[int] = 1


def signature_path(dossier: Path) -> Path:
    """Return where the signature of a dossier's file stands."""
    return dossier.with_suffix(".signature.json")


def sign(plan: str, dossier: Path, sources: Mapping[str, str], key: bytes) -> bytes:
    """Return the signature's file for a dossier that has been written, and its sources."""
    content = DossierContent(
        plan=plan,
        issued=datetime.now(UTC).isoformat(timespec="seconds"),
        files={dossier.name: _digest(dossier)},
        sources=dict(sources),
        public_key=sealing.verifying_key(key),
    ).content
    return (
        DossierSignature(content=content.decode(), signature=sealing.sign(key, _PURPOSE + content)).canonical() + b"\n"
    )


def read_signature(content: bytes) -> DossierContent:
    """Read a dossier's signature file and check the signature; CertificateError if it does not fit."""
    written = DossierSignature.parse(content, error=CertificateError)
    signed = DossierContent.parse(written.content.encode(), error=CertificateError)
    if not sealing.verify(signed.public_key, _PURPOSE + signed.content, written.signature):
        raise CertificateError(
            "The dossier's signature does not match its content and public key: one of them was changed."
        )
    return signed


def verify_dossier(dossier: Path, signature: Path, *, key: str | None = None) -> DossierContent:
    """Check that the dossier is the one that was signed, by that key if one is given; CertificateError if not."""
    signed = read_signature(read_file(signature, "signature", CertificateError))
    if key is not None and key.strip().lower() != signed.public_key:
        raise CertificateError(f"The dossier was signed with the key {signed.public_key}, not with the one you named.")
    if _digest(dossier) not in signed.files.values():
        raise CertificateError(f"{dossier} is not what was signed: it was changed, or belongs to another dossier.")
    return signed


def make_key(path: Path) -> str:
    """Write a new private key for signing dossiers, which only its owner may read, and return its public key."""
    private = sealing.new_key()
    write_key(path, private)
    return sealing.verifying_key(private)


def _digest(path: Path) -> str:
    """Return the SHA-256 of a dossier's file."""
    return hashlib.sha256(read_file(path, "dossier", CertificateError, LARGE_LIMIT)).hexdigest()
