"""An append-only, hash-chained table of entries in a database.

Committed entries are never changed: triggers refuse it, and the chain of hashes shows it if someone goes around them.

A copy of the file alone, whenever it is taken, holds every entry that was committed before, or is refused. Between two
transactions the file is whole (`storage.database`). While one ends, a copy may hold some pages from before it and some
from after. But the highest number ever given, which SQLite keeps on a page of its own, is then at least that of the
last entry committed before the copy began; and `read` accepts no chain that does not end there, entry by entry and
hash by hash.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringfence.storage.database import Database
from ringfence.storage.stored_file import Closing, Kind

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
class Draft:
    """A row to be committed, and raw bytes that belong to it."""

    kind: str
    body: Mapping[str, Any]
    payload: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Entry(Draft):
    """One committed row."""

    number: int
    time: str
    hash: str


class Chain(Closing):
    """An open file of entries. The first entry's previous hash is the user's choice, different for each kind of file.

    Entries that were once read or written must stay: if the file was rolled back or replaced, every later read fails.
    It runs no SQL of its holder's: entries are read and appended, and that is all.
    """

    def __init__(self, path: Path, kind: Kind, *, create: bool = False) -> None:
        """Open the chain of entries in a database, or create it."""
        self.path = path
        self._database = Database(path, kind, tables=_TABLES if create else None)
        self._seen: tuple[int, str] | None = None
        self._appended: list[tuple[int, str]] = []

    def close(self) -> None:
        """Close the chain's file; closing twice is fine."""
        self._database.close()

    def copy_to(self, out: Path) -> None:
        """Write one state of the chain to a new file (`Database.copy_to`)."""
        self._database.copy_to(out)

    def read(self, after: int, tail: str) -> Generator[Entry, None, None]:
        """Yield the entries after number `after`, whose hash is `tail`, and check the chain.

        Read them to the end, or close the generator: the end of the chain is checked last, and the file is held until
        then.
        """
        with self._database.snapshot():
            if self._seen is not None and not self.holds(*self._seen):
                raise self._database.damaged(f"entry {self._seen[0]}, which it held before, is missing or was changed")
            if after and (after, tail) != self._seen and not self.holds(after, tail):
                raise self._database.damaged(f"entry {after} is missing or was changed")
            previous, expected = tail, after + 1
            query = "SELECT number, time, kind, body, payload, hash FROM entries WHERE number > ? ORDER BY number"
            for number, time, kind, body, payload, digest in self._database.execute(query, (after,)):
                if number != expected:
                    raise self._database.damaged(f"entry {expected} is missing")
                if digest != _hash(previous, number, time, kind, body, payload):
                    raise self._database.damaged(f"entry {number} or the one before it was changed")
                yield Entry(kind, json.loads(body), payload, number=number, time=time, hash=digest)
                previous, expected = digest, expected + 1
            # AUTOINCREMENT remembers the highest number ever given, so a cut-off tail shows too.
            query = "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"
            (highest,) = self._database.execute(query).fetchone() or (0,)
            if highest != expected - 1:
                raise self._database.damaged(f"it ends with entry {expected - 1}, which is not the last one ever made")
            if expected > after + 1:
                self._see(expected - 1, previous)

    def payload(self, number: int, digest: str) -> bytes:
        """Return the payload of a chain's entry read before, when its hash was `digest`; it is checked again."""
        with self._database.snapshot():
            query = "SELECT number, time, kind, body, payload FROM entries WHERE number = ?"
            row = self._database.execute(query, (number,)).fetchone()
            before = self._database.execute("SELECT hash FROM entries WHERE number = ?", (number - 1,)).fetchone()
        if row is None or before is None or digest != _hash(before[0], *row):
            raise self._database.damaged(f"entry {number} is missing or was changed")
        payload: bytes = row[4]
        return payload

    def holds(self, number: int, digest: str) -> bool:
        """Return whether the chain has the entry of that number, with that hash."""
        with self._database.snapshot():
            found = self._database.execute("SELECT hash FROM entries WHERE number = ?", (number,)).fetchone()
        return bool(found == (digest,))

    def require(self, number: int, digest: str) -> None:
        """Make every later read of the chain fail unless this entry is there."""
        self._seen = number, digest

    def _see(self, number: int, digest: str) -> None:
        """Remember the latest entry of the chain that was seen."""
        if self._seen is None or number > self._seen[0]:
            self._seen = number, digest

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the chain's write lock. What is appended inside is synced when the block ends, or is undone."""
        self._appended.clear()
        with self._database.transaction():
            yield
        for last in self._appended[-1:]:
            self._see(*last)

    def append(self, draft: Draft, after: int, tail: str) -> Entry:
        """Add an entry to the chain behind number `after`, whose hash is `tail`. Only inside `writing`."""
        number = after + 1
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = body_text(draft.body)
        digest = _hash(tail, number, time, draft.kind, body, draft.payload)
        self._database.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (number, time, draft.kind, body, draft.payload, digest)
        )
        self._appended.append((number, digest))
        return Entry(draft.kind, json.loads(body), draft.payload, number=number, time=time, hash=digest)


def body_text(body: Mapping[str, Any]) -> str:
    """Return the body of a chain's entry as the canonical text that is hashed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_hash(previous: str, number: int, time: str, kind: str, body: str, payload: str) -> str:
    """Return the hash that chains an entry, whose payload has the given SHA-256, to the one before it."""
    content = json.dumps([previous, number, time, kind, body, payload])
    return hashlib.sha256(content.encode()).hexdigest()


def _hash(previous: str, number: int, time: str, kind: str, body: str, payload: bytes) -> str:
    """Return the hash that ties an entry with this payload to the chain."""
    return entry_hash(previous, number, time, kind, body, hashlib.sha256(payload).hexdigest())
