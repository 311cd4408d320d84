"""The certificate: a silo's signed, public account of everything it ever released, for anybody to check.

It holds the ledger's entries in full but for the released vectors, which stand in it by their hash: the server has
the vectors themselves. No record, and nothing computed from one without noise, is in it.
"""

import json
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ringfence.protocol.plan import Plan, SiloName
from ringfence.protocol.public import Public

Hash: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

_PURPOSE = b"ringfence certificate 1\n"  # so that a signature cannot be passed off as one of something else


class CertifiedEntry(Public):
    """One ledger entry: `body` is its JSON text, `payload` the SHA-256 of its raw bytes, `plan` what they say."""

    number: int = Field(ge=1)
    time: str
    kind: str
    body: str
    payload: Hash
    plan: Plan | None = None
    hash: Hash


class Certificate(Public):
    """All entries of a silo's ledger, what they come to, and the silo's Ed25519 signature under it all.

    `alone_epsilon` is what they come to against a server that works together with the shuffler of plans that trust one.
    """

    format: Literal["ringfence certificate 1"] = "ringfence certificate 1"
    silo: SiloName
    issued: str
    entries: tuple[CertifiedEntry, ...] = Field(min_length=1)
    head: Hash
    epsilon: float = Field(ge=0)
    alone_epsilon: float = Field(ge=0)
    delta: float = Field(gt=0, lt=1)
    charged: int = Field(ge=0)
    released: int = Field(ge=0)
    public_key: Hash
    signature: str = Field(pattern=r"^([0-9a-f]{128})?$")

    def signed_bytes(self) -> bytes:
        """Return what the signature is about: everything but itself."""
        return _PURPOSE + self.model_copy(update={"signature": ""}).canonical()

    def to_file(self) -> bytes:
        """Return the one form in which a certificate is written."""
        return json.dumps(json.loads(self.canonical()), indent=1, sort_keys=True).encode() + b"\n"
