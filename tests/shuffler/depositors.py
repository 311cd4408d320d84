"""Silos that deposit whatever a test wants: real plans, keys, seals and signatures; what is sealed means nothing."""

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.protocol import Batch, Plan, SealedUpdate, ShufflerChannel, parse_schema
from ringfence.protocol.channels.shuffler import SEALED_EXTRA
from ringfence.shuffler import sealing
from ringfence.shuffler.shuffler import Receipt, Shuffler
from ringfence.shuffler.store import Store
from tests.shuffler.shuffled_federation import numbers_of, plan_through, shuffle_of


@dataclass(frozen=True)
class Depositors:
    """All silos of a plan, the server's key, and how they seal."""

    plan: Plan
    keys: dict[str, bytes]
    server: bytes

    @property
    def names(self) -> list[str]:
        return list(self.keys)

    @property
    def shuffle(self) -> ShufflerChannel:
        return shuffle_of(self.plan)

    def plain(self, silo: str) -> list[bytes]:
        """Return the right number of messages of the right size, all different and known by their silo."""
        count = self.shuffle.messages(numbers_of(self.plan))
        size = self.shuffle.message_bytes
        return [(f"{silo} {number} ".encode() + os.urandom(size))[:size] for number in range(count)]

    def sealed(self, silo: str, round: int = 0) -> list[bytes]:
        """Return the messages, sealed to the server."""
        return sealing.seal_messages(self.shuffle.server_key, self.plan.digest(), round, self.plain(silo))

    def update(self, silo: str, round: int = 0, messages: list[bytes] | None = None, /, **changes: Any) -> bytes:
        """Return a silo's sealed update; changes replace what is sealed, signed or said."""
        digest = self.plan.digest()
        content = b"".join(self.sealed(silo, round) if messages is None else messages)
        envelope = changes.get("envelope") or sealing.seal_envelope(
            self.shuffle.shuffler_key, digest, round, silo, content
        )
        text = base64.b64encode(envelope).decode()
        said: dict[str, Any] = {"plan": digest, "round": round, "silo": silo, "envelope": text} | {
            name: changes[name] for name in ("plan", "round", "silo") if name in changes
        }
        signature = sealing.sign(changes.get("key") or self.keys[silo], SealedUpdate.signed_bytes(**said))
        return SealedUpdate(**said, signature=changes.get("signature", signature)).to_bytes()

    def read(self, batch: bytes) -> tuple[Batch, list[bytes]]:
        """Return a batch and its sealed messages."""
        document = Batch.from_bytes(batch)
        return document, sealing.split_messages(
            base64.b64decode(document.messages), self.shuffle.message_bytes + SEALED_EXTRA
        )


def depositors(
    shuffler_key: str, *, silos: int = 3, rounds: int = 3, quorum: int = 2, asked: int | None = None, **shape: int
) -> Depositors:
    """Make a plan for so many silos and this shuffler's key."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    columns = {"a": number, "ill": {"type": "categorical", "categories": ["no", "yes"]}}
    schema = parse_schema({"columns": columns}, target="ill")
    keys = {f"hospital-{index:03}": sealing.new_key() for index in range(silos)}
    server = sealing.new_key()
    numbers: dict[str, Any] = {"levels": 4, "coins": 20, "shares": 2, "block": 16, "width": 4} | shape
    shuffle = ShufflerChannel(
        **numbers, quorum=quorum, slack=1e-9, server_key=sealing.public_key(server), shuffler_key=shuffler_key
    )
    public = {name: sealing.verifying_key(key) for name, key in keys.items()}
    plan = plan_through(shuffle, schema, dict.fromkeys(keys, 100), public, rounds=rounds, asked=asked)
    return Depositors(plan, keys, server)


Setting = tuple[Shuffler, Depositors]


def make_shuffler(folder: Path, **shape: Any) -> Setting:
    """Set a folder up that serves one plan, and waits for the slowest silo."""
    shuffler = Shuffler(Store.create(folder), seconds=3600.0)
    made = depositors(shuffler.public_key, **shape)
    shuffler.add(made.plan)
    return shuffler, made


def set_up(folder: Path, **shape: Any) -> Depositors:
    """Set a folder up that serves one plan, and leave it closed."""
    shuffler, made = make_shuffler(folder, **shape)
    shuffler.close()
    return made


def deposit_all(shuffler: Shuffler, silos: Depositors) -> None:
    """Deposit an update of every silo."""
    for name in silos.names:
        assert shuffler.deposit(silos.update(name)) is Receipt.STORED


def release(shuffler: Shuffler, silos: Depositors, round: int = 0) -> bytes:
    """Return a batch, which must be there."""
    released = shuffler.release(silos.plan.digest(), round)
    assert isinstance(released, bytes), released
    return released


def on_the_disk(folder: Path) -> bytes:
    """Return the database and whatever SQLite keeps beside it."""
    return b"".join(path.read_bytes() for path in folder.glob("shuffler.db*"))
