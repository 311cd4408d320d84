"""The record of a run at the server: what was asked, what came back, and when a round was closed.

One file of JSON lines, `transcript.jsonl`, that only grows. Its entries, in order:

    run       the plan, whole, and the seed of the choices that it leaves to the server
    asked     a round began: who is asked, and the SHA-256 of what they are asked
    answer    a silo's answer, byte for byte, usable or not, as it arrived
    mixed     what a shuffler let out of the round: the totals of its silos' numbers
    closed    the round is over, and these silos' answers count

No state of an algorithm stands in it: replayed through a fresh `Session`, it gives the same state bit for bit.

An entry is written before it is acted on, so the end of a process loses nothing. It is synced to the disk where a
round is closed, before anybody is asked for the next one. A loss of power may thus cost answers of the open round
only, and silos give those again, byte for byte. Every line carries a check of its content: what a crash tore off or
scrambled, after the last closed round, is found and dropped; damage further up is refused.
"""

import base64
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from ringfence.errors import OutputError, TranscriptError
from ringfence.protocol.plan import Plan, SiloName
from ringfence.protocol.public import Base64, Digest, Public
from ringfence.server.shuffled import Totals

NAME = "transcript.jsonl"

_Round: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Header(Public):
    """The first entry."""

    kind: Literal["run"] = "run"
    format: Literal[1] = 1
    plan: Plan
    seed: int = Field(ge=0, lt=2**53)
    time: str = Field(default_factory=_now)


class Asked(Public):
    """A round began."""

    kind: Literal["asked"] = "asked"
    round: _Round
    silos: tuple[SiloName, ...]
    request: Digest
    time: str = Field(default_factory=_now)


class Answered(Public):
    """Something came from a silo while a round was open. `content` is base64: it may be any bytes."""

    kind: Literal["answer"] = "answer"
    round: _Round
    silo: SiloName
    content: Base64
    time: str = Field(default_factory=_now)

    @classmethod
    def of(cls, round: int, silo: str, content: bytes) -> Self:
        """Record what came."""
        return cls(round=round, silo=silo, content=base64.b64encode(content).decode())

    def answer(self) -> bytes:
        """Return what came."""
        return base64.b64decode(self.content)


class Mixed(Public):
    """The totals that the round's batch adds up to (`server.shuffled`)."""

    kind: Literal["mixed"] = "mixed"
    round: _Round
    silos: int = Field(ge=1)
    totals: Base64
    time: str = Field(default_factory=_now)

    @classmethod
    def of(cls, round: int, totals: Totals) -> Self:
        """Record what came out."""
        return cls(round=round, silos=totals.silos, totals=totals.packed())


class Closed(Public):
    """A round ended with the answers of these silos."""

    kind: Literal["closed"] = "closed"
    round: _Round
    answered: tuple[SiloName, ...]
    time: str = Field(default_factory=_now)


Entry: TypeAlias = Asked | Answered | Mixed | Closed

_ENTRY: TypeAdapter[Header | Entry] = TypeAdapter(Annotated[Header | Entry, Field(discriminator="kind")])

_BEFORE, _BETWEEN, _AFTER = b'{"check":"', b'","entry":', b"}\n"
_CHECK = 32


def _check(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:_CHECK].encode()


def to_line(entry: Header | Entry) -> bytes:
    """Write an entry as a line."""
    content = entry.canonical()
    return _BEFORE + _check(content) + _BETWEEN + content + _AFTER


def from_line(line: bytes) -> Header | Entry | None:
    """Read a line, or return None if it is torn; TranscriptError if it is whole and yet means nothing to us."""
    start = len(_BEFORE) + _CHECK
    content = line[start + len(_BETWEEN) : -len(_AFTER)]
    if line != _BEFORE + _check(content) + _BETWEEN + content + _AFTER:
        return None
    try:
        return _ENTRY.validate_json(content)
    except ValidationError:
        raise TranscriptError(
            "The transcript holds an entry that this version of Ringfence cannot read: go on with the version that "
            "wrote it."
        ) from None


