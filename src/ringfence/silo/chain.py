"""An append-only, hash-chained, synced table of rows in one SQLite file.

What it promises: a row that `append` has committed is on the disk before the transaction returns; committed
rows are never changed (triggers refuse it, and the chain of hashes shows it if someone goes around them);
and several processes may use one file, each write seeing all writes before it.
"""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringfence.errors import LedgerBusyError, LedgerDamagedError, LedgerError, LedgerWriteError

_BUSY_SECONDS = 10.0
GENESIS = hashlib.sha256(b"ringfence ledger 1").hexdigest()

_TABLES = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    payload BLOB NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never deleted'); END;
CREATE TRIGGER entries_rest BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
"""


@dataclass(frozen=True)
class Entry:
    """One committed row: its number, when and what, and raw bytes that belong to it."""

    number: int
    time: str
    kind: str
    body: Mapping[str, Any]
    payload: bytes
    hash: str


@dataclass(frozen=True)
class Draft:
    """A row to be committed."""

    kind: str
    body: Mapping[str, Any]
    payload: bytes = b""


class Chain:
    """An open file of entries."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._owner = os.getpid()
        if create:
            self._claim()
        self._file = self._identity()
        with self._told_clearly():
            # mode=rw: a missing file is an error, not a fresh start with an untouched budget.
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._prepare(create)
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, create: bool) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if create:
            self._connection.executescript(_TABLES)
        elif self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise self._damaged("its pages contradict each other")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None  # opening it says why
        return found.st_dev, found.st_ino

    def _claim(self) -> None:
        # O_EXCL: of two processes that create the same ledger, one fails here.
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise LedgerError(f"There is a ledger at {self.path} already; open it instead.") from None
        except OSError as problem:
            raise LedgerWriteError(f"No ledger can be made at {self.path}: {problem.strerror}.") from None

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            self._connection.close()

    def read(self, after: int, tail: str | None) -> list[Entry]:
        """Return the entries after number `after`, whose hash is `tail`, having checked the chain."""
        with self._lock, self._told_clearly(), self._snapshot():
            if after:
                known = self._connection.execute("SELECT hash FROM entries WHERE number = ?", (after,)).fetchone()
                if known != (tail,):
                    raise self._damaged(f"entry {after} is missing or was changed")
            entries: list[Entry] = []
            previous, expected = tail or GENESIS, after + 1
            query = "SELECT number, time, kind, body, payload, hash FROM entries WHERE number > ? ORDER BY number"
            for number, time, kind, body, payload, digest in self._connection.execute(query, (after,)):
                if number != expected:
                    raise self._damaged(f"entry {expected} is missing")
                if digest != _hash(previous, number, time, kind, body, payload):
                    raise self._damaged(f"entry {number} or the one before it was changed")
                entries.append(Entry(number, time, kind, json.loads(body), payload, digest))
                previous, expected = digest, expected + 1
            # AUTOINCREMENT remembers the highest number ever given, so a cut-off tail shows too.
            highest = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
            if highest is not None and highest[0] >= expected:
                raise self._damaged(f"entry {expected} is missing")
            return entries

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """See one state of the file in several queries, whatever other processes write meanwhile."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the file's write lock. What is appended inside is synced when the block ends, or is undone."""
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

    def append(self, draft: Draft, after: int, tail: str | None) -> Entry:
        """Add an entry behind number `after`, whose hash is `tail`. Only inside `writing`."""
        number = after + 1
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = body_text(draft.body)
        digest = _hash(tail or GENESIS, number, time, draft.kind, body, draft.payload)
        with self._told_clearly():
            self._connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)",
                (number, time, draft.kind, body, draft.payload, digest),
            )
        return Entry(number, time, draft.kind, json.loads(body), draft.payload, digest)

    @contextmanager
    def _told_clearly(self) -> Iterator[None]:
        if os.getpid() != self._owner:
            raise LedgerError("A ledger cannot be used in a forked process: open it again there.")
        try:
            yield
        except sqlite3.Error as problem:
            raise self._translate(problem) from None
        # SQLite's messages about a damaged file need not be text.
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
            raise self._damaged("its content is not readable") from None

    def _translate(self, problem: sqlite3.Error) -> LedgerError:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return LedgerBusyError(
                f"The ledger {self.path} is being written by another process; try again when it has finished."
            )
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return LedgerWriteError(
                f"The ledger {self.path} could not be written (disk full or write-protected?); nothing was "
                "released. Make room and try again."
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return LedgerError(f"There is no ledger at {self.path} that this user may open.")
        return self._damaged("SQLite cannot read it")

    def _damaged(self, finding: str) -> LedgerDamagedError:
        return LedgerDamagedError(
            f"The ledger {self.path} cannot be trusted: {finding}. Nothing will be released from its data until "
            "its operator restores the ledger or decides what was spent."
        )


def body_text(body: Mapping[str, Any]) -> str:
    """Write an entry's body the one way in which it is hashed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_hash(previous: str, number: int, time: str, kind: str, body: str, payload: str) -> str:
    """Return the hash that ties an entry, whose payload has the given SHA-256, to the one before it."""
    content = json.dumps([previous, number, time, kind, body, payload])
    return hashlib.sha256(content.encode()).hexdigest()


def _hash(previous: str, number: int, time: str, kind: str, body: str, payload: bytes) -> str:
    return entry_hash(previous, number, time, kind, body, hashlib.sha256(payload).hexdigest())
