"""A sweep's file, and the tidy table in it: one row per cell, in the order in which they finished."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import WHY, SweepError, os_error_as
from ringfence.simulation.cells import TRIAL, Cell, Row, quoted
from ringfence.storage.lines import Lines
from ringfence.storage.stored_file import Kind

FORMAT = 1

KIND = Kind("sweep", SweepError)
"""The name of a sweep's file in errors, and their class."""


def read_rows(out: Path) -> Iterator[Row]:
    """Stream the complete rows of a sweep's table, also while it runs: parameters, trial, results."""
    parameters = SweepHeader.read(out).parameters
    names = {*parameters, TRIAL}
    for number, line in enumerate(_complete_lines(out), start=1):
        if number == 1:
            continue
        row = _parse(line)
        if number == 2 and row.keys() >= names:
            names = set(row)  # the first row settles which results there are
        if row.keys() != names:
            raise SweepError(
                f"{out} is damaged in line {number}: restore it, or delete the line to run its cell again."
            )
        yield row


@dataclass(frozen=True)
class SweepHeader:
    """The first line of a sweep's file; a resumed sweep must agree with it."""

    label: str
    parameters: tuple[str, ...]

    def line(self) -> bytes:
        """Return the first line of a sweep's table, which names the sweep."""
        return _to_line({"ringfence_sweep": FORMAT, "label": self.label, "parameters": self.parameters})

    @staticmethod
    def read(out: Path) -> "SweepHeader":
        """Read the first line of a sweep's table."""
        content = _parse(next(_complete_lines(out), b""))
        if "ringfence_sweep" not in content:
            raise SweepError(f"{out} is not a sweep's file: choose another one.")
        if content["ringfence_sweep"] != FORMAT:
            raise SweepError(
                f"{out} was written by another version of Ringfence: read it with that version, or run the sweep again."
            )
        return SweepHeader(content["label"], tuple(content["parameters"]))

    def require(self, asked: "SweepHeader", out: Path) -> None:
        """Refuse to continue the table of another sweep."""
        advice = "choose another file, or delete this one to start over"
        if self.label != asked.label:
            raise SweepError(f"{out} holds the sweep '{self.label}', not '{asked.label}': {advice}.")
        if self.parameters != asked.parameters:
            raise SweepError(
                f"{out} has the parameters {quoted(self.parameters)}, not {quoted(asked.parameters)}: {advice}."
            )


class Log:
    """A sweep's file, open at its end for this process alone, and begun if it is new; `finished` are its cells' ids."""

    def __init__(self, lines: Lines, header: SweepHeader) -> None:
        """Open a sweep's file to continue it: cut off a half-written line, and read which cells are finished."""
        self._lines, self._out, self.header = lines, lines.path, header
        self.written = self.skipped = 0
        # Cut off a half-written last line, and write the first line if there is none.
        complete = sum(map(len, _complete_lines(self._out)))
        if complete:
            SweepHeader.read(self._out).require(header, self._out)
        else:
            with self._out.open("rb") as file:
                if not header.line().startswith(file.read()):  # somebody's own file of one line must survive
                    raise SweepError(f"{self._out} is not a sweep's file: choose another one.")
        lines.recover(complete, header.line())
        self.finished: set[str] = set()
        self.names: frozenset[str] | None = None
        for row in read_rows(self._out):
            cell = Cell({name: row[name] for name in header.parameters}, int(row[TRIAL]))
            self.finished.add(cell.id)
            self.names = self.names or frozenset(row.keys() - cell.keys())

    @property
    def done(self) -> int:
        """How many of the sweep's cells met so far are finished, now or before."""
        return self.skipped + self.written

    def append(self, rows: Sequence[Row]) -> None:
        """Add a block's rows to the sweep's table; when this returns they are on the disk."""
        names = frozenset(rows[0].keys() - {*self.header.parameters, TRIAL})
        if self.names is not None and names != self.names:
            raise SweepError(
                f"{self._out} has the results {quoted(self.names)}, but the task now returns {quoted(names)}: "
                "choose another file, or delete this one to start over."
            )
        self.names = names
        self._lines.append(b"".join(map(_to_line, rows)))
        self.written += len(rows)


def _complete_lines(out: Path) -> Iterator[bytes]:
    """Stream the complete lines of a sweep's table; the last one may be half-written."""
    with os_error_as(SweepError, f"{out} cannot be read ({WHY}): check the path."), out.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _to_line(content: Mapping[str, object]) -> bytes:
    """Return a row as a line of the sweep's table."""
    return json.dumps(content).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    """Return the object in a line of a sweep's table; an empty one if it holds none."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
