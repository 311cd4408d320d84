"""The registry: which of a user's data sets has which ledger. One data set has one.

It is a file in the user's state folder, beside the key of the fingerprints; a silo exports neither. A ledger is
identified by its first entry's hash, so that a copy, a moved file and another ledger can be distinguished. Its entries,
in order:

    holds      a ledger (its identity, file and silo) and the data that it is kept for; said again, a new version of it
    moved      the same ledger is another file now
    succeeded  the data has another ledger from now on

The entries are chained from a hash that only the key gives: an edited registry shows, and so does another key.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.errors import RegistryError
from ringfence.silo.records.marks import Fingerprint, Part, RowMarks, Sketch
from ringfence.storage.chain import Chain, Draft, Entry
from ringfence.storage.files import read_key, served_alone, state_folder, write_private
from ringfence.storage.stored_file import Closing, Kind

_KIND = Kind(
    "registry of data sets",
    RegistryError,
    if_damaged="Nothing is released until it is restored from a backup, or, together with fingerprint.key, moved away: "
    "then every silo and ledger must be registered again (`ringfence silo register`, or `--same-data-as LEDGER`).",
)
_PATIENCE = 600.0
"""Seconds that a process waits for those before it; each takes a few hundredths."""


@dataclass
class RegisteredLedger:
    """A ledger that the registry knows, and the versions of the data that it is kept for."""

    identity: str
    path: Path
    silo: str
    versions: list[Sketch] = field(default_factory=list)
    settled: Sketch | None = None
    """The version that the silo's operator confirmed, by `silo init`, `update` or `register`."""
    successor: str = ""


