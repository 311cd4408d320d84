"""Reading a table by its public schema, chunk by chunk: cells as numbers, a mark for every row, and their persons.

Files, databases, tables in memory and the arguments of estimators are all read here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringfence import sources
from ringfence.errors import RecordsError
from ringfence.protocol.schema.blocks import Readings
from ringfence.protocol.schema.columns.base import Beyond, Reading
from ringfence.protocol.schema.encoding import read_column, require_columns
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records.column_sets import ColumnSets
from ringfence.silo.records.marks import RowMarks, row_words
from ringfence.silo.records.persons import number_persons
from ringfence.silo.records.storage import IN_MEMORY, GrowingArray, Keeping
from ringfence.sources import Chunk, Source
from ringfence.sources.frames import CellTable

Watch: TypeAlias = Callable[[Chunk], object]
"""Called with every chunk of a table that is read, as it stands: for those who may see the records."""


class TableRows(NamedTuple):
    """All rows of a table: cells as read, marks, and the number of each row's person."""

    readings: Readings
    marks: RowMarks
    of_row: NDArray[np.int64] | None


def name_of(source: Source, column: str = "") -> str:
    """Return the name of a table in messages, or of the argument that one of its columns came from."""
    if isinstance(source, CellTable):
        return source.origins.get(column, source.name)
    return source.name if isinstance(source, Path) else "the table"


def read_rows(
    source: Source, columns: TableColumns, keeping: Keeping = IN_MEMORY, watch: Watch = lambda chunk: None
) -> TableRows:
    """Read all rows of a table; RecordsError names the first cell that does not fit the schema."""
    _require_order(source, columns)
    used, person, name = columns.used, columns.person, name_of(source)
    numbers = [each for each, column in used.items() if column.is_number]
    rooms = dict(zip(numbers, keeping.empty_columns(len(numbers), sources.count(source)), strict=True))
    readings = {each: GrowingReading(keeping, rooms.get(each)) for each in used}
    identity = source.identity if isinstance(source, CellTable) else None
    marks, path = GrowingArray(), source if isinstance(source, Path) else None
    sets, persons = ColumnSets(() if path is None else used), list[str]()
    plain = {each for each, column in used.items() if column.is_plain_number and not column.missing_tokens}
    for table in sources.chunks(source, plain):
        require_columns([*used, *([] if person is None else [person])], table, source=name)
        count, first = len(next(iter(table.values()), ())), len(marks)
        if not count:
            continue
        for each, cells in table.items():
            if each in used:
                readings[each].add(read_column(each, used[each], cells, source=name_of(source, each), first=first))
            if each == person:
                persons += cells.texts()
        marks.add(row_words(count, table if identity is None else identity, sets))
        watch(table)
    if not len(marks):
        raise RecordsError(f"{path or name} has a header but no records: add them, or leave this silo out.")
    of_row = None if person is None else number_persons(persons, source=name)
    taken = {each: reading.all() for each, reading in readings.items()}
    return TableRows(taken, RowMarks(marks.array(), path, of_row, sets.samples()), of_row)


class GrowingReading:
    """One column of a table, as its chunks are read: no more than a column is held twice."""

    def __init__(self, keeping: Keeping = IN_MEMORY, room: NDArray[Any] | None = None) -> None:
        """Begin to read a column, in a given array if there is one."""
        self._values, self._empty = GrowingArray(keeping, room), GrowingArray()
        self._beyond: list[Beyond] = []

    def add(self, reading: Reading) -> None:
        """Append a chunk's reading of the column."""
        first = len(self._values)
        self._values.add(reading.values)
        if reading.empty is not None:
            self._empty.fill(first)
            self._empty.add(reading.empty)
        if reading.beyond is not None:
            self._beyond.append(Beyond(reading.beyond.rows + first, reading.beyond.numbers))

    def all(self) -> Reading:
        """Return the reading of the whole column."""
        if len(self._empty):
            self._empty.fill(len(self._values))
        beyond = Beyond(*map(np.concatenate, zip(*self._beyond, strict=True))) if self._beyond else None
        return Reading(self._values.array(), self._empty.array() if len(self._empty) else None, beyond)


def _require_order(source: Source, columns: TableColumns) -> None:
    """Raise RecordsError if a source sorts its rows by a column that models may read.

    Sections go by records' numbers. If a cell decided its record's number, replacing it could move other records into
    other sections.
    """
    for name in sources.order(source):
        if name in columns.used:
            raise RecordsError(
                f"{name_of(source)} sorts rows by the column '{name}', which the schema lets models read: sort by a "
                "column that only identifies rows, of type = 'identifier'."
            )
