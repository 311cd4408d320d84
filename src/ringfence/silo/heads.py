"""Signing a silo's heads, and knowing one's own again."""

from dataclasses import dataclass
from functools import cached_property

from ringfence.protocol.head import Head, SignedHead
from ringfence.sealed_sums.sealing import sign, verify, verifying_key


@dataclass(frozen=True)
class Heads:
    """The heads of one ledger, under its silo's key; a silo without a key signs none, and knows none."""

    ledger: str
    key: bytes | None

    def sign(self, number: int, hash: str) -> SignedHead | None:
        """Sign that the ledger has this entry."""
        if self.key is None:
            return None
        head = Head(ledger=self.ledger, number=number, hash=hash)
        return SignedHead(**head.model_dump(), signature=sign(self.key, head.signed_bytes()))

    def is_own(self, head: SignedHead) -> bool:
        """Tell whether this silo signed the head, of this ledger."""
        return (
            self.key is not None
            and head.ledger == self.ledger
            and verify(self._verifying_key, head.signed_bytes(), head.signature)
        )

    @cached_property
    def _verifying_key(self) -> str:
        return verifying_key(self.key or b"")
