"""A silo's records in memory: never printed, never pickled."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.encoding import Table, encode_features, encode_target, read_csv
from ringfence.protocol.schema import Schema
from ringfence.silo import exact_sums
from ringfence.silo.marks import RowMarks
from ringfence.silo.unpicklable import Unpicklable


class Records(Unpicklable):
    """Encoded records and the public schema they were read with; features are rounded so that sums can be exact.

    The number of records is public (the guarantee is against *replacing* one); their values are not, so
    neither `repr` nor an exception nor a pickle can carry them out. `marks` are those of the data set that they were
    read from, by which its ledger is found again; records that somebody computed have none, and no say in which ledger
    is theirs.
    """

    __slots__ = ("features", "marks", "norms", "schema", "targets")
    were_moved = False
    version: int | None = None

    def __init__(
        self, schema: Schema, features: FloatArray, targets: FloatArray, marks: RowMarks | None = None
    ) -> None:
        if len(targets) == 0:
            raise RecordsError("This silo has no records, so it has nothing to contribute: leave it out.")
        self.schema = schema
        self.features = exact_sums.rounded_rows(features)
        self.targets = targets
        self.marks = marks
        self.norms: FloatArray = exact_sums.norms(self.features)

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.schema.width} features, values hidden>"

    def bounded_features(self, largest: float) -> FloatArray:
        """Return the features in units of `largest`: cut to norm 1 once more, and to multiples of 2⁻³¹."""
        kept = 1 - exact_sums.slack(self.features.shape[1])
        cut: FloatArray = self.features * np.minimum(kept / largest, kept / np.maximum(self.norms, TINY))[:, None]
        cut *= 2.0**exact_sums.ROW_BITS
        np.trunc(cut, out=cut)
        cut /= 2.0**exact_sums.ROW_BITS
        return cut

    def take(self, rows: NDArray[np.int64]) -> "Records":
        """Return the records of the given rows: a part of the same data set."""
        return Records(self.schema, self.features[rows], self.targets[rows], self.marks)

    def difference(self, schema: Schema) -> str:
        """Say why a plan with that schema is not about these records, or nothing if it is."""
        return "" if schema == self.schema else "its records were read with another schema"

    def encoded(self, schema: Schema) -> "Records":
        """Return the records as that schema encodes them: there is one that they can be had by."""
        if schema != self.schema:
            raise RecordsError("These records were read with another schema: read them again from their file.")
        return self


def load_records(path: Path, schema: Schema) -> Records:
    """Read a CSV file by its public schema; the first cell that does not fit is named by row and column."""
    table = read_records(path)
    features = encode_features(schema, table, source=path.name)
    targets = encode_target(schema, table, source=path.name)
    return Records(schema, features, targets, RowMarks.of_table(table, path))


def read_records(path: Path) -> Table:
    """Read the cells of a CSV file that has at least one record."""
    table = read_csv(path)
    if not table[next(iter(table))]:
        raise RecordsError(f"{path} has a header but no records: leave this silo out, or give it its data.")
    return table
