"""What a shuffler keeps on its disk: served plans, messages that wait for their round's batch, and batches.

    shuffler.key     X25519 private key that opens envelopes
    shuffler.token   what the server must show
    shuffler.db      this file's tables
    shuffler.lock    held by the one process that serves the folder

What the database promises:

- A deposit that was stored, and a batch that was fixed, are on the disk before `transaction` ends; a process that is
  killed leaves all of a transaction or nothing.
- Nothing in it ties a message to a silo. Who has deposited stands there under a keyed hash, whose key is not in the
  database; messages stand in the order of 16 random bytes that each was given; there is one time per round and none
  per deposit. When a batch is fixed both are deleted, overwritten, and the write-ahead log is emptied.

While a round is open, the disk is as secret as the process itself, which sees deposits come in: the write-ahead log
has them in their order. And as for a silo's ledger, an old copy of the database must never be put back: it would mix a
second batch for a round that already has one.
"""

import hashlib
import hmac
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ringfence.errors import ShufflerError
from ringfence.private_files import lock_alone, parse_key, write_private
from ringfence.shuffle.sealing import new_key

_BUSY_SECONDS = 10.0
_APPLICATION = 0x52464E43  # tells our database from others', and a finished one from one whose making was cut off

_TABLES = f"""
BEGIN;
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
PRAGMA application_id = {_APPLICATION};
COMMIT;
"""


@dataclass(frozen=True)
class Round:
    """A round in which something was deposited: how many silos have, since when, and its batch if that is fixed."""

    number: int
    plan: str
    round: int
    opened: float
    silos: int
    batch: bytes | None


