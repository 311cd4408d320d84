"""Seals and signatures on the way from a silo through the shuffler to the server.

A silo seals every message to the server's key and all of them, joined, to the shuffler's: the *envelope*. A seal is
HPKE in base mode (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), with a fresh key for every seal. What it promises:

- Only the holder of the private key can read what is sealed, and a changed byte is noticed.
- A message opens under the plan and round that it was sealed for and no others; so does an envelope, and under its
  silo's name only. A silo that colludes with the server can therefore not hand in another's envelope as its own, by
  which every message of the other would appear twice in the batch and could be recognised.
- A seal's length depends on the content's length alone: `protocol.channels.shuffler.SEALED_EXTRA` bytes more.

HPKE's base mode does not say who sealed: that is what the silo's Ed25519 signature is for.
"""

import json
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from ringfence.errors import MessageError, PlanError
from ringfence.protocol.documents.keys import is_low_order

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_MESSAGE, _ENVELOPE = "ringfence message 1", "ringfence envelope 1"


def new_key() -> bytes:
    """Draw the 32 bytes of a private key for seals or signatures: X25519 and Ed25519 accept any."""
    return os.urandom(32)


def public_key(private: bytes) -> str:
    """Return, in hexadecimal, the X25519 key that others seal to."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def seal_messages(public: str, plan: str, round: int, messages: Sequence[bytes]) -> list[bytes]:
    """Seal each message to the server's key, in the given order."""
    return _seal(public, _binding(_MESSAGE, plan, round), messages)


def open_messages(private: bytes, plan: str, round: int, sealed: Sequence[bytes]) -> list[bytes]:
    """Open a batch's messages with the server's key; MessageError if one of them does not open."""
    return _open(private, _binding(_MESSAGE, plan, round), sealed)


def seal_envelope(public: str, plan: str, round: int, silo: str, content: bytes) -> bytes:
    """Seal a silo's joined messages to the shuffler's key."""
    return _seal(public, _binding(_ENVELOPE, plan, round, silo), [content])[0]


def open_envelope(private: bytes, plan: str, round: int, silo: str, envelope: bytes) -> bytes:
    """Open a silo's envelope with the shuffler's key; MessageError if it does not open."""
    return _open(private, _binding(_ENVELOPE, plan, round, silo), [envelope])[0]


def split_messages(content: bytes, size: int) -> list[bytes]:
    """Split an envelope's joined messages of equal size."""
    if len(content) % size:
        raise MessageError("The joined messages are not of equal size: none of them is used.")
    return [content[start : start + size] for start in range(0, len(content), size)]


def sign(private: bytes, content: bytes) -> str:
    """Return a silo's Ed25519 signature of a sealed update or other content, in hexadecimal."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(content).hex()


def verifying_key(private: bytes) -> str:
    """Return, in hexadecimal, the key that others check the holder's signatures with."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def verify(public: str, content: bytes, signature: str) -> bool:
    """Tell whether the signature is the key holder's and of this content; a key of low order has no holder."""
    try:
        if is_low_order(public):
            return False
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _binding(*parts: str | int) -> bytes:
    """Return HPKE's `info`: a seal opens only where the same is given again."""
    return json.dumps(parts).encode()


def _seal(public: str, info: bytes, contents: Sequence[bytes]) -> list[bytes]:
    """Seal contents to a public key by HPKE; PlanError if it is no X25519 key."""
    try:
        key = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
        return [_SUITE.encrypt(content, key, info) for content in contents]
    except ValueError:  # too short, or one of the few points with which no secret can be agreed
        raise PlanError("A key of the plan is not an X25519 public key: nothing can be sealed to it.") from None


def _open(private: bytes, info: bytes, sealed: Sequence[bytes]) -> list[bytes]:
    """Open sealed contents with a private key by HPKE; MessageError if one does not open."""
    key = X25519PrivateKey.from_private_bytes(private)
    try:
        return [_SUITE.decrypt(content, key, info) for content in sealed]
    except InvalidTag:
        raise MessageError(
            "A seal does not open: it was changed, or made for another key, plan, round or silo. It is not used."
        ) from None
