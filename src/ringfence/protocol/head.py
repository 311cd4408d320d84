"""A ledger's head under its silo's signature: numbers and a hash, by which anyone can later show what a ledger held.

A head says that the ledger had that many entries, the last with this hash. Nothing in it is computed from a record.
Whoever holds one (a server's transcript, a courier, an auditor) can prove with it that a ledger was rolled back to an
older state, and cannot forge one.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ringfence.protocol.public import Digest, Public, canonical_json

Signature: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
"""An Ed25519 signature in hexadecimal."""

# So that a signature cannot be passed off as one of something else.
_PURPOSE = b"ringfence head 1\n"


class Head(Public):
    """An entry that a ledger has: its number and hash, and the hash of the ledger's first entry, by which it is known.

    In a ledger that only grows, a later head's number is larger.
    """

    format: Literal[1] = 1
    ledger: Digest
    number: int = Field(ge=1, le=2**53)
    hash: Digest

    def signed_bytes(self) -> bytes:
        """Return what the silo signs."""
        return _PURPOSE + canonical_json([self.ledger, self.number, self.hash])


class SignedHead(Head):
    """A head, and its silo's signature under it."""

    signature: Signature
