"""A table that outgrows one machine: its parts are files, held by worker processes inside the silo.

A question's sum over records is a whole number, so workers add up their parts, the agent adds these sums up, and the
bytes of an answer are those of one machine. Who takes part, noise, ledger and gate stay with the agent. Workers are as
trusted as the agent: they hold records, and their sums are without noise.

What sends work to them (`silo.dask_workers`) knows nothing of records: it is an engine that calls a function with
arguments in some process, and again in another if that one dies.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringfence import sources
from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.roles import Roles
from ringfence.protocol.schema import Schema, TableColumns, load_columns
from ringfence.silo import chunks
from ringfence.silo.dataset import DataSet, load_data_set
from ringfence.silo.exact_sums import Counts
from ringfence.silo.keeping import IN_MEMORY, Keeping
from ringfence.silo.marks import RowMarks
from ringfence.silo.records import Records
from ringfence.silo.unpicklable import Unpicklable

AddUp = Callable[[Records, FloatArray], Counts]


class Workers(Protocol):
    """Processes that can be asked to call functions."""

    def each(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Return what the function returns for each job, in their order; RecordsError if nobody can do one.

        Jobs with an equal first argument go to the same worker while it lives, which remembers what it has read.
        """


@dataclass(frozen=True)
class Part:
    """A file of a table in parts, the schema's file, and how a worker keeps it: by names that every worker knows."""

    path: str
    schema: str
    keeping: Keeping = IN_MEMORY


class DividedDataSet(Unpicklable):
    """A silo's whole data set, in parts that workers hold: to the gate, what a `DataSet` is.

    Its rows cannot change while the agent runs: with every job a worker is told the hash of the part's rows as they
    were when the agent began, and computes nothing of others. So what workers said of a schema is remembered.
    """

    __slots__ = (
        "_columns",
        "_hashes",
        "_parts",
        "_sizes",
        "_workers",
        "marks",
        "version",
        "were_moved",
    )

    def __init__(self, columns: TableColumns, parts: Sequence[Part], workers: Workers, source: Path) -> None:
        if columns.person is not None:
            raise RecordsError(
                "A table in parts does not support persons yet: a person with rows in two parts would count as two. "
                "If every row belongs to a different person, leave `person` out of the schema; otherwise keep the "
                "table in one file."
            )
        found = list(workers.each(_marks_of, [(part,) for part in parts]))
        self._columns, self._parts, self._workers = columns, list(parts), workers
        self._hashes = [_hash(words) for words in found]
        self.marks = RowMarks.of_words(np.concatenate(found), source, former=self._former_marks)
        self._sizes = [len(words) for words in found]
        self.were_moved = False
        self.version: int | None = None

    def _former_marks(self) -> RowMarks | None:
        """Return the marks that versions before 0.3 gave the same rows, in one file."""
        found = list(self._workers.each(_former_marks_of, self._jobs()))
        digests = [own for own in found if own is not None]
        return RowMarks.of_digests(digests) if len(digests) == len(found) else None

    def __len__(self) -> int:
        return len(self.marks)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.marks)

    def __repr__(self) -> str:
        return f"<{len(self)} records in {len(self._parts)} parts, values hidden>"

    def difference(self, schema: Schema) -> str:
        """Say why a plan with that schema is not about this data, or nothing if it is."""
        return self._columns.difference(schema)

    def clamped_parts(self, roles: Roles, target: str | None) -> list[str]:
        """Say which row of each part has an offset, exposure, weight or time that is clamped: to the operator alone."""
        found = self._workers.each(_clamped_parts_of, self._jobs(roles, target))
        named = zip(self._parts, found, strict=True)
        return [f"{Path(part.path).name}: {problem}" for part, problems in named for problem in problems]

    def encoded(self, schema: Schema) -> "DividedRecords":
        """Return the records as that schema, from which nothing differs, encodes them."""
        return DividedRecords(self._jobs(schema), self._sizes, self._workers)

    def _jobs(self, *arguments: Any) -> list[tuple[Any, ...]]:
        return [(part, rows, *arguments) for part, rows in zip(self._parts, self._hashes, strict=True)]


class DividedRecords(Unpicklable):
    """Encoded records in parts that workers hold: all that can be had of them is sums (`silo.questions.Summed`)."""

    __slots__ = ("_ends", "_jobs", "_workers")

    def __init__(self, jobs: Sequence[tuple[Any, ...]], sizes: Sequence[int], workers: Workers) -> None:
        self._jobs, self._workers = jobs, workers
        self._ends = np.cumsum(sizes)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __repr__(self) -> str:
        return f"<{len(self)} records in {len(self._jobs)} parts, values hidden>"

    def total(self, add_up: AddUp, chosen: FloatArray, breadth: int) -> Counts:
        """Return what `add_up` gives for all records, of which `chosen` take part: added up by workers."""
        jobs = [
            (*job, add_up, some, breadth)
            for job, some in zip(self._jobs, np.split(chosen, self._ends[:-1]), strict=True)
        ]
        return chunks.summed(self._workers.each(_total_of, jobs))


def parts_in(folder: Path) -> list[Path]:
    """Return a table's parts: the files of a folder, in the order of their names."""
    paths = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not paths:
        raise RecordsError(
            f"silo.toml names `workers`, so {folder} must be a folder that holds the parts of a table as files: there "
            "are none."
        )
    return paths


def load_divided(folder: Path, schema: Path, workers: Workers, keeping: Keeping = IN_MEMORY) -> DividedDataSet:
    """Have a table's parts read by workers, each by one."""
    paths = parts_in(folder)
    parts = [Part(str(path.absolute()), str(schema.absolute()), keeping) for path in paths]
    return DividedDataSet(load_columns(schema, lambda: sources.header(paths[0])), parts, workers, folder)


# At a worker.


class _Held:
    """A part as a worker last read it, and the hash of its rows."""

    read: tuple[DataSet, str] | None = None


@lru_cache(maxsize=16)
def _held(part: Part) -> _Held:
    return _Held()


def _read(part: Part) -> tuple[DataSet, str]:
    """Read a part, and let go of what was read of it before: workers outlive agents, and files change in between."""
    held, path = _held(part), Path(part.path)
    held.read = None
    data = load_data_set(path, load_columns(Path(part.schema), lambda: sources.header(path)), part.keeping)
    held.read = read = data, _hash(data.marks.words)
    return read


def _unchanged(part: Part, rows: str) -> DataSet:
    """Return the part with the rows that the agent began with, which another worker may have read then."""
    read = _held(part).read
    if read is None or read[1] != rows:
        read = _read(part)
    if read[1] != rows:
        raise _changed(part.path)
    return read[0]


def _changed(path: str) -> RecordsError:
    return RecordsError(f"{path} has changed since the agent was started: restart the agent.")


def _hash(words: NDArray[np.uint64]) -> str:
    return hashlib.sha256(words.tobytes()).hexdigest()


def _marks_of(part: Part) -> NDArray[np.uint64]:
    return _read(part)[0].marks.words


def _former_marks_of(part: Part, rows: str) -> bytes | None:
    return _unchanged(part, rows).marks.former_digests()


def _clamped_parts_of(part: Part, rows: str, roles: Roles, target: str | None) -> list[str]:
    return _unchanged(part, rows).clamped_parts(roles, target)


def _total_of(part: Part, rows: str, schema: Schema, add_up: AddUp, chosen: FloatArray, breadth: int) -> Counts:
    data = _unchanged(part, rows)
    if data.difference(schema):  # it was none when the agent began
        raise _changed(part.schema)
    return data.encoded(schema).total(add_up, chosen, breadth)
