"""All that crosses the wire: requests, noisy updates (open or sealed), refusals, batches, and signed heads."""

import base64
import hashlib
import json
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from ringfence.errors import MessageError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.public import Base64, Digest, Public, SiloName, canonical_json, explain, format_of
from ringfence.storage.files import require_known_format

Signature: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
"""An Ed25519 signature in hexadecimal."""

# Keeps the signature from being taken for one of something else.
_PURPOSE = b"ringfence head 1\n"


class Head(Public):
    """An entry that a ledger has: its number and hash, and the hash of the ledger's first entry, by which it is known.

    In a ledger that only grows, a later head's number is larger. Nothing in a head is computed from a record. A
    party that holds a signed one (a server's transcript, a courier, an auditor) can prove by it that a ledger was
    rolled back.
    """

    format: Literal[1] = 1
    ledger: Digest
    number: int = Field(ge=1, le=2**53)
    hash: Digest

    def signed_bytes(self) -> bytes:
        """Return the bytes of a message's head that the silo signs."""
        return _PURPOSE + canonical_json([self.ledger, self.number, self.hash])


class SignedHead(Head):
    """A head, and its silo's signature under it."""

    signature: Signature


SIZE_LIMIT = 64 * 2**20
"""The longest message that is read: a vector of about six million numbers."""

_FRAME = 4096  # more than a message has around its content


def written_length(content: int) -> int:
    """Return an upper bound on the length of a message with that many bytes of content, as base64."""
    return _FRAME + 4 * -(-content // 3)


def _is_whole(text: str) -> str:
    """Refuse a message's vector that is not a whole number of 8-byte floats."""
    if len(base64.b64decode(text)) % 8:
        raise ValueError("not a whole number of 8-byte floats")
    return text


def _is_not_empty(text: str) -> str:
    """Refuse an empty vector in a message."""
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

    def to_bytes(self) -> bytes:
        """Write a message as canonical JSON."""
        return self.canonical()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a message, or raise MessageError with a reason that quotes nothing."""
        return cls.parse(content, error=MessageError, limit=cls.longest, quote=False)


class RoundRequest(_Message):
    """Server to silo: a round and the query's argument, such as the weights of a gradient. A silo treats it as hostile.

    `heads` are the latest that the server holds of the silos it asks; a silo checks its own.
    """

    kind: Literal["request"] = "request"
    argument: Argument
    heads: tuple[SignedHead, ...] | None = Field(default=None, min_length=1, max_length=MOST_HEADS)

    @classmethod
    def at(cls, plan: str, round: int, argument: FloatArray) -> Self:
        """Ask for the given round of the plan with that digest."""
        return cls(plan=plan, round=round, argument=pack(argument))


class NoisyUpdate(_Message):
    """Silo to server: the one vector, noise included."""

    kind: Literal["update"] = "update"
    silo: SiloName
    vector: Vector
    head: SignedHead | None = None
    """Proof that the round was charged; silos without a key send none."""


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
        """Return the bytes that the silo signs in the message with its sealed envelope."""
        content = ["ringfence sealed update 1", plan, round, silo, hashlib.sha256(envelope.encode()).hexdigest()]
        return json.dumps(content).encode()


class ExplainedReason(StrEnum):
    """A reason, and the same as a sentence, with what can be done about it."""

    explanation: str

    def __new__(cls, value: str, explanation: str) -> Self:
        """Give every reason in a refusal message its explanation."""
        member = str.__new__(cls, value)
        member._value_, member.explanation = value, explanation
        return member


class RefusalReason(ExplainedReason):
    """Why a silo refuses. No reason depends on a record's value."""

    MALFORMED = "malformed", "The weights have the wrong shape or are not finite; send the plan's dimension."
    NOT_APPROVED = "not-approved", "This silo's operator has not approved a plan with this digest."
    REVOKED = "revoked", "This silo's operator has revoked the plan; nothing more will be answered."
    ROUND_OUT_OF_RANGE = "round-out-of-range", "The plan has no such round."
    ROUND_PASSED = "round-passed", "A later round was already answered, and rounds only go forward."
    ROUND_ANSWERED = "round-answered", "This round was answered for other weights; ask the next round."
    ROUND_LOST = "round-lost", "This round was charged, but its answer was lost in a crash; ask the next round."
    TURNS_TAKEN = "turns-taken", "This silo has answered as many rounds of the stage as the plan allows; ask others."
    OUTSIDE_DOMAIN = "outside-domain", "The weights lie outside the plan's domain; project them first."
    BUDGET = "budget", "The budget of this silo's data set does not cover another round."
    UNAVAILABLE = "unavailable", "The silo cannot write its ledger or read its records now; nothing was released."
    FORGOTTEN = "forgotten", "This silo's ledger lacks an entry that the silo signed; its operator must restore it."

    @property
    def is_final(self) -> bool:
        """Whether, after this refusal message, it is pointless to ask the silo again in a later round of the plan."""
        reasons = type(self)
        return self in (reasons.NOT_APPROVED, reasons.REVOKED, reasons.BUDGET, reasons.FORGOTTEN)


class Refusal(_Message):
    """Silo to server: a refusal and its public reason."""

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
