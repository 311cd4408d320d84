"""A silo's whole data set, for plans about any of its columns."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol.encoding import Readings, features_of, read_cells, target_of
from ringfence.protocol.schema import Schema, TableColumns
from ringfence.silo.marks import RowMarks
from ringfence.silo.records import Records, persons_of, read_records
from ringfence.silo.unpicklable import Unpicklable

_KEPT = 4
"""How many encodings are kept: one for each target that plans ask about side by side."""


class DataSet(Unpicklable):
    """All columns of a silo's file, as its public schema lets them be known; a plan names target and features.

    Every cell was read, so that one that does not fit is found before any plan is. What a plan's schema says of a
    column must be what the silo's own says: bounds are the operator's to set. `were_moved` tells that the rows are
    not in the order in which they were registered, `version` which version of the data set the ledger was at when they
    were compared.
    """

    __slots__ = ("_columns", "_encoded", "_of_row", "_readings", "marks", "version", "were_moved")

    def __init__(
        self, columns: TableColumns, readings: Readings, marks: RowMarks, of_row: NDArray[np.int64] | None = None
    ) -> None:
        self._columns = columns
        self._of_row = of_row
        self._readings = readings
        self._encoded: dict[str, Records] = {}
        self.marks = marks
        self.were_moved = False
        self.version: int | None = None

    def __len__(self) -> int:
        return len(self.marks) if self.marks.persons is None else self.marks.persons

    @property
    def rows(self) -> int:
        """How many rows there are; of persons, that is nobody's business but the silo's."""
        return len(self.marks)

    def __repr__(self) -> str:
        unit = "records" if self._of_row is None else "persons"
        return f"<{len(self)} {unit} of {len(self._columns.used)} columns, values hidden>"

    def difference(self, schema: Schema) -> str:
        """Say why a plan with that schema is not about this data, or nothing if it is."""
        return self._columns.difference(schema)

    def encoded(self, schema: Schema) -> Records:
        """Return the records as that schema, from which nothing differs, encodes them."""
        name = schema.canonical().decode()
        if name not in self._encoded:
            while len(self._encoded) >= _KEPT:
                del self._encoded[next(iter(self._encoded))]
            features, targets = features_of(schema, self._readings), target_of(schema, self._readings)
            self._encoded[name] = Records(schema, features, targets, self.marks, self._of_row, self._readings)
        return self._encoded[name]


def load_data_set(path: Path, columns: TableColumns) -> DataSet:
    """Read a CSV file by its public schema; the first cell that does not fit is named by row and column."""
    table = read_records(path)
    readings = read_cells(columns.used, table, source=path.name)
    of_row = persons_of(columns, table, path.name)
    return DataSet(columns, readings, RowMarks.of_table(table, path, of_row), of_row)
