"""A silo's whole data set, for plans about any of its columns."""

from pathlib import Path

from ringfence.protocol import Schema
from ringfence.protocol.schema.encoding import clamped_parts
from ringfence.protocol.schema.roles import Roles
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records.reading import TableRows, read_rows
from ringfence.silo.records.records import Records
from ringfence.silo.records.storage import IN_MEMORY, Keeping, Unpicklable

_KEPT = 4
"""The most encodings that are kept: one for each target of plans that run side by side."""

_MOST = 2**29
"""Beyond this many bytes of encodings, none is kept beside a new one."""


class DataSet(Unpicklable):
    """All columns of a silo's file, read by its public schema; a plan names target and features.

    Every cell is read, so that one that does not fit is found before any plan is. A plan's schema must agree with the
    silo's own about every column that it uses: the operator sets the bounds. `were_moved` is set if the rows are not in
    their registered order; `version` is the ledger's version of the data set when they were compared.
    """

    __slots__ = ("_columns", "_encoded", "_keeping", "_rows", "marks", "version", "were_moved")

    def __init__(self, columns: TableColumns, rows: TableRows, keeping: Keeping) -> None:
        """Keep all columns of a silo's data set, to be encoded by any plan's schema."""
        self._columns, self._rows, self._keeping = columns, rows, keeping
        self._encoded: dict[str, Records] = {}
        self.marks = rows.marks
        self.were_moved = False
        self.version: int | None = None

    def __len__(self) -> int:
        """Return the number of records or persons in the data set."""
        return len(self.marks) if self.marks.persons is None else self.marks.persons

    @property
    def rows(self) -> int:
        """The number of rows of the data set; where records are persons, this is private to the silo."""
        return len(self.marks)

    def __repr__(self) -> str:
        """Describe the data set without its values."""
        unit = "records" if self.marks.persons is None else "persons"
        return f"<{len(self)} {unit} of {len(self._columns.used)} columns, values hidden>"

    def difference(self, schema: Schema) -> str:
        """Return why a plan with that schema is not about this whole data set; empty if it is."""
        return self._columns.difference(schema)

    def clamped_parts(self, roles: Roles, target: str | None) -> list[str]:
        """Return which rows of the data set have a clamped offset, exposure, weight or time: for the operator only."""
        return clamped_parts(roles, target, self._rows.readings)

    def encoded(self, schema: Schema) -> Records:
        """Return the data set's records encoded by that schema, which must not differ."""
        name = schema.identity
        if name not in self._encoded:
            while len(self._encoded) >= _KEPT or sum(own.features.nbytes for own in self._encoded.values()) > _MOST:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[name] = Records.of_cells(schema, *self._rows, self._keeping)
        return self._encoded[name]


def load_data_set(path: Path, columns: TableColumns, keeping: Keeping = IN_MEMORY) -> DataSet:
    """Read a whole data set by its public schema; RecordsError names row and column of a cell that does not fit."""
    return DataSet(columns, read_rows(path, columns, keeping), keeping)
