"""A table too large for one machine: its parts are files, held by worker processes inside the silo.

A query's sum over records is a whole number, so workers sum their parts, the agent adds these sums, and the bytes of an
answer are those of one machine. Sampling, noise, ledger and gate stay with the agent. Workers are as trusted as the
agent: they hold records, and their sums have no noise.

The engine that sends work to them (`silo.records.dask_workers`) knows nothing of records: it calls a function with
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
from ringfence.protocol import FloatArray, Schema, load_columns
from ringfence.protocol.schema.roles import Roles
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records import exact_sums
from ringfence.silo.records.dataset import DataSet, load_data_set
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.records import Records
from ringfence.silo.records.storage import IN_MEMORY, Keeping, Unpicklable

AddUp = Callable[[Records, FloatArray], Counts]


class Workers(Protocol):
    """Processes that call functions on request."""

    def each(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Yield a function's result for each job on a divided table's parts, in order; RecordsError if one fails.

        Jobs with an equal first argument go to the same worker while it lives, which caches what it has read.
        """


@dataclass(frozen=True)
class TablePart:
    """A file of a divided table and the schema's file, by paths valid at every worker, and how to keep its rows."""

    path: str
    schema: str
    keeping: Keeping = IN_MEMORY


class DividedDataSet(Unpicklable):
    """A silo's whole data set, in parts that workers hold; the gate uses it as a `DataSet`.

    Its rows cannot change while the agent runs: every job carries the hash of the part's rows when the agent began, and
    a worker computes nothing from other rows.
    """

    __slots__ = ("_columns", "_hashes", "_parts", "_sizes", "_workers", "marks", "version", "were_moved")

    def __init__(self, columns: TableColumns, parts: Sequence[TablePart], workers: Workers, source: Path) -> None:
        """Have workers read the parts of a divided table, which must be without persons."""
        if columns.person is not None:
            raise RecordsError(
                "A table in parts does not support persons yet: a person with rows in two parts would count as two. "
                "If every row belongs to a different person, leave `person` out of the schema; otherwise keep the "
                "table in one file."
            )
        found = list(workers.each(_marks_of, [(part,) for part in parts]))
        self._columns, self._parts, self._workers = columns, list(parts), workers
        self._hashes = [_hash(words) for words in found]
        self.marks = RowMarks(np.concatenate(found), source)
        self._sizes = [len(words) for words in found]
        self.were_moved = False
        self.version: int | None = None

    def __len__(self) -> int:
        """Return the number of records in all parts of the divided table."""
        return len(self.marks)

    @property
    def rows(self) -> int:
        """The number of rows in all parts of the divided table."""
        return len(self.marks)

    def __repr__(self) -> str:
        """Describe the divided table without its values."""
        return f"<{len(self)} records in {len(self._parts)} parts, values hidden>"

    def difference(self, schema: Schema) -> str:
        """Return why a plan with that schema is not about this divided table; empty if it is."""
        return self._columns.difference(schema)

    def clamped_parts(self, roles: Roles, target: str | None) -> list[str]:
        """Return which rows of the divided table have a clamped offset, exposure, weight or time, for operators."""
        found = self._workers.each(_clamped_parts_of, self._jobs(roles, target))
        named = zip(self._parts, found, strict=True)
        return [f"{Path(part.path).name}: {problem}" for part, problems in named for problem in problems]

    def encoded(self, schema: Schema) -> "DividedRecords":
        """Return the divided table's records encoded by that schema, which must not differ."""
        return DividedRecords(self._jobs(schema), self._sizes, self._workers)

    def _jobs(self, *arguments: Any) -> list[tuple[Any, ...]]:
        """Return a worker's job for each part of the divided table."""
        return [(part, rows, *arguments) for part, rows in zip(self._parts, self._hashes, strict=True)]


