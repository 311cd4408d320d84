"""A silo's whole data set, for plans about any of its columns."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.blocks import Readings
from ringfence.protocol.encoding import clamped_parts
from ringfence.protocol.roles import Roles
from ringfence.protocol.schema import Schema, TableColumns
from ringfence.silo.keeping import IN_MEMORY, Keeping
from ringfence.silo.marks import RowMarks
from ringfence.silo.reading import gather
from ringfence.silo.records import Records
from ringfence.silo.unpicklable import Unpicklable

_KEPT = 4
"""How many encodings are kept: one for each target that plans ask about side by side."""

_MOST = 2**29
"""With that many bytes of encodings, no other is kept beside a new one."""


class DataSet(Unpicklable):
    """All columns of a silo's file, as its public schema lets them be known; a plan names target and features.

    Every cell was read, so that one that does not fit is found before any plan is. What a plan's schema says of a
    column must be what the silo's own says: bounds are the operator's to set. `were_moved` tells that the rows are
    not in the order in which they were registered, `version` which version of the data set the ledger was at when they
    were compared.
    """

    __slots__ = ("_columns", "_encoded", "_keeping", "_of_row", "_readings", "marks", "version", "were_moved")

    def __init__(
        self,
        columns: TableColumns,
        readings: Readings,
        marks: RowMarks,
        of_row: NDArray[np.int64] | None = None,
        keeping: Keeping = IN_MEMORY,
    ) -> None:
        self._columns = columns
        self._of_row = of_row
        self._readings = readings
        self._keeping = keeping
        self._encoded: dict[str, Records] = {}
        self.marks = marks
        self.were_moved = False
        self.version: int | None = None

    def __len__(self) -> int:
        return len(self.marks) if self.marks.persons is None else self.marks.persons

    @property
    def rows(self) -> int:
        """The number of rows; where records are persons, this is private to the silo."""
        return len(self.marks)

    def __repr__(self) -> str:
        unit = "records" if self._of_row is None else "persons"
        return f"<{len(self)} {unit} of {len(self._columns.used)} columns, values hidden>"

    def difference(self, schema: Schema) -> str:
        """Say why a plan with that schema is not about this data, or nothing if it is."""
        return self._columns.difference(schema)

    def clamped_parts(self, roles: Roles, target: str | None) -> list[str]:
        """Say which row's offset, exposure, weight or time is clamped: for the operator only."""
        return clamped_parts(roles, target, self._readings)

    def encoded(self, schema: Schema) -> Records:
        """Return the records as that schema, from which nothing differs, encodes them."""
        name = schema.identity
        if name not in self._encoded:
            while len(self._encoded) >= _KEPT or sum(own.features.nbytes for own in self._encoded.values()) > _MOST:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[name] = Records.of_cells(schema, self._readings, self.marks, self._of_row, self._keeping)
        return self._encoded[name]


def load_data_set(path: Path, columns: TableColumns, keeping: Keeping = IN_MEMORY) -> DataSet:
    """Read a table by its public schema; the first cell that does not fit is named by row and column."""
    rows = gather(path, columns, keeping)
    return DataSet(columns, rows.readings, rows.marks, rows.of_row, keeping)
