"""The certificate: a silo's signed, public account of everything it ever released, for anybody to check.

It holds the ledger's entries in full but for the released vectors, which stand in it by their hash: the server has
the vectors themselves. No record, and nothing computed from one without noise, is in it. What is signed is the
certificate's own bytes, which its file carries as they are.
"""

from typing import Literal, NamedTuple

from pydantic import Field

from ringfence.errors import CertificateError
from ringfence.protocol.documents.messages import Signature
from ringfence.protocol.plan.guarantee import Guarantee
from ringfence.protocol.plan.plan import EmbeddedPlan
from ringfence.protocol.public import Digest, Document, Public, SiloName
from ringfence.storage.files import LARGE_LIMIT

# Keeps the signature from being taken for one of something else.
_PURPOSE = b"ringfence certificate 1\n"


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

    format: Literal[1] = 1
    silo: SiloName
    issued: str
    entries: tuple[CertifiedEntry, ...] = Field(min_length=1)
    head: Digest
    spent: tuple[Guarantee, ...] = Field(min_length=1)
    charged: int = Field(ge=0)
    released: int = Field(ge=0)
    public_key: Digest

    def signed_bytes(self) -> bytes:
        """Return the bytes of the certificate that its signature covers."""
        return _PURPOSE + self.content


class CertificateFile(Public):
    """A certificate's bytes as text, and the Ed25519 signature under them."""

    format: Literal[1] = 1
    kind: Literal["ringfence-certificate"] = "ringfence-certificate"
    content: str
    signature: Signature


class SignedCertificate(NamedTuple):
    """A certificate and the signature under it."""

    certificate: Certificate
    signature: str

    def to_file(self) -> bytes:
        """Return the one form in which a certificate is written."""
        written = CertificateFile(content=self.certificate.content.decode(), signature=self.signature)
        return written.canonical() + b"\n"


def read_certificate(content: bytes) -> SignedCertificate:
    """Read a certificate's file; CertificateError if it is not one. Its content is not checked yet."""
    written = CertificateFile.parse(content, error=CertificateError, limit=LARGE_LIMIT)
    certificate = Certificate.parse(written.content.encode(), error=CertificateError, limit=LARGE_LIMIT)
    return SignedCertificate(certificate, written.signature)
