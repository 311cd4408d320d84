"""A silo's data set, and its records as a plan's schema encodes them: never printed, never pickled."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol import Axes, FloatArray, Plan, Schema
from ringfence.protocol.arrays import TINY, pieces, row_norms
from ringfence.protocol.plan.effort import LEAST_AT_ONCE, PART, at_once
from ringfence.protocol.schema.blocks import Readings
from ringfence.protocol.schema.encoding import clamped_parts, features_of, require_within, target_of
from ringfence.protocol.schema.roles import Roles
from ringfence.protocol.schema.schema import TableColumns
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts, Precision
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.persons import Persons
from ringfence.silo.records.reading import TableRows, Watch, name_of, read_rows
from ringfence.silo.records.storage import IN_MEMORY, Keeping, Unpicklable
from ringfence.sources import Source

_KEPT = 4
"""The most encodings that are kept: one for each target of plans that run side by side."""

_MOST = 2**29
"""Beyond this many bytes of encodings, none is kept beside a new one."""


class Records(Unpicklable):
    """Encoded records and the public schema they were read with; features are rounded so that sums can be exact.

    The number of records is public (the guarantee is against *replacing* one); their values are not, so neither `repr`
    nor an exception nor a pickle can carry them out. `marks` identify the data set that they were read from, so that
    its ledger is found again; computed records have none, and do not decide which ledger is theirs.

    Where the schema identifies persons, `of_row` numbers the person of each row, and a record is a person: the number
    of persons is public, the number of rows of each is not. Rows are kept in the order of their persons.

    `keeping` says where and how the features are stored (`silo.records.storage`): sums are exact in any case.

    `cells` are what the features and targets were made from, for queries about columns; computed records have none.
    """

    __slots__ = ("_again", "cells", "features", "keeping", "marks", "norms", "persons", "schema", "targets")
    were_moved = False
    version: int | None = None

    @classmethod
    def of_cells(
        cls,
        schema: Schema,
        cells: Readings,
        marks: RowMarks | None = None,
        of_row: NDArray[np.int64] | None = None,
        keeping: Keeping = IN_MEMORY,
    ) -> "Records":
        """Encode a table's cells as records, a block of rows at a time."""

        def features(rows: Any) -> FloatArray:
            """Return the encoded features of some of the records."""
            return features_of(schema, _doubles(cells, rows))

        return cls(schema, features, target_of(schema, cells).astype(np.float64), marks, of_row, cells, keeping)

    def __init__(
        self,
        schema: Schema,
        features: FloatArray | Callable[[Any], FloatArray],
        targets: FloatArray,
        marks: RowMarks | None = None,
        of_row: NDArray[np.int64] | None = None,
        cells: Readings | None = None,
        keeping: Keeping = IN_MEMORY,
    ) -> None:
        """Keep the features of all records' rows, or what a function returns for some of them."""
        features_at = features if callable(features) else features.__getitem__
        count = len(targets)
        if count == 0:
            raise RecordsError("This silo has no records, so it has nothing to contribute: leave it out.")
        order: NDArray[np.int64] | None = None
        self.persons: Persons | None = None
        if of_row is not None:
            order = np.argsort(of_row, kind="stable")
            targets, self.persons = targets[order], Persons(of_row[order])
            cells = _rows_of(cells, order)
        self.schema = schema
        self._again: Records | None = None
        self.cells = cells
        self.targets = targets
        self.marks = marks
        self.keeping = keeping
        width = features_at(slice(0, 1)).shape[1]
        self.features = keeping.empty((count, width), keeping.precision.dtype)
        self.norms: FloatArray = np.empty(count)
        for part in pieces(count, max(1, PART // width)):
            rows = features_at(part if order is None else order[part])
            rounded = exact_sums.rounded_rows(rows, self.precision.row_bits)
            self.features[part] = rounded
            self.norms[part] = row_norms(rounded)

    @property
    def precision(self) -> Precision:
        """How the records' features are stored."""
        return self.keeping.precision

    def __len__(self) -> int:
        """Return the number of records, or of persons."""
        return len(self.targets) if self.persons is None else len(self.persons)

    @property
    def rows(self) -> int:
        """The number of rows of these records; where records are persons, this is private to the silo."""
        return len(self.targets)

    def __repr__(self) -> str:
        """Describe the encoded records without their values."""
        unit = "records" if self.persons is None else "persons"
        return f"<{len(self)} {unit} of {self.schema.width} features, values hidden>"

    def table_cells(self, purpose: str) -> Readings:
        """Return the cells that the records were made from; RecordsError if they were computed."""
        if self.cells is None:
            raise RecordsError(
                f"{purpose} a table's cells, but these records were not read from a table: give their file."
            )
        return self.cells

    def block(self, rows: slice = slice(None)) -> FloatArray:
        """Return the features of some rows of the records, in double precision."""
        return self.features[rows].astype(np.float64, copy=False)

    def total(self, add_up: Callable[["Records", FloatArray], Counts], chosen: FloatArray, breadth: int) -> Counts:
        """Return the sum of `add_up` over all records, of which `chosen` take part: in parts, on several threads.

        A record takes about `breadth` numbers while it is processed. `add_up` must return whole numbers that add up
        over any division of the records, so that the division changes no byte.
        """
        some, least = at_once(self.rows, breadth), LEAST_AT_ONCE // 2
        most = least if some <= least else max(least, -(-some // exact_sums.sum_threads()))
        return exact_sums.sum_in_threads(
            [partial(add_up, self._part(members, rows), chosen[members]) for members, rows in self._parts(most)]
        )

    def _parts(self, most: int) -> Iterator[tuple[slice, slice]]:
        """Divide the records into parts of at most that many rows: which records, and which rows."""
        if self.persons is not None:
            return self.persons.parts(most)
        return ((part, part) for part in pieces(self.rows, most))

    def _part(self, members: slice, rows: slice) -> "Records":
        """Return some of the records, for a sum. How long that takes must not tell whether any cell was clamped."""
        part = Records.__new__(Records)
        part.schema, part.marks, part.keeping = self.schema, self.marks, self.keeping
        part.features, part.targets, part.norms = self.features[rows], self.targets[rows], self.norms[rows]
        part.persons = None if self.persons is None else Persons(self.persons.of_row[rows] - members.start)
        cells = self.cells
        part.cells = None if cells is None else {name: reading.within(rows) for name, reading in cells.items()}
        return part

    def shares(self, plan: Plan, chosen: FloatArray) -> FloatArray:
        """Return each row's weight in the sum, if the chosen records take part."""
        return chosen if self.persons is None else chosen[self.persons.of_row] * self.persons.shares(plan)

    def means(self, values: FloatArray) -> FloatArray:
        """Return each record's numbers, each at most 1: for a person, the mean over their rows."""
        return values if self.persons is None else self.persons.means(values)

    def spread_features(self, largest: float, chosen: FloatArray) -> FloatArray:
        """Return bounded features whose outer products sum, for each chosen person, to the mean over their rows."""
        if self.persons is None:
            return self.bounded_features(largest) * chosen[:, None]
        features = self.bounded_features(largest) * chosen[self.persons.of_row, None]
        scales = 2.0**exact_sums.ROW_BITS / np.sqrt(self.persons.rows[self.persons.of_row])
        return np.trunc(features * scales[:, None]) / 2.0**exact_sums.ROW_BITS

    def bounded_features(self, largest: float) -> FloatArray:
        """Return the features in units of `largest`, clipped to norm 1 and rounded to multiples of 2⁻³¹."""
        kept = 1 - exact_sums.slack(self.features.shape[1])
        clipped: FloatArray = self.block() * np.minimum(kept / largest, kept / np.maximum(self.norms, TINY))[:, None]
        clipped *= 2.0**exact_sums.ROW_BITS
        np.trunc(clipped, out=clipped)
        clipped /= 2.0**exact_sums.ROW_BITS
        return clipped

    def along(self, axes: Axes) -> "Records":
        """Return the records with their features along axes: each depends on its own features alone."""
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is clipped, or counts as 0
            features = np.nan_to_num(axes.along(self.block(), exact_product), copy=False, nan=0.0)
        of_row = None if self.persons is None else self.persons.of_row
        return Records(self.schema, features, self.targets, self.marks, of_row)

    def take(self, chosen: NDArray[np.int64]) -> "Records":
        """Return the chosen records, as part of the same data set."""
        rows: NDArray[Any] = chosen
        of_row: NDArray[np.int64] | None = None
        if self.persons is not None:
            places = np.full(len(self), -1)
            places[chosen] = np.arange(len(chosen))
            of_row = places[self.persons.of_row]
            rows = of_row >= 0
            of_row = of_row[rows]
        features, targets, cells = self.features[rows], self.targets[rows], _rows_of(self.cells, rows)
        return Records(self.schema, features, targets, self.marks, of_row, cells, Keeping(self.precision))

    def difference(self, schema: Schema) -> str:
        """Return why a plan with that schema does not fit these records; empty if it does."""
        if schema.person is not None and self.persons is None:
            return "the plan protects persons, but these records do not identify them"
        if schema == self.schema:
            return ""
        if schema.model_copy(update={"maps": self.schema.maps}) != self.schema:
            return "its records were read with another schema"
        if self.cells is None:
            return "its records were computed, and curves need a table's cells: ask for a plan without (curves=0)"
        return ""

    def encoded(self, schema: Schema) -> "Records":
        """Return the records as that schema encodes them; it may differ in maps from the one they were read with."""
        if schema == self.schema:
            return self
        if self._again is None or self._again.schema != schema:
            if self.difference(schema):
                raise RecordsError("These records were read with another schema: read them again from their file.")
            cells, of_row = self.table_cells("Maps need"), None if self.persons is None else self.persons.of_row
            self._again = None  # makes room
            self._again = Records.of_cells(schema, cells, self.marks, of_row, self.keeping)
        return self._again


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


def load_data_set(
    path: Path, columns: TableColumns, keeping: Keeping = IN_MEMORY, watch: Watch = lambda chunk: None
) -> DataSet:
    """Read a whole data set by its public schema; RecordsError names row and column of a cell that does not fit."""
    return DataSet(columns, read_rows(path, columns, keeping, watch), keeping)


def load_records(source: Source, schema: Schema) -> Records:
    """Read a table by its public schema: a file, its description, or a pandas, polars or pyarrow table.

    The error names row and column of the first cell that does not fit, and of the first time, offset, exposure or
    weight outside its bounds.
    """
    rows = read_rows(source, schema)
    try:
        require_within(schema, rows.readings)
    except RecordsError as refused:
        raise RecordsError(f"{name_of(source)}: {refused}") from None
    return Records.of_cells(schema, *rows)


def exact_product(rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Multiply rounded rows by columns: exactly but for the columns' last digits and one rounding."""
    high, low = np.split(rows @ exact_sums.limbs(columns), 2, axis=1)
    product: FloatArray = high + low
    return product


def _rows_of(cells: Readings | None, rows: NDArray[Any] | slice) -> Readings | None:
    """Return the cells of some of the records' rows, if cells are kept."""
    return None if cells is None else {name: reading.take(rows) for name, reading in cells.items()}


def _doubles(cells: Readings, rows: NDArray[Any] | slice) -> Readings:
    """Return some rows of the records' cells, numbers as doubles, for their features alone."""
    taken = {name: reading.within(rows) for name, reading in cells.items()}
    numbers = {name: own for name, own in taken.items() if own.values.dtype.kind == "f"}
    return taken | {name: own._replace(values=np.asarray(own.values, np.float64)) for name, own in numbers.items()}
