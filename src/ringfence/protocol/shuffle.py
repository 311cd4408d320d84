"""What a plan says about a shuffler: the noise that all silos make together, and how messages travel.

With `trust = "shuffler"` a silo's answer is not a noisy vector but a count per coordinate, cut into shares, each
sealed to the server's key, all of them sealed to the shuffler's. The shuffler opens the outer seal only, mixes all
silos' shares and passes them on. What the server can read is then the total of the counts, and nothing else: neither
whose share is whose, nor in which order they came (`ringfence.shuffle`).
"""

from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import Field, ValidationError

from ringfence.errors import MessageError, PlanError
from ringfence.protocol.public import Base64, Digest, Public, explain
from ringfence.toml_files import read_toml

Key: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A public key of 32 bytes in hexadecimal: X25519 for sealing, Ed25519 for signatures."""

LABEL_BYTES = 2
"""Every message begins with the number of its block of coordinates."""


SEALED_EXTRA = 48
"""Bytes that a seal adds: 32 of its own public key, 16 of authentication (HPKE with X25519)."""


class Shuffle(Public):
    """Vector summation through a shuffler (`shuffle.vector_sum`, `shuffle.shares`).

    `levels` g is how finely a gradient is rounded and `coins` b how many fair coins are added to every coordinate for
    each record that takes part, so that a batch of m records carries Bin(m·b, 1/2). A batch leaves the shuffler with at
    least `quorum` silos in it: fewer would mean less noise. `slack` is the part of delta, per round, that the
    accounting sets aside. Each silo's numbers, `block` to a message and `width` bytes each, are cut into `shares`.
    """

    levels: int = Field(ge=1, le=2**20)
    coins: int = Field(ge=1, le=2**30)
    quorum: int = Field(ge=2)
    slack: float = Field(gt=0, lt=1)
    shares: int = Field(ge=2, le=2**16)
    block: int = Field(ge=1, le=2**20)
    width: int = Field(ge=1, le=7)
    server_key: Key
    shuffler_key: Key

    @property
    def message_bytes(self) -> int:
        """Length of every message before it is sealed."""
        return LABEL_BYTES + self.block * self.width

    def blocks(self, numbers: int) -> int:
        """Return how many messages carry one share of so many numbers."""
        return -(-numbers // self.block)

    def messages(self, numbers: int) -> int:
        """Return how many messages a silo sends in a round."""
        return self.blocks(numbers) * self.shares

    def envelope_bytes(self, numbers: int) -> int:
        """Return the length of a silo's sealed envelope: its sealed messages, sealed once more."""
        return self.messages(numbers) * (self.message_bytes + SEALED_EXTRA) + SEALED_EXTRA


class Keys(Public):
    """The public keys that a plan with a shuffler pins: of the server, of the shuffler, and of every silo."""

    server: Key
    shuffler: Key
    silos: dict[str, Key]


def load_keys(path: Path) -> Keys:
    """Read public keys from a TOML file: `server`, `shuffler`, and a table `silos` by name."""
    try:
        return Keys.model_validate(read_toml(path))
    except OSError as problem:
        raise PlanError(f"The keys {path} could not be read: {problem.strerror}.") from None
    except ValidationError as refused:
        raise PlanError(f"{path} does not hold everybody's public keys: {explain(refused)}.") from None
    except ValueError as problem:
        raise PlanError(f"{path} is not valid TOML: {problem}.") from None


class Batch(Public):
    """Shuffler to server: all messages of one round, sealed to the server's key, in random order."""

    plan: Digest
    round: int = Field(ge=0, le=2**53)
    silos: int = Field(ge=1)
    messages: Base64

    def to_bytes(self) -> bytes:
        """Return the batch's canonical bytes."""
        return self.canonical()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a batch, or raise MessageError with a reason that quotes nothing."""
        return cls.parse(content, error=MessageError, limit=2**31, quote=False)
