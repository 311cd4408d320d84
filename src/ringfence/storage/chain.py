"""An append-only, hash-chained table of entries in a database.

Committed entries are never changed: triggers refuse it, and the chain of hashes shows it if someone goes around them.
"""

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringfence.storage.database import Database
from ringfence.storage.kind import Kind

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
    """An open file of entries. The first is tied to a hash of its user's choice, another for each kind of file."""

    def __init__(self, path: Path, kind: Kind, *, create: bool = False) -> None:
        self.path = path
        self._database = Database(path, kind, tables=_TABLES if create else None)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._database.close()

    def read(self, after: int, tail: str) -> Generator[Entry, None, None]:
        """Yield the entries after number `after`, whose hash is `tail`, and check the chain.

        Read them to the end, or close the generator: the end of the chain is checked last, and the file is held until
        then.
        """
        database = self._database
        with database.snapshot():
            if after:
                known = database.execute("SELECT hash FROM entries WHERE number = ?", (after,)).fetchone()
                if known != (tail,):
                    raise database.damaged(f"entry {after} is missing or was changed")
            previous, expected = tail, after + 1
            query = "SELECT number, time, kind, body, payload, hash FROM entries WHERE number > ? ORDER BY number"
            for number, time, kind, body, payload, digest in database.execute(query, (after,)):
                if number != expected:
                    raise database.damaged(f"entry {expected} is missing")
                if digest != _hash(previous, number, time, kind, body, payload):
                    raise database.damaged(f"entry {number} or the one before it was changed")
                yield Entry(number, time, kind, json.loads(body), payload, digest)
                previous, expected = digest, expected + 1
            # AUTOINCREMENT remembers the highest number ever given, so a cut-off tail shows too.
            highest = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
            if highest is not None and highest[0] >= expected:
                raise database.damaged(f"entry {expected} is missing")

    def payload(self, number: int, digest: str) -> bytes:
        """Return the payload of an entry that was read before, when its hash was `digest`; it is checked again."""
        database = self._database
        with database.snapshot():
            query = "SELECT number, time, kind, body, payload FROM entries WHERE number = ?"
            row = database.execute(query, (number,)).fetchone()
            before = database.execute("SELECT hash FROM entries WHERE number = ?", (number - 1,)).fetchone()
        if row is None or before is None or digest != _hash(before[0], *row):
            raise database.damaged(f"entry {number} is missing or was changed")
        payload: bytes = row[4]
        return payload

    def writing(self) -> AbstractContextManager[None]:
        """Hold the file's write lock. What is appended inside is synced when the block ends, or is undone."""
        return self._database.transaction()

    def append(self, draft: Draft, after: int, tail: str) -> Entry:
        """Add an entry behind number `after`, whose hash is `tail`. Only inside `writing`."""
        number = after + 1
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        body = body_text(draft.body)
        digest = _hash(tail, number, time, draft.kind, body, draft.payload)
        self._database.execute(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (number, time, draft.kind, body, draft.payload, digest)
        )
        return Entry(number, time, draft.kind, json.loads(body), draft.payload, digest)


def body_text(body: Mapping[str, Any]) -> str:
    """Write an entry's body the one way in which it is hashed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def entry_hash(previous: str, number: int, time: str, kind: str, body: str, payload: str) -> str:
    """Return the hash that ties an entry, whose payload has the given SHA-256, to the one before it."""
    content = json.dumps([previous, number, time, kind, body, payload])
    return hashlib.sha256(content.encode()).hexdigest()


def _hash(previous: str, number: int, time: str, kind: str, body: str, payload: bytes) -> str:
    return entry_hash(previous, number, time, kind, body, hashlib.sha256(payload).hexdigest())