class Registry(Closing):
    """The user's registry, open. Decisions that depend on it are made inside `deciding`."""

    def __init__(self) -> None:
        """Open the user's registry of data sets and ledgers; begin it if there is none."""
        folder = state_folder()
        self._key_path, path = folder / "fingerprint.key", folder / "registry.sqlite"
        self._lock = folder / "registry.lock"
        if not path.exists() or not self._key_path.exists():
            self._begin(path)
        self._key = read_key(self._key_path, RegistryError)
        self._chain = Chain(path, _KIND)
        self.ledgers: dict[str, RegisteredLedger] = {}
        self._number, self._head = 0, hmac.new(self._key, b"ringfence registry 1", hashlib.sha256).hexdigest()
        with self.closed_on_error():
            self._read()

    @classmethod
    def knows(cls, ledger: str) -> bool:
        """Tell whether the user's registry, if there is one, knows the ledger of that identity."""
        if not (state_folder() / "registry.sqlite").exists():
            return False
        with cls() as registry:
            return ledger in registry.ledgers

    def _begin(self, path: Path) -> None:
        """Create key and registry if there is neither; RegistryError if one of them was lost."""
        with served_alone(self._lock, RegistryError, patience=_PATIENCE):
            if path.exists() and self._key_path.exists():  # another process was first
                return
            unfinished = path.with_suffix(".new")  # there until the registry is: a crash came before it was used
            if path.exists() or (self._key_path.exists() and not unfinished.exists()):
                lost, left = (self._key_path, path) if path.exists() else (path, self._key_path)
                raise RegistryError(
                    f"{lost} is missing, and without it nobody can tell which data has which ledger. Nothing was "
                    f"released. Restore it from a backup; or, if it is lost for good, move {left} away, and register "
                    "every silo and ledger again (`ringfence silo register`, or `--same-data-as LEDGER`)."
                )
            self._key_path.unlink(missing_ok=True)
            for rest in path.parent.glob(f"{unfinished.name}*"):
                rest.unlink()
            Chain(unfinished, _KIND, create=True).close()
            write_private(self._key_path, secrets.token_hex(32).encode())
            unfinished.rename(path)

    def close(self) -> None:
        """Close the registry's file; closing twice is fine."""
        self._chain.close()

    def fingerprint(self, marks: RowMarks) -> Fingerprint:
        """Return the fingerprint of data under the registry's key."""
        return marks.fingerprint(self._key)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Read the registry anew, and let no other process change it until the block ends."""
        # Many wait here when thousands of runs begin at once, and longer than SQLite would let them.
        with served_alone(self._lock, RegistryError, patience=_PATIENCE), self._chain.writing():
            self._read()
            yield

    def holders(self, found: Fingerprint) -> list[RegisteredLedger]:
        """Return the registry's ledgers in force of this data, or of data with most of its rows, in any version."""
        return self._in_force(known for known in self.ledgers.values() if any(map(found.is_mostly, known.versions)))

    def alike(self, found: Fingerprint) -> list[RegisteredLedger]:
        """Return the registry's ledgers in force of data with most of these rows in some of the columns."""
        return self._in_force(known for known in self.ledgers.values() if any(map(found.resembles, known.versions)))

    def _in_force(self, held: Iterable[RegisteredLedger]) -> list[RegisteredLedger]:
        """Return the ledgers that succeeded these, or they themselves, each once."""
        return list({last.identity: last for last in map(self.in_force, held)}.values())

    def in_force(self, known: RegisteredLedger) -> RegisteredLedger:
        """Return the registered ledger that succeeded this one, or itself."""
        while known.successor:
            known = self.ledgers[known.successor]
        return known

    # What is written: only inside of `deciding`.

    def hold(self, identity: str, path: Path, silo: str, found: Fingerprint, *, settled: bool) -> None:
        """Record in the registry that the ledger is that of this data; `settled` if a silo's operator confirmed it."""
        body: dict[str, object] = {
            "ledger": identity, "path": os.fspath(path), "silo": silo, "records": found.records,
            "ordered": found.ordered, "rows": found.rows, "distinct": found.distinct, "settled": settled,
            "parts": [[name, part.columns, part.level, part.to_text()] for name, part in found.parts.items()],
        }  # fmt: skip
        if found.persons is not None:
            body["persons"] = found.persons
        self._write(Draft("holds", body, found.least.astype("<u8").tobytes()))

    def move(self, identity: str, path: Path) -> None:
        """Record in the registry that the ledger's file was moved."""
        self._write(Draft("moved", {"ledger": identity, "path": os.fspath(path)}))

    def succeed(self, former: Sequence[RegisteredLedger], by: str) -> None:
        """Record in the registry that the data of the former ledgers has another one from now on."""
        for known in former:
            self._write(Draft("succeeded", {"ledger": known.identity, "by": by}))

    def _write(self, draft: Draft) -> None:
        """Append an entry to the registry of ledgers and apply it."""
        self._apply(self._chain.append(draft, self._number, self._head))

    def _read(self) -> None:
        """Apply the entries that other processes have added to the registry of ledgers."""
        for entry in self._chain.read(self._number, self._head):
            try:
                self._apply(entry)
            except (KeyError, TypeError, ValueError):
                raise RegistryError(
                    f"The registry of data sets {self._chain.path} holds an entry that this version cannot read; "
                    "nothing is released. Install a newer version of Ringfence."
                ) from None

    def _apply(self, entry: Entry) -> None:
        """Apply an entry of the registry: a ledger holds data, was moved, or has a successor."""
        body: Any = entry.body
        if entry.kind == "holds":
            path, silo = Path(body["path"]), str(body["silo"])
            known = self.ledgers.setdefault(body["ledger"], RegisteredLedger(body["ledger"], path, silo))
            version = Sketch(
                records=int(body["records"]),
                ordered=str(body["ordered"]),
                rows=str(body["rows"]),
                distinct=str(body.get("distinct", "")),
                least=np.frombuffer(entry.payload, dtype="<u8"),
                persons=body.get("persons"),
                parts={name: Part.of_text(*part) for name, *part in body.get("parts", ())},
            )
            known.path = path
            known.versions.append(version)
            known.successor = ""
            if body["settled"]:
                known.settled = version
        elif entry.kind == "moved":
            self.ledgers[body["ledger"]].path = Path(body["path"])
        elif entry.kind == "succeeded":
            self.ledgers[body["ledger"]].successor = body["by"]
        else:
            raise KeyError(entry.kind)
        self._number, self._head = entry.number, entry.hash
