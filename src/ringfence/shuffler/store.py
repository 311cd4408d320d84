"""A shuffler's folder and database: served plans, messages that wait for their round's batch, and batches.

    shuffler.key     X25519 private key that opens envelopes
    shuffler.token   what the server must show
    shuffler.db      this file's tables
    shuffler.lock    held by the one process that serves the folder
    decisions.log    what was refused and which batches left, one line each, and older files of it

What the database promises:

- A deposit that was stored, and a batch that was fixed, are on the disk before `transaction` ends; a process that is
  killed leaves all of a transaction or nothing.
- Nothing in it ties a message to a silo. Who has deposited stands there under a keyed hash, whose key is not in the
  database; messages stand in the order of 16 random bytes that each was given; there is one time per round and none
  per deposit. When a batch is fixed both are deleted and overwritten, and the journal that holds them meanwhile is gone
  when that is done.

While a round is open, the disk is as secret as the process itself, which sees deposits come in. As for a silo's ledger,
an old copy of the database must never be put back: it would mix a second batch for a round that already has one.
`witness` notices.

A plan that was ended takes no deposit, so the longest it can have is 0: by that it is known. Its rounds stay, each with
an empty batch.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ringfence.errors import WHY, ShufflerError, os_error_as
from ringfence.shuffler.sealing import new_key
from ringfence.storage.database import Database
from ringfence.storage.files import make_folder, read_key, read_token, served_alone, write_private, write_token
from ringfence.storage.stored_file import Kind

_KIND = Kind(
    "database",
    ShufflerError,
    if_damaged="Nothing is released from it. Set up a new folder, and have the silos approve a plan with its key.",
)
_APPLICATION = 0x52464E43  # tells our database from others', and a finished one from one whose making was cut off

_TABLES = """
CREATE TABLE plans (digest TEXT PRIMARY KEY, content BLOB NOT NULL, longest INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY,
    plan TEXT NOT NULL REFERENCES plans,
    round INTEGER NOT NULL,
    opened REAL NOT NULL,
    silos INTEGER NOT NULL DEFAULT 0,
    batch BLOB,
    UNIQUE (plan, round)
) STRICT;
CREATE TABLE deposits (
    number INTEGER NOT NULL REFERENCES rounds,
    silo BLOB NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (number, silo)
) STRICT, WITHOUT ROWID;
CREATE TABLE pool (
    number INTEGER NOT NULL REFERENCES rounds,
    place BLOB NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (number, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE decisions (number INTEGER NOT NULL, witnessed INTEGER NOT NULL) STRICT;
"""


@dataclass(frozen=True)
class StoredRound:
    """A round in which something was deposited: how many silos have, since when, and its batch if that is fixed."""

    number: int
    plan: str
    round: int
    opened: float
    silos: int
    batch: bytes | None


class Store(Database):
    """A shuffler's folder. Its database may be used by several processes and threads, one transaction at a time."""

    def __init__(self, folder: Path) -> None:
        """Open the database and read the key in a shuffler's folder."""
        self.folder = folder
        if not os.path.isfile(folder / "shuffler.key"):
            raise ShufflerError(
                f"{folder} is not a shuffler's folder, or this user may not read it: `ringfence shuffler init` makes "
                "one."
            )
        self.key = read_key(folder / "shuffler.key", ShufflerError)
        self._hash_key = hmac.digest(self.key, b"ringfence deposits 1", "sha256")
        super().__init__(folder / "shuffler.db", _KIND, application=_APPLICATION)

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Set up a shuffler's folder, closed to other users; nothing that exists is overwritten."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ShufflerError(
                f"{folder} already exists and is not an empty folder: name a new folder for the shuffler."
            )
        with os_error_as(ShufflerError, f"The folder {folder} cannot be set up: {WHY}."):
            make_folder(folder, 0o700)
            folder.chmod(0o700)
            write_private(folder / "shuffler.key", new_key().hex().encode())
            write_token(folder / "shuffler.token")
        Database(folder / "shuffler.db", _KIND, application=_APPLICATION, tables=_TABLES).close()
        return cls(folder)

    def token(self) -> str:
        """Return the secret that the server must show to the shuffler."""
        return read_token(self.folder / "shuffler.token", ShufflerError)

    def alone(self) -> AbstractContextManager[None]:
        """Hold the shuffler's folder for one serving process; the system lets go of it however that ends."""
        return served_alone(self.folder / "shuffler.lock", ShufflerError)

    # -- inside `transaction` --

    def add_plan(self, digest: str, content: bytes, longest: int) -> None:
        """Store a plan whose deposits are at most that long; a plan that is already there stays as it is."""
        self.execute("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", (digest, content, longest))

    def plan(self, digest: str) -> bytes | None:
        """Return a served plan's bytes from the shuffler's database."""
        content: bytes | None = self._value("SELECT content FROM plans WHERE digest = ?", digest)
        return content

    def count_plans(self) -> int:
        """Return how many plans the shuffler's database holds as served."""
        return int(self._value("SELECT count(*) FROM plans WHERE longest > 0"))

    def plans(self) -> dict[str, bytes]:
        """Return all plans' bytes from the shuffler's database, by digest; those that were ended too."""
        return dict(self.execute("SELECT digest, content FROM plans ORDER BY digest"))

    def is_ended(self, digest: str) -> bool:
        """Return whether the shuffler's database says that the plan was ended."""
        return bool(self._value("SELECT longest FROM plans WHERE digest = ?", digest) == 0)

    def end_plan(self, digest: str) -> None:
        """Accept nothing more for the plan, and delete its stored messages and batches; rounds' numbers stay."""
        rounds = "(SELECT number FROM rounds WHERE plan = ?)"
        for statement in (
            "UPDATE plans SET longest = 0 WHERE digest = ?",
            f"DELETE FROM pool WHERE number IN {rounds}",  # noqa: S608 (a constant)
            f"DELETE FROM deposits WHERE number IN {rounds}",  # noqa: S608
            "UPDATE rounds SET batch = x'', opened = 0 WHERE plan = ?",
        ):
            self.execute(statement, (digest,))
        self.set_decisions(self.decisions() + 1)

    def decisions(self) -> int:
        """Return how many decisions (a round's batch, a plan's end) the shuffler's database counts: it never falls."""
        return int(self._value("SELECT coalesce(max(number), 0) FROM decisions"))

    def was_witnessed(self) -> bool:
        """Return whether a witness knows of this shuffler's database."""
        return self._value("SELECT 1 FROM decisions WHERE witnessed") is not None

    def set_decisions(self, number: int, *, witnessed: bool = False) -> None:
        """Set the number of decisions in the shuffler's database; once `witnessed`, it stays so."""
        witnessed = witnessed or self.was_witnessed()
        self.execute("DELETE FROM decisions")
        self.execute("INSERT INTO decisions VALUES (?, ?)", (number, witnessed))

    def longest_deposit(self) -> int:
        """Return, from the shuffler's database, how long a deposit of any served plan can be."""
        return int(self._value("SELECT coalesce(max(longest), 0) FROM plans"))

    def rounds(self, plan: str) -> list[StoredRound]:
        """Return the plan's stored rounds in which something was deposited, without their batches' content."""
        query = (
            "SELECT number, plan, round, opened, silos, CASE WHEN batch IS NULL THEN NULL ELSE x'' END "
            "FROM rounds WHERE plan = ? ORDER BY round"
        )
        return [StoredRound(*row) for row in self.execute(query, (plan,))]

    def round(self, plan: str, round: int) -> StoredRound | None:
        """Return a round's state in the shuffler's database, or None if nothing was deposited."""
        query = "SELECT number, plan, round, opened, silos, batch FROM rounds WHERE plan = ? AND round = ?"
        row = self.execute(query, (plan, round)).fetchone()
        return None if row is None else StoredRound(*row)

    def open_round(self, plan: str, round: int) -> int:
        """Begin a round now in the shuffler's database, and return its number."""
        insert = "INSERT INTO rounds (plan, round, opened) VALUES (?, ?, ?) RETURNING number"
        return int(self._value(insert, plan, round, time.time()))

    def deposited(self, number: int, silo: str, content: bytes) -> bool | None:
        """Return whether the silo's stored deposit in the round is this content; None if it has made none."""
        query = "SELECT content FROM deposits WHERE number = ? AND silo = ?"
        stored = self._value(query, number, self._hash(number, silo))
        return None if stored is None else hmac.compare_digest(stored, self._hash(number, silo, content))

    def add_deposit(self, number: int, silo: str, content: bytes, messages: Sequence[bytes]) -> None:
        """Store that the silo has deposited this content, and put its messages among the others."""
        row = (number, self._hash(number, silo), self._hash(number, silo, content))
        self.execute("INSERT INTO deposits VALUES (?, ?, ?)", row)
        self.execute("UPDATE rounds SET silos = silos + 1 WHERE number = ?", (number,))
        rows = ((number, secrets.token_bytes(16), message) for message in messages)
        self.executemany("INSERT INTO pool VALUES (?, ?, ?)", rows)

    def pooled(self, number: int) -> list[bytes]:
        """Return the round's stored messages, in the order of their random places."""
        query = "SELECT message FROM pool WHERE number = ? ORDER BY place"
        return [message for (message,) in self.execute(query, (number,))]

    def fix(self, number: int, batch: bytes) -> None:
        """Store the round's final batch in the shuffler's database, and delete its messages and deposits."""
        self.execute("UPDATE rounds SET batch = ?, opened = 0 WHERE number = ?", (batch, number))
        self.execute("DELETE FROM pool WHERE number = ?", (number,))
        self.execute("DELETE FROM deposits WHERE number = ?", (number,))
        self.set_decisions(self.decisions() + 1)

    def _value(self, query: str, *values: object) -> Any:
        """Return the first number or text that a query finds in the shuffler's database; None if it finds no row."""
        row = self.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _hash(self, number: int, silo: str, content: bytes = b"") -> bytes:
        """Return the keyed name that the shuffler's database has for the silo or its deposit."""
        named = hashlib.sha256(silo.encode()).digest() + hashlib.sha256(content).digest()
        return hmac.digest(self._hash_key, number.to_bytes(8, "big") + named, "sha256")