class Store:
    """A shuffler's folder. Its database may be used by several processes and threads, one transaction at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "shuffler.db"
        self.key = parse_key(self._read("shuffler.key"), folder / "shuffler.key", ShufflerError)
        self._hash_key = hmac.digest(self.key, b"ringfence deposits 1", "sha256")
        self._lock = threading.RLock()
        self._file = self._identity()
        with self._told_clearly():
            # mode=rw: a missing file is an error, not a fresh start in which every round may be mixed again.
            self._connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Set a folder up, closed to other users; nothing that exists is overwritten."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ShufflerError(f"{folder} exists already and is not an empty folder; a shuffler's is made once, anew.")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            write_private(folder / "shuffler.key", new_key().hex().encode())
            write_private(folder / "shuffler.token", secrets.token_hex(32).encode())
            (folder / "shuffler.db").touch(mode=0o600, exist_ok=False)
            connection = sqlite3.connect(folder / "shuffler.db", isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_TABLES)
            finally:
                connection.close()
        except (OSError, sqlite3.Error) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "the database cannot be written"
            raise ShufflerError(f"The folder {folder} cannot be set up: {reason}.") from None
        return cls(folder)

    def close(self) -> None:
        """Close the database; closing twice is fine."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def token(self) -> str:
        """Return the secret that the server must show."""
        token = self._read("shuffler.token").decode("ascii", errors="replace").strip()
        if len(token) < 32:
            raise ShufflerError(f"{self.folder / 'shuffler.token'} holds no token of 32 characters or more; write one.")
        return token

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder for one serving process; the system lets go of it however that ends."""
        try:
            lock = os.open(self.folder / "shuffler.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise ShufflerError(f"The folder {self.folder} cannot be served: {problem.strerror}.") from None
        try:
            if not lock_alone(lock):
                raise ShufflerError(f"Another process serves {self.folder} already; stop it before you start another.")
            yield
        finally:
            os.close(lock)

    # -- one transaction --

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See one state of the database and change it: all of it, synced, when the block ends, or nothing."""
        with self._lock, self._told_clearly():
            if self._identity() != self._file:  # what is written now would not be found again
                raise self._damaged("the file was moved or replaced while it was in use")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def add_plan(self, digest: str, content: bytes, longest: int) -> None:
        """Keep a plan whose deposits are at most so long; one that is there already stays as it is."""
        self._connection.execute("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", (digest, content, longest))

    def plan(self, digest: str) -> bytes | None:
        """Return a served plan's bytes."""
        row = self._connection.execute("SELECT content FROM plans WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else bytes(row[0])

    def count_plans(self) -> int:
        """Return how many plans are served."""
        return int(self._connection.execute("SELECT count(*) FROM plans").fetchone()[0])

    def plans(self) -> list[bytes]:
        """Return all served plans' bytes."""
        return [bytes(content) for (content,) in self._connection.execute("SELECT content FROM plans ORDER BY digest")]

    def longest_deposit(self) -> int:
        """Return how long a deposit of any served plan can be."""
        return int(self._connection.execute("SELECT coalesce(max(longest), 0) FROM plans").fetchone()[0])

    def rounds(self, plan: str) -> list[Round]:
        """Return the plan's rounds in which something was deposited, without their batches' content."""
        query = (
            "SELECT number, plan, round, opened, silos, CASE WHEN batch IS NULL THEN NULL ELSE x'' END "
            "FROM rounds WHERE plan = ? ORDER BY round"
        )
        return [Round(*row) for row in self._connection.execute(query, (plan,))]

    def round(self, plan: str, round: int) -> Round | None:
        """Return what is known of a round; nothing, if nothing was deposited."""
        query = "SELECT number, plan, round, opened, silos, batch FROM rounds WHERE plan = ? AND round = ?"
        row = self._connection.execute(query, (plan, round)).fetchone()
        return None if row is None else Round(*row)

    def open_round(self, plan: str, round: int) -> int:
        """Begin a round now, and return its number."""
        insert = "INSERT INTO rounds (plan, round, opened) VALUES (?, ?, ?)"
        number = self._connection.execute(insert, (plan, round, time.time())).lastrowid
        if number is None:
            raise self._damaged("it gives a new round no number")
        return number

    def deposited(self, number: int, silo: str, content: bytes) -> bool | None:
        """Tell whether the silo's deposit in the round is this content; None if it has made none."""
        query = "SELECT content FROM deposits WHERE number = ? AND silo = ?"
        row = self._connection.execute(query, (number, self._hash(number, silo))).fetchone()
        return None if row is None else hmac.compare_digest(row[0], self._hash(number, silo, content))

    def add_deposit(self, number: int, silo: str, content: bytes, messages: Sequence[bytes]) -> None:
        """Note that the silo has deposited this content, and put its messages among the others."""
        row = (number, self._hash(number, silo), self._hash(number, silo, content))
        self._connection.execute("INSERT INTO deposits VALUES (?, ?, ?)", row)
        self._connection.execute("UPDATE rounds SET silos = silos + 1 WHERE number = ?", (number,))
        rows = ((number, secrets.token_bytes(16), message) for message in messages)
        self._connection.executemany("INSERT INTO pool VALUES (?, ?, ?)", rows)

    def pooled(self, number: int) -> list[bytes]:
        """Return the round's messages, in the order of their random places."""
        query = "SELECT message FROM pool WHERE number = ? ORDER BY place"
        return [bytes(message) for (message,) in self._connection.execute(query, (number,))]

    def fix(self, number: int, batch: bytes) -> None:
        """Make this the round's batch for good, and forget what it came from."""
        self._connection.execute("UPDATE rounds SET batch = ?, opened = 0 WHERE number = ?", (batch, number))
        self._connection.execute("DELETE FROM pool WHERE number = ?", (number,))
        self._connection.execute("DELETE FROM deposits WHERE number = ?", (number,))

    def forget_traces(self) -> None:
        """Empty the write-ahead log, where deleted rows still stand; while another process reads, it stays for now."""
        with self._lock, self._told_clearly():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    # -- the database file --

    def _prepare(self) -> None:
        if self._connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
            raise self._damaged("it is not a shuffler's, or was not finished")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA secure_delete = ON")
        self._connection.execute("PRAGMA foreign_keys = ON")
        if self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise self._damaged("its pages contradict each other")
        self.forget_traces()  # the last process may have been killed before it could

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None  # opening it says why
        return found.st_dev, found.st_ino

    def _hash(self, number: int, silo: str, content: bytes = b"") -> bytes:
        """Return a name for the silo, or for its deposit, that only the key's holder can compute."""
        named = hashlib.sha256(silo.encode()).digest() + hashlib.sha256(content).digest()
        return hmac.digest(self._hash_key, number.to_bytes(8, "big") + named, "sha256")

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as problem:
            raise ShufflerError(
                f"{self.folder} is not a shuffler's folder that this user may read ({name}: {problem.strerror}): "
                "`ringfence shuffler init` makes one."
            ) from None

    @contextmanager
    def _told_clearly(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise self._translate(problem) from None

    def _translate(self, problem: sqlite3.Error) -> ShufflerError:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return ShufflerError(f"{self.path} is being written by another process; try again when it has finished.")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return ShufflerError(
                f"{self.path} could not be written (disk full or write-protected?); nothing was accepted or released. "
                "Make room and try again."
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return ShufflerError(f"There is no database {self.path} that this user may open; restore it.")
        return self._damaged("SQLite cannot read it")

    def _damaged(self, finding: str) -> ShufflerError:
        return ShufflerError(
            f"The database {self.path} cannot be trusted: {finding}. Nothing is released from it; set a new folder up, "
            "and let the silos agree on a plan with its key."
        )
