"""Reading a table by its public schema, chunk by chunk: cells as numbers, a mark for every row, and their persons.

Files, databases, tables in memory and the arguments of estimators are all read here.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence import sources
from ringfence.errors import RecordsError
from ringfence.protocol.schema.blocks import Readings
from ringfence.protocol.schema.columns.base import Beyond, Reading
from ringfence.protocol.schema.encoding import read_column, require_columns
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records.marks import RowMarks, RowWords
from ringfence.silo.records.persons import number_persons
from ringfence.silo.records.storage import IN_MEMORY, GrowingArray, Keeping
from ringfence.sources import Chunk, Source
from ringfence.sources.frames import CellTable


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


def read_rows(source: Source, columns: TableColumns, keeping: Keeping = IN_MEMORY) -> TableRows:
    """Read all rows of a table; RecordsError names the first cell that does not fit the schema."""
    _require_order(source, columns)
    collector = RowCollector(source, columns, keeping)
    plain = {each for each, column in columns.used.items() if column.is_number and not column.missing_tokens}
    for table in sources.chunks(source, plain):
        collector.add(table)
    return collector.all()


class RowCollector:
    """Accumulates chunks, column by column, so that no more than a column is held twice."""

    def __init__(self, source: Source, columns: TableColumns, keeping: Keeping) -> None:
        """Begin to collect the rows of a table that is read chunk by chunk."""
        self._source, self._columns = source, columns
        numbers = [name for name, column in columns.used.items() if column.is_number]
        empty_columns = dict(zip(numbers, keeping.empty_columns(len(numbers), sources.count(source)), strict=True))
        self._values = {name: GrowingArray(keeping, empty_columns.get(name)) for name in columns.used}
        self._empty = {name: GrowingArray() for name in columns.used}
        self._beyond: dict[str, list[Beyond]] = {}
        self._words = GrowingArray()
        self._persons: list[str] | None = None if columns.person is None else []

    def add(self, table: Chunk) -> None:
        """Append a chunk of the table to the rows read so far."""
        used, person, name, first = self._columns.used, self._columns.person, name_of(self._source), len(self._words)
        require_columns([*used, *([] if person is None else [person])], table, source=name)
        count = len(next(iter(table.values()), ()))
        if not count:
            return
        words = RowWords(count)
        identity = self._source.identity if isinstance(self._source, CellTable) else None
        for each, cells in table.items():
            if each in used:
                origin = name_of(self._source, each)
                self._keep(each, read_column(each, used[each], cells, source=origin, first=first))
            if self._persons is not None and each == person:
                self._persons += cells.texts()
            if identity is None:
                words.add(each, cells)
        for each, cells in (identity or {}).items():
            words.add(each, cells)
        self._words.add(words.all())

    def _keep(self, name: str, reading: Reading) -> None:
        """Append a chunk's reading of one column to the rows read so far."""
        values, empty = self._values[name], self._empty[name]
        first = len(values)
        values.add(reading.values)
        if reading.empty is not None:
            empty.fill(first)
            empty.add(reading.empty)
        if reading.beyond is not None:
            self._beyond.setdefault(name, []).append(Beyond(reading.beyond.rows + first, reading.beyond.numbers))

    def all(self) -> TableRows:
        """Return all rows read from the table; RecordsError if there is none."""
        source = self._source
        if not len(self._words):
            table = source if isinstance(source, Path) else name_of(source)
            raise RecordsError(f"{table} has a header but no records: add them, or leave this silo out.")
        readings = {}
        for name, values in self._values.items():
            empty = self._empty[name]
            if len(empty):
                empty.fill(len(values))
            beyond = self._beyond.get(name)
            joined = None if beyond is None else Beyond(*(np.concatenate(part) for part in zip(*beyond, strict=True)))
            readings[name] = Reading(values.array(), empty.array() if len(empty) else None, joined)
        of_row = None if self._persons is None else number_persons(self._persons, source=name_of(source))
        path = source if isinstance(source, Path) else None
        marks = RowMarks(self._words.array(), path, of_row)
        return TableRows(readings, marks, of_row)


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
