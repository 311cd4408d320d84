"""From a source to what a silo keeps of its rows: chunk by chunk, by the public schema, and a mark for every row."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence import sources
from ringfence.errors import RecordsError
from ringfence.protocol.blocks import Readings
from ringfence.protocol.columns import Beyond, Reading
from ringfence.protocol.encoding import read_column, require_columns
from ringfence.protocol.schema import TableColumns
from ringfence.silo.keeping import IN_MEMORY, Growing, Keeping
from ringfence.silo.marks import RowMarks, RowWords
from ringfence.silo.persons import numbered
from ringfence.sources import Chunk, Source
from ringfence.sources.description import describe


class Rows(NamedTuple):
    """All rows of a data set."""

    readings: Readings
    marks: RowMarks
    of_row: NDArray[np.int64] | None


def name_of(source: Source) -> str:
    """Return what messages call a table."""
    return source.name if isinstance(source, Path) else "the table"


def gather(source: Source, columns: TableColumns, keeping: Keeping = IN_MEMORY) -> Rows:
    """Read all rows of a table that has at least one, into where they are kept; the first misfit is named."""
    _require_order(source, columns)
    gathering = Gathering(source, columns, keeping)
    plain = {each for each, column in columns.used.items() if column.is_number and not column.missing_tokens}
    for table in sources.chunks(source, plain):
        gathering.add(table)
    return gathering.all()


class Gathering:
    """Rows as they come in, some below the others; of these a column at a time, so that no more is held twice."""

    def __init__(self, source: Source, columns: TableColumns, keeping: Keeping) -> None:
        self._source, self._columns = source, columns
        numbers = [name for name, column in columns.used.items() if column.is_number]
        rooms = dict(zip(numbers, keeping.rooms(len(numbers), sources.count(source)), strict=True))
        self._values = {name: Growing(keeping, rooms.get(name)) for name in columns.used}
        self._empty = {name: Growing() for name in columns.used}
        self._beyond: dict[str, list[Beyond]] = {}
        self._words = Growing()
        self._persons: list[str] | None = None if columns.person is None else []

    def add(self, table: Chunk) -> None:
        """Take some rows more."""
        used, person, name, first = self._columns.used, self._columns.person, name_of(self._source), len(self._words)
        require_columns([*used, *([] if person is None else [person])], table, source=name)
        count = len(next(iter(table.values()), ()))
        if not count:
            return
        words = RowWords(count)
        for each, cells in table.items():
            if each in used:
                self._keep(each, read_column(each, used[each], cells, source=name, first=first))
            if self._persons is not None and each == person:
                self._persons += _owners(cells, name, first)
            words.add(each, cells)
        self._words.add(words.all())

    def _keep(self, name: str, reading: Reading) -> None:
        values, empty = self._values[name], self._empty[name]
        first = len(values)
        values.add(reading.values)
        if reading.empty is not None:
            empty.fill(first)
            empty.add(reading.empty)
        if reading.beyond is not None:
            self._beyond.setdefault(name, []).append(Beyond(reading.beyond.rows + first, reading.beyond.numbers))

    def all(self) -> Rows:
        """Return them; RecordsError if there is none."""
        source = self._source
        if not len(self._words):
            raise RecordsError(f"{source} has a header but no records: add them, or leave this silo out.")
        readings = {}
        for name, values in self._values.items():
            empty = self._empty[name]
            if len(empty):
                empty.fill(len(values))
            beyond = self._beyond.get(name)
            joined = None if beyond is None else Beyond(*(np.concatenate(part) for part in zip(*beyond, strict=True)))
            readings[name] = Reading(values.array(), empty.array() if len(empty) else None, joined)
        of_row = None if self._persons is None else numbered(self._persons, source=name_of(source))
        path = source if isinstance(source, Path) else None
        marks = RowMarks.of_words(self._words.array(), path, of_row, lambda: _former_marks(source))
        return Rows(readings, marks, of_row)


def _owners(cells: Any, source: str, first: int) -> list[str]:
    texts: list[str] = cells.texts()
    if "" in texts:
        raise RecordsError(
            f"{source}, row {texts.index('') + first + 2} names no person: fill in the column that the schema names "
            "as `person`, or remove the row."
        )
    return texts


def _require_order(source: Source, columns: TableColumns) -> None:
    """See to it that what orders a query's rows is nothing that a model reads.

    Sections go by records' numbers. If a cell that a plan is about decided on its record's number, another cell in its
    place would move other records into other sections.
    """
    for name in sources.order(source):
        if name in columns.used:
            raise RecordsError(
                f"{name_of(source)} sorts rows by the column '{name}', which the schema lets models read: sort by a "
                "column that only identifies rows, of type = 'identifier'."
            )


def _former_marks(source: Source) -> RowMarks | None:
    """Return the marks that versions before 0.3 gave a CSV file; None if they could not read it."""
    if not isinstance(source, Path) or describe(source).file != source:
        return None
    try:
        table = sources.read_table(source)
    except RecordsError:
        return None
    return RowMarks.of_texts({name: cells.texts() for name, cells in table.items()})
