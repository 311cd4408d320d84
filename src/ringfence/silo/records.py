"""A silo's records in memory: never printed, never pickled."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.encoding import Readings, Table, cells_of, features_of, read_cells, read_csv, target_of
from ringfence.protocol.plan import Plan
from ringfence.protocol.schema import Schema, TableColumns
from ringfence.silo import exact_sums
from ringfence.silo.marks import RowMarks
from ringfence.silo.persons import Persons, numbered
from ringfence.silo.unpicklable import Unpicklable


class Records(Unpicklable):
    """Encoded records and the public schema they were read with; features are rounded so that sums can be exact.

    The number of records is public (the guarantee is against *replacing* one); their values are not, so
    neither `repr` nor an exception nor a pickle can carry them out. `marks` are those of the data set that they were
    read from, by which its ledger is found again; records that somebody computed have none, and no say in which ledger
    is theirs.

    Where the schema tells persons apart, `of_row` numbers the person of each row, and a record is a person: their
    number is public, and how many rows each has is not. Rows are kept in the order of their persons.

    `cells` are what the features and targets were made of, for questions about columns; records that somebody computed
    have none.
    """

    __slots__ = ("cells", "features", "marks", "norms", "persons", "schema", "targets")
    were_moved = False
    version: int | None = None

    def __init__(
        self,
        schema: Schema,
        features: FloatArray,
        targets: FloatArray,
        marks: RowMarks | None = None,
        of_row: NDArray[np.int64] | None = None,
        cells: Readings | None = None,
    ) -> None:
        if len(targets) == 0:
            raise RecordsError("This silo has no records, so it has nothing to contribute: leave it out.")
        self.persons: Persons | None = None
        if of_row is not None:
            order = np.argsort(of_row, kind="stable")
            features, targets, self.persons = features[order], targets[order], Persons(of_row[order])
            cells = _rows_of(cells, order)
        self.schema = schema
        self.cells = cells
        self.features = exact_sums.rounded_rows(features)
        self.targets = targets
        self.marks = marks
        self.norms: FloatArray = exact_sums.norms(self.features)

    def __len__(self) -> int:
        return len(self.targets) if self.persons is None else len(self.persons)

    @property
    def rows(self) -> int:
        """How many rows there are; of persons, that is nobody's business but the silo's."""
        return len(self.targets)

    def __repr__(self) -> str:
        unit = "records" if self.persons is None else "persons"
        return f"<{len(self)} {unit} of {self.schema.width} features, values hidden>"

    def shares(self, plan: Plan, chosen: FloatArray) -> FloatArray:
        """Return what each row counts for, if the chosen records take part."""
        return chosen if self.persons is None else chosen[self.persons.of_row] * self.persons.shares(plan)

    def means(self, values: FloatArray) -> FloatArray:
        """Return each record's numbers, of rows of numbers of at most 1: a person's are the mean of theirs."""
        return values if self.persons is None else self.persons.means(values)

    def spread_features(self, largest: float, chosen: FloatArray) -> FloatArray:
        """Return bounded features of the chosen records, whose outer products add up to the mean of a person's rows."""
        if self.persons is None:
            return self.bounded_features(largest) * chosen[:, None]
        features = self.bounded_features(largest) * chosen[self.persons.of_row, None]
        scales = 2.0**exact_sums.ROW_BITS / np.sqrt(self.persons.rows[self.persons.of_row])
        return np.trunc(features * scales[:, None]) / 2.0**exact_sums.ROW_BITS

    def bounded_features(self, largest: float) -> FloatArray:
        """Return the features in units of `largest`: cut to norm 1 once more, and to multiples of 2⁻³¹."""
        kept = 1 - exact_sums.slack(self.features.shape[1])
        cut: FloatArray = self.features * np.minimum(kept / largest, kept / np.maximum(self.norms, TINY))[:, None]
        cut *= 2.0**exact_sums.ROW_BITS
        np.trunc(cut, out=cut)
        cut /= 2.0**exact_sums.ROW_BITS
        return cut

    def along(self, axes: FloatArray) -> "Records":
        """Return the records with features along axes, a row each: of each a function of its own features alone.

        The product is exact but for the axes' last digits and one rounding (`exact_sums.limbs`).
        """
        with np.errstate(invalid="ignore", over="ignore"):  # what is no number is cut, or counts as 0
            high, low = np.split(self.features @ exact_sums.limbs(axes.T), 2, axis=1)
            features = np.nan_to_num(high + low, copy=False, nan=0.0)
        of_row = None if self.persons is None else self.persons.of_row
        return Records(self.schema, features, self.targets, self.marks, of_row)

    def take(self, chosen: NDArray[np.int64]) -> "Records":
        """Return the given records: a part of the same data set."""
        if self.persons is None:
            taken = _rows_of(self.cells, chosen)
            return Records(self.schema, self.features[chosen], self.targets[chosen], self.marks, cells=taken)
        places = np.full(len(self), -1)
        places[chosen] = np.arange(len(chosen))
        of_row = places[self.persons.of_row]
        rows = of_row >= 0
        taken = _rows_of(self.cells, rows)
        return Records(self.schema, self.features[rows], self.targets[rows], self.marks, of_row[rows], taken)

    def difference(self, schema: Schema) -> str:
        """Say why a plan with that schema is not about these records, or nothing if it is."""
        if schema.person is not None and self.persons is None:
            return "the plan protects persons, and these records do not say whose they are"
        return "" if schema == self.schema else "its records were read with another schema"

    def encoded(self, schema: Schema) -> "Records":
        """Return the records as that schema encodes them: there is one that they can be had by."""
        if schema != self.schema:
            raise RecordsError("These records were read with another schema: read them again from their file.")
        return self


def load_records(path: Path, schema: Schema) -> Records:
    """Read a CSV file by its public schema; the first cell that does not fit is named by row and column."""
    table = read_records(path)
    cells = read_cells(schema.used, table, source=path.name)
    of_row = persons_of(schema, table, path.name)
    marks = RowMarks.of_table(table, path, of_row)
    return Records(schema, features_of(schema, cells), target_of(schema, cells), marks, of_row, cells)


def _rows_of(cells: Readings | None, rows: NDArray[Any]) -> Readings | None:
    return None if cells is None else {name: reading.take(rows) for name, reading in cells.items()}


def persons_of(columns: TableColumns, table: Table, source: str) -> NDArray[np.int64] | None:
    """Return the number of each row's person, if the schema says which column tells; the cells are kept nowhere."""
    return None if columns.person is None else numbered(cells_of(columns.person, table, source), source=source)


def read_records(path: Path) -> Table:
    """Read the cells of a CSV file that has at least one record."""
    table = read_csv(path)
    if not table[next(iter(table))]:
        raise RecordsError(f"{path} has a header but no records: leave this silo out, or give it its data.")
    return table