class DividedRecords(Unpicklable):
    """Encoded records in parts that workers hold: only sums over them are available (`silo.queries.Summed`)."""

    __slots__ = ("_ends", "_jobs", "_workers")

    def __init__(self, jobs: Sequence[tuple[Any, ...]], sizes: Sequence[int], workers: Workers) -> None:
        """Keep the workers' jobs and the number of records in each part of a divided table."""
        self._jobs, self._workers = jobs, workers
        self._ends = np.cumsum(sizes)

    def __len__(self) -> int:
        """Return the number of encoded records in all parts of a divided table."""
        return int(self._ends[-1])

    def __repr__(self) -> str:
        """Describe the encoded records of a divided table without their values."""
        return f"<{len(self)} records in {len(self._jobs)} parts, values hidden>"

    def total(self, add_up: AddUp, chosen: FloatArray, breadth: int) -> Counts:
        """Return the sum of `add_up` over all divided records, of which `chosen` take part, computed by workers."""
        jobs = [
            (*job, add_up, some, breadth)
            for job, some in zip(self._jobs, np.split(chosen, self._ends[:-1]), strict=True)
        ]
        return exact_sums.add_totals(self._workers.each(_total_of, jobs))


def parts_in(folder: Path) -> list[Path]:
    """Return a divided table's parts: the files of a folder, sorted by name."""
    paths = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not paths:
        raise RecordsError(
            f"silo.toml names `workers`, so {folder} must be a folder that holds the parts of a table as files: there "
            "are none."
        )
    return paths


def load_divided(folder: Path, schema: Path, workers: Workers, keeping: Keeping = IN_MEMORY) -> DividedDataSet:
    """Read a divided table, each part by one worker."""
    paths = parts_in(folder)
    parts = [TablePart(str(path.absolute()), str(schema.absolute()), keeping) for path in paths]
    return DividedDataSet(load_columns(schema, lambda: sources.header(paths[0])), parts, workers, folder)


# At a worker.


class _CachedPart:
    """A worker's cached part, and the hash of its rows."""

    read: tuple[DataSet, str] | None = None


@lru_cache(maxsize=16)
def _cached_part(part: TablePart) -> _CachedPart:
    """Return the worker's cache of a part of a divided table."""
    return _CachedPart()


def _read(part: TablePart) -> tuple[DataSet, str]:
    """Read a part of a divided table anew: workers outlive agents, and files change in between."""
    held, path = _cached_part(part), Path(part.path)
    held.read = None
    data = load_data_set(path, load_columns(Path(part.schema), lambda: sources.header(path)), part.keeping)
    held.read = read = data, _hash(data.marks.words)
    return read


def _unchanged(part: TablePart, rows: str) -> DataSet:
    """Return the divided table's part with the rows that the agent began with; RecordsError if they have changed."""
    read = _cached_part(part).read
    if read is None or read[1] != rows:
        read = _read(part)
    if read[1] != rows:
        raise _changed(part.path)
    return read[0]


def _changed(path: str) -> RecordsError:
    """Return the error that a part of a divided table has changed since the agent was started."""
    return RecordsError(f"{path} has changed since the agent was started: restart the agent.")


def _hash(words: NDArray[np.uint64]) -> str:
    """Hash the rows' words of a part of a divided table, to notice changes."""
    return hashlib.sha256(words.tobytes()).hexdigest()


def _marks_of(part: TablePart) -> NDArray[np.uint64]:
    """Read a part of a divided table in a worker, and return its rows' words."""
    return _read(part)[0].marks.words


def _clamped_parts_of(part: TablePart, rows: str, roles: Roles, target: str | None) -> list[str]:
    """Return, from a worker, which rows of a part of a divided table were clamped."""
    return _unchanged(part, rows).clamped_parts(roles, target)


def _total_of(part: TablePart, rows: str, schema: Schema, add_up: AddUp, chosen: FloatArray, breadth: int) -> Counts:
    """Return, from a worker, the sum of `add_up` over one part of a divided table."""
    data = _unchanged(part, rows)
    if data.difference(schema):  # it was none when the agent began
        raise _changed(part.schema)
    return data.encoded(schema).total(add_up, chosen, breadth)
