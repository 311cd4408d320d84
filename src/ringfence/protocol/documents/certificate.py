"""The certificate: a silo's signed, public account of everything it ever released, for anybody to check.

It holds the ledger's entries in full but for the released vectors, which stand in it by their hash: the server has
the vectors themselves. No record, and nothing computed from one without noise, is in it. What is signed is the
certificate's own bytes, which its file carries as they are.
"""

import json
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, ValidationError

from ringfence.errors import CertificateError
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.head import Signature
from ringfence.protocol.plan import EmbeddedPlan
from ringfence.protocol.public import Digest, Document, Public, SiloName, canonical_json, explain, format_of
from ringfence.storage.formats import require_known_format

# So that a signature cannot be passed off as one of something else.
_PURPOSE_1, _PURPOSE = b"ringfence certificate 1\n", b"ringfence certificate 2\n"

_LIMIT = 2**30


class CertifiedEntry(Public):
    """One ledger entry: `body` is its JSON text, `payload` the SHA-256 of its raw bytes, `plan` what they say."""

    number: int = Field(ge=1)
    time: str
    kind: str
    body: str
    payload: Digest
    plan: EmbeddedPlan | None = None
    hash: Digest


class Certificate(Document):
    """All entries of a silo's ledger, what they cost in total against each observer, and the key that signs it."""

    newest_format: ClassVar[int] = 2

    format: Literal[2] = 2
    silo: SiloName
    issued: str
    entries: tuple[CertifiedEntry, ...] = Field(min_length=1)
    head: Digest
    spent: tuple[Guarantee, ...] = Field(min_length=1)
    charged: int = Field(ge=0)
    released: int = Field(ge=0)
    public_key: Digest

    def signed_bytes(self) -> bytes:
        """Return what the signature is about."""
        return _PURPOSE + self.content


class CertificateFile(Public):
    """A certificate's bytes as text, and the Ed25519 signature under them."""

    newest_format: ClassVar[int] = 2

    format: Literal[2] = 2
    kind: Literal["ringfence-certificate"] = "ringfence-certificate"
    content: str
    signature: Signature


class SignedCertificate(NamedTuple):
    """A certificate, the bytes that were signed, and the signature under them."""

    certificate: Certificate
    signed: bytes
    signature: str

    def to_file(self) -> bytes:
        """Return the one form in which a certificate is written."""
        written = CertificateFile(content=self.certificate.content.decode(), signature=self.signature)
        return written.canonical() + b"\n"


def read_certificate(content: bytes) -> SignedCertificate:
    """Read a certificate's file, of any format; CertificateError if it is not one. Its content is not checked yet."""
    stated = format_of(content) if len(content) <= _LIMIT else 0
    require_known_format("certificate", stated, CertificateFile.newest_format, CertificateError)
    if stated == 1:
        return _read_format_1(content)
    written = CertificateFile.parse(content, error=CertificateError, limit=_LIMIT)
    _require_form(content, written.canonical() + b"\n")
    certificate = Certificate.parse(written.content.encode(), error=CertificateError, limit=_LIMIT)
    return SignedCertificate(certificate, certificate.signed_bytes(), written.signature)


def _require_form(content: bytes, written: bytes) -> None:
    """Refuse a file that says the same in other bytes: whatever was changed in a certificate is to show."""
    if content != written:
        raise CertificateError(
            "The certificate's content is right, but the file was rewritten (spaces, order or spelling): ask for the "
            "file as the silo exported it."
        )


class _CertificateFormat1(Public):
    """The fields of version 0.1.0: `epsilon` is against a server without shuffler, `alone_epsilon` against anyone."""

    format: Literal["ringfence certificate 1"] = "ringfence certificate 1"
    silo: SiloName
    issued: str
    entries: tuple[CertifiedEntry, ...] = Field(min_length=1)
    head: Digest
    epsilon: float = Field(ge=0)
    alone_epsilon: float = Field(ge=0)
    delta: float = Field(gt=0, lt=1)
    charged: int = Field(ge=0)
    released: int = Field(ge=0)
    public_key: Digest
    signature: Signature


def _read_format_1(content: bytes) -> SignedCertificate:
    """Read a certificate that is its own file, signed as canonical JSON with an empty signature."""
    try:
        former = _CertificateFormat1.model_validate_json(content)
        raw: dict[str, Any] = json.loads(content)
    except ValidationError as refused:
        raise CertificateError(f"This is not a valid Certificate: {explain(refused)}.") from None
    except (RecursionError, ValueError):
        raise CertificateError("This is not a valid Certificate: it is nested too deeply, or is not JSON.") from None
    _require_form(content, json.dumps(raw, indent=1, sort_keys=True).encode() + b"\n")
    certificate = Certificate(
        silo=former.silo,
        issued=former.issued,
        entries=former.entries,
        head=former.head,
        spent=(
            Guarantee(epsilon=former.epsilon, delta=former.delta, against="server"),
            Guarantee(epsilon=former.alone_epsilon, delta=former.delta, against="anyone"),
        ),
        charged=former.charged,
        released=former.released,
        public_key=former.public_key,
    )
    return SignedCertificate(certificate, _PURPOSE_1 + canonical_json({**raw, "signature": ""}), former.signature)