class Transcript:
    """A run's transcript, open for writing by this process alone."""

    def __init__(self, path: Path, file: int, header: Header) -> None:
        self.path = path
        self.header = header
        self._file = file

    @classmethod
    def open(cls, folder: Path, plan: Plan) -> Self:
        """Open the folder's transcript of this plan, or begin one; drop what a crash left torn at its end."""
        path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise OutputError(
                f"{path} cannot be opened ({problem.strerror}): name a folder that this user may write to."
            ) from None
        try:
            _lock(file, folder)
            header, end = _survey(path)
            if header is not None and header.plan.digest() != plan.digest():
                raise TranscriptError(
                    f"The folder {folder} holds a run of another plan, {header.plan.digest()[:12]}: name another "
                    "folder, or give that plan."
                )
            transcript = cls(path, file, header or Header(plan=plan, seed=secrets.randbelow(2**53)))
            if end < os.fstat(file).st_size:
                os.ftruncate(file, end)
            if header is None:
                transcript._write(transcript.header)
                transcript.sync()
                _sync_folder(folder)
            return transcript
        except BaseException:
            os.close(file)
            raise

    def entries(self) -> Iterator[Entry]:
        """Read what stands in it, after the header."""
        return _entries(self.path)

    def append(self, entry: Entry) -> None:
        """Write an entry; a closed round is on the disk, with all before it, when this returns."""
        self._write(entry)
        if isinstance(entry, Closed):
            self.sync()

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fsync(self._file)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def close(self) -> None:
        """Close the file, and let another process go on with the run; closing twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, entry: Header | Entry) -> None:
        line = memoryview(to_line(entry))
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> OutputError:
        return OutputError(
            f"The transcript {self.path} could not be written ({problem.strerror}). Make room or correct the folder's "
            "permissions, then run the same command again: it goes on from what was written."
        )


def read(folder: Path) -> tuple[Header, Iterator[Entry]]:
    """Read a folder's transcript without the right to write to it; a torn end is left out."""
    path = folder / NAME
    if not path.is_file():
        raise TranscriptError(f"The folder {folder} holds no run: there is no {NAME} in it.")
    header, _ = _survey(path)
    if header is None:
        raise TranscriptError(f"{path} has no header yet, so there is nothing to read.")
    return header, _entries(path)


def _lock(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise TranscriptError(
            f"Another process is conducting the run in {folder}: wait for it or end it; two would only disturb "
            "each other."
        ) from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _survey(path: Path) -> tuple[Header | None, int]:
    """Return the header and where the part that can be trusted ends; TranscriptError if the file is damaged."""
    with path.open("rb") as file:
        first = file.readline()
        header = from_line(first)
        if header is None:
            _require_ours(path, first)
            return None, 0
        if not isinstance(header, Header):
            raise TranscriptError(f"{path} does not begin with its header: it is damaged. Restore it or begin anew.")
        round, end = 0, file.tell()
        for line in file:
            entry = from_line(line)
            if entry is None:
                _require_an_end(path, file, round)
                break
            if isinstance(entry, Header):
                raise TranscriptError(f"{path} has two headers: it is damaged. Restore it or begin anew.")
            round = entry.round + isinstance(entry, Closed)
            end += len(line)
    return header, end


def _require_ours(path: Path, first: bytes) -> None:
    """Refuse to overwrite a file that is not the torn beginning of a transcript."""
    if first[: len(_BEFORE)] != _BEFORE[: len(first)] or first.endswith(b"\n"):
        raise TranscriptError(
            f"{path} is not a transcript of Ringfence, or its header is damaged. Restore it, or name another folder."
        )


def _require_an_end(path: Path, rest: BinaryIO, open_round: int) -> None:
    """Refuse a torn line that a later round follows: its round had been synced, so this was no crash of ours."""
    for line in rest:
        later = from_line(line)
        if later is not None and (isinstance(later, Header) or later.round > open_round):
            raise TranscriptError(
                f"{path} is damaged in round {open_round}, and rounds after it are there: restore it from a backup, "
                "or begin anew in another folder."
            )


def _entries(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for line in file:
            entry = from_line(line)
            if entry is None:
                return
            if not isinstance(entry, Header):
                yield entry
