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
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from ringfence.errors import OutputError, TranscriptError
from ringfence.protocol import Digest, EmbeddedPlan, Plan, Public, SiloName
from ringfence.protocol.public import Base64, format_of
from ringfence.server.channels import Totals
from ringfence.storage.files import checksum, require_known_format
from ringfence.storage.lines import Lines
from ringfence.storage.stored_file import Kind

NAME = "transcript.jsonl"

_KIND = Kind("transcript", TranscriptError, unwritable=OutputError)


def _now() -> str:
    """Return the time of a transcript's entry."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunHeader(Public):
    """The first entry. The plan is its own bytes as text."""

    kind: Literal["run"] = "run"
    format: Literal[1] = 1
    plan: EmbeddedPlan
    seed: int = Field(ge=0, lt=2**53)
    time: str = Field(default_factory=_now)


class _OfRound(Public):
    """What every entry after the first has."""

    round: int = Field(ge=0, le=2**53)
    time: str = Field(default_factory=_now)


class Asked(_OfRound):
    """A round began."""

    kind: Literal["asked"] = "asked"
    silos: tuple[SiloName, ...]
    request: Digest


class Answered(_OfRound):
    """Something came from a silo while a round was open. `content` is base64: it may be any bytes."""

    kind: Literal["answer"] = "answer"
    silo: SiloName
    content: Base64

    @classmethod
    def of(cls, round: int, silo: str, content: bytes) -> Self:
        """Return the transcript's entry for what came from a silo."""
        return cls(round=round, silo=silo, content=base64.b64encode(content).decode())

    def answer(self) -> bytes:
        """Return what came from the silo, from the transcript's entry."""
        return base64.b64decode(self.content)


class Mixed(_OfRound):
    """The totals that the round's batch adds up to (`server.channels.shuffler`)."""

    kind: Literal["mixed"] = "mixed"
    silos: int = Field(ge=1)
    totals: Base64

    @classmethod
    def of(cls, round: int, totals: Totals) -> Self:
        """Return the transcript's entry for a round's totals."""
        return cls(round=round, silos=totals.silos, totals=totals.packed())


class Closed(_OfRound):
    """A round ended with the answers of these silos."""

    kind: Literal["closed"] = "closed"
    answered: tuple[SiloName, ...]


RunEntry: TypeAlias = Asked | Answered | Mixed | Closed

_ENTRY: TypeAdapter[RunHeader | RunEntry] = TypeAdapter(Annotated[RunHeader | RunEntry, Field(discriminator="kind")])

_BEFORE, _BETWEEN, _AFTER = b'{"check":"', b'","entry":', b"}\n"
_CHECK = len(checksum(b""))


def to_line(entry: RunHeader | RunEntry) -> bytes:
    """Write a transcript's entry as a line."""
    content = entry.canonical()
    return _BEFORE + checksum(content) + _BETWEEN + content + _AFTER


def from_line(line: bytes) -> RunHeader | RunEntry | None:
    """Read a transcript's line, or return None if it is torn; TranscriptError if it is whole but unknown."""
    start = len(_BEFORE) + _CHECK
    content = line[start + len(_BETWEEN) : -len(_AFTER)]
    if line != _BEFORE + checksum(content) + _BETWEEN + content + _AFTER:
        return None
    with suppress(ValidationError):
        return _ENTRY.validate_json(content)
    require_known_format("transcript", format_of(content), RunHeader.newest_format, TranscriptError)
    raise TranscriptError(
        "The transcript holds an entry that this version of Ringfence cannot read: continue with the version that "
        "wrote it."
    )


class Transcript(Lines):
    """A run's transcript, open for writing by this process alone."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        """Open the folder's transcript of this plan, or start one; drop an incomplete last line left by a crash."""
        super().__init__(folder / NAME, _KIND)
        with self.closed_on_error():
            header, end = _survey(self.path)
            if header is None:
                header = RunHeader(plan=plan, seed=secrets.randbelow(2**53))
            elif header.plan.digest() != plan.digest():
                raise TranscriptError(
                    f"The folder {folder} holds a run of another plan, {header.plan.digest()[:12]}: name another "
                    "folder, or give that plan."
                )
            self.recover(end, to_line(header))
        self.header = header

    def entries(self) -> Iterator[RunEntry]:
        """Read the transcript's entries, after the header."""
        return _entries(self.path)

    def write(self, entry: RunEntry) -> None:
        """Write an entry of the transcript; a closed round is on the disk, with all before it, when this returns."""
        self.append(to_line(entry), sync=isinstance(entry, Closed))


def read_transcript(folder: Path) -> tuple[RunHeader, Iterator[RunEntry]]:
    """Read a folder's transcript without the right to write to it; a torn end is left out."""
    path = folder / NAME
    if not path.is_file():
        raise TranscriptError(f"The folder {folder} holds no run: there is no {NAME} in it.")
    header, _ = _survey(path)
    if header is None:
        raise TranscriptError(f"{path} has no header yet, so there is nothing to read.")
    return header, _entries(path)


def _survey(path: Path) -> tuple[RunHeader | None, int]:
    """Return a transcript's header and where its trusted part ends; TranscriptError if the file is damaged."""
    with path.open("rb") as file:
        first = file.readline()
        header = from_line(first)
        if header is None:
            _require_ours(path, first)
            return None, 0
        if not isinstance(header, RunHeader):
            raise TranscriptError(f"{path} does not begin with its header: it is damaged. Restore it or start again.")
        round, end = 0, file.tell()
        for line in file:
            entry = from_line(line)
            if entry is None:
                _require_an_end(path, file, round)
                break
            if isinstance(entry, RunHeader):
                raise TranscriptError(f"{path} has two headers: it is damaged. Restore it or start again.")
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
    """Refuse a transcript's torn line that a later round follows: its round was synced, so it was no crash of ours."""
    for line in rest:
        later = from_line(line)
        if later is not None and (isinstance(later, RunHeader) or later.round > open_round):
            raise TranscriptError(
                f"{path} is damaged in round {open_round}, and later rounds follow: restore it from a backup, or "
                "start again in another folder."
            )


def _entries(path: Path) -> Iterator[RunEntry]:
    """Read a transcript's entries from its file, up to a torn line."""
    with path.open("rb") as file:
        for line in file:
            entry = from_line(line)
            if entry is None:
                return
            if not isinstance(entry, RunHeader):
                yield entry
