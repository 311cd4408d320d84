"""A silo's answer on its way through a shuffler: counts, cut into shares, sealed twice and signed."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.protocol.messages import SealedUpdate
from ringfence.protocol.plan import Plan
from ringfence.protocol.shuffle import Shuffle
from ringfence.shuffle import sealing, shares
from ringfence.shuffle.vector_sum import Counts


def public_key(private: bytes) -> str:
    """Return, in hexadecimal, the key that others check the silo's signatures with."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def require_sealable(shuffle: Shuffle) -> None:
    """Raise PlanError if one of the plan's keys is none that can be sealed to: before a round is charged, not after."""
    for key in (shuffle.server_key, shuffle.shuffler_key):
        sealing.seal_messages(key, "", 0, [b""])


def seal(plan: Plan, shuffle: Shuffle, round: int, silo: str, key: bytes, numbers: Counts) -> SealedUpdate:
    """Return the counts in a form that shuffler and server must both hold before anything can be read.

    The server can open what the shuffler lets out, which is mixed; the shuffler cannot open it at all.
    """
    digest = plan.digest()
    messages = sealing.seal_messages(shuffle.server_key, digest, round, shares.split(shuffle, numbers))
    envelope = sealing.seal_envelope(shuffle.shuffler_key, digest, round, silo, b"".join(messages))
    text = base64.b64encode(envelope).decode()
    signature = sealing.sign(key, SealedUpdate.signed_bytes(digest, round, silo, text))
    return SealedUpdate(plan=digest, round=round, silo=silo, envelope=text, signature=signature)
