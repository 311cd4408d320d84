"""The only things that cross the wire: a request; a noisy update, open or sealed; a refusal; a shuffler's batch."""

import base64
import hashlib
import json
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ringfence.errors import MessageError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.head import Signature, SignedHead
from ringfence.protocol.public import Base64, Digest, Public, SiloName, canonical_json, explain, format_of
from ringfence.storage.formats import require_known_format

SIZE_LIMIT = 64 * 2**20
"""The longest message that is read: a vector of about six million numbers."""

_FRAME = 4096  # more than a message has around its content


def written_length(content: int) -> int:
    """Return the most bytes of a message whose content has that many bytes, written as text."""
    return _FRAME + 4 * -(-content // 3)


def _is_whole(text: str) -> str:
    if len(base64.b64decode(text)) % 8:
        raise ValueError("not a whole number of 8-byte floats")
    return text


def _is_not_empty(text: str) -> str:
    if not text:
        raise ValueError("not a whole number of 8-byte floats")
    return text


MOST_HEADS = 1000
"""The most heads that a request carries, one per silo."""

Argument: TypeAlias = Annotated[Base64, AfterValidator(_is_whole)]
"""Little-endian float64 numbers in base64, or none: exact, compact, and equal bytes for equal numbers."""

Vector: TypeAlias = Annotated[Argument, AfterValidator(_is_not_empty)]
"""Such numbers, at least one."""


def pack(array: FloatArray) -> str:
    """Write an array as a message's vector."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode()


def unpack(vector: str) -> FloatArray:
    """Read a message's vector; the result may hold NaN or infinity if the sender put them there."""
    return np.frombuffer(base64.b64decode(vector), dtype="<f8").astype(np.float64)


class _Message(Public):
    longest: ClassVar[int] = SIZE_LIMIT

    plan: Digest
    round: int = Field(ge=0, le=2**53)

    def canonical(self) -> bytes:
        """Leave out unset fields: a message without a head has the same bytes as before heads existed."""
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    def to_bytes(self) -> bytes:
        """Return the message's canonical bytes."""
        return self.canonical()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a message, or raise MessageError with a reason that quotes nothing."""
        return cls.parse(content, error=MessageError, limit=cls.longest, quote=False)


class RoundRequest(_Message):
    """Server to silo: your noisy gradient at these weights, please. A silo treats it as hostile.

    A plan without a model sends no weights. `heads` are the latest that the server holds of the silos it asks: a silo
    looks for its own among them.
    """

    kind: Literal["request"] = "request"
    weights: Argument
    heads: tuple[SignedHead, ...] | None = Field(default=None, min_length=1, max_length=MOST_HEADS)

    @classmethod
    def at(cls, plan: str, round: int, weights: FloatArray) -> Self:
        """Ask for the given round of the plan with that digest."""
        return cls(plan=plan, round=round, weights=pack(weights))


class NoisyUpdate(_Message):
    """Silo to server: the one vector, noise included."""

    kind: Literal["update"] = "update"
    silo: SiloName
    vector: Vector
    head: SignedHead | None = None
    """That the round was charged; like `SealedUpdate.head` and `Refusal.head`, of silos that have a key."""


class SealedUpdate(_Message):
    """Silo to shuffler, by any route: a round's counts in sealed shares, which the shuffler mixes with others'.

    `envelope` is sealed to the shuffler's key and holds messages sealed to the server's; `signature` is the silo's
    (Ed25519), so that nobody else can answer in its name.
    """

    kind: Literal["sealed"] = "sealed"
    silo: SiloName
    envelope: Base64
    signature: Signature
    head: SignedHead | None = None

    @staticmethod
    def signed_bytes(plan: str, round: int, silo: str, envelope: str) -> bytes:
        """Return what the silo signs."""
        content = ["ringfence sealed update 1", plan, round, silo, hashlib.sha256(envelope.encode()).hexdigest()]
        return json.dumps(content).encode()


class RefusalReason(StrEnum):
    """Why a silo refuses. No reason depends on a record's value."""

    MALFORMED = "malformed"
    NOT_APPROVED = "not-approved"
    REVOKED = "revoked"
    ROUND_OUT_OF_RANGE = "round-out-of-range"
    ROUND_PASSED = "round-passed"
    ROUND_ANSWERED = "round-answered"
    ROUND_LOST = "round-lost"
    TURNS_TAKEN = "turns-taken"
    OUTSIDE_DOMAIN = "outside-domain"
    BUDGET = "budget"
    UNAVAILABLE = "unavailable"
    FORGOTTEN = "forgotten"

    @property
    def explanation(self) -> str:
        """The reason as a sentence, with what the server can do about it."""
        return _EXPLANATIONS[self]

    @property
    def is_final(self) -> bool:
        """Whether it is pointless to ask this silo again in a later round of the same plan."""
        return self in (
            RefusalReason.NOT_APPROVED,
            RefusalReason.REVOKED,
            RefusalReason.BUDGET,
            RefusalReason.FORGOTTEN,
        )


_EXPLANATIONS = {
    RefusalReason.MALFORMED: "The weights have the wrong shape or are not finite; send the plan's dimension.",
    RefusalReason.NOT_APPROVED: "This silo's operator has not approved a plan with this digest.",
    RefusalReason.REVOKED: "This silo's operator has revoked the plan; nothing more will be answered.",
    RefusalReason.ROUND_OUT_OF_RANGE: "The plan has no such round.",
    RefusalReason.ROUND_PASSED: "A later round was already answered, and rounds only go forward.",
    RefusalReason.ROUND_ANSWERED: "This round was answered for other weights; ask the next round.",
    RefusalReason.ROUND_LOST: "This round was charged, but its answer was lost in a crash; ask the next round.",
    RefusalReason.TURNS_TAKEN: "This silo has answered as many rounds of the stage as the plan allows; ask others.",
    RefusalReason.OUTSIDE_DOMAIN: "The weights lie outside the plan's domain; project them first.",
    RefusalReason.BUDGET: "The budget of this silo's data set does not cover another round.",
    RefusalReason.UNAVAILABLE: "The silo cannot write its ledger or read its records now; nothing was released.",
    RefusalReason.FORGOTTEN: "This silo's ledger lacks an entry that the silo signed; its operator must restore it.",
}


class Refusal(_Message):
    """Silo to server: no, and why, in public terms."""

    kind: Literal["refusal"] = "refusal"
    silo: SiloName
    reason: RefusalReason = Field(strict=False)
    head: SignedHead | None = None


class Batch(_Message):
    """Shuffler to server: all messages of one round, sealed to the server's key, in random order."""

    longest: ClassVar[int] = 2**31

    silos: int = Field(ge=1)
    messages: Base64


Answer: TypeAlias = NoisyUpdate | SealedUpdate | Refusal

_ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def parse_answer(content: bytes) -> Answer:
    """Read what a silo sent, or raise MessageError."""
    if len(content) > SIZE_LIMIT:
        raise MessageError(f"An answer of {len(content)} bytes is longer than the {SIZE_LIMIT} allowed.")
    require_known_format("message", format_of(content), 1, MessageError)
    try:
        return _ANSWER.validate_json(content)
    except ValidationError as refused:
        raise MessageError(f"This is not a silo's answer: {explain(refused, quote=False)}.") from None
