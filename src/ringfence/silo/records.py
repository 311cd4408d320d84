"""A silo's records in memory: never printed, never pickled."""

from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.encoding import encode_features, encode_target, read_csv
from ringfence.protocol.schema import Schema


class Unpicklable:
    """Something that stays in the silo's process: it is neither pickled nor copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise RecordsError(f"{type(self).__name__} cannot be pickled or copied: they stay in the silo's process.")


class Records(Unpicklable):
    """Encoded records and the public schema they were read with.

    The number of records is public (the guarantee is against *replacing* one); their values are not, so
    neither `repr` nor an exception nor a pickle can carry them out.
    """

    __slots__ = ("features", "norms", "schema", "targets")

    def __init__(self, schema: Schema, features: FloatArray, targets: FloatArray) -> None:
        if len(targets) == 0:
            raise RecordsError("This silo has no records, so it has nothing to contribute: leave it out.")
        self.schema = schema
        self.features = features
        self.targets = targets
        self.norms: FloatArray = np.sqrt(np.sum(features * features, axis=1))

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.schema.width} features, values hidden>"

    def bounded_features(self, largest: float) -> FloatArray:
        """Return the features, cut to norm `largest` once more."""
        cut: FloatArray = self.features * np.minimum(1.0, largest / np.maximum(self.norms, TINY))[:, None]
        return cut

    def take(self, rows: NDArray[np.int64]) -> "Records":
        """Return the records of the given rows."""
        return Records(self.schema, self.features[rows], self.targets[rows])


def load_records(path: Path, schema: Schema) -> Records:
    """Read a CSV file by its public schema; the first cell that does not fit is named by row and column."""
    table = read_csv(path)
    if not table[next(iter(table))]:
        raise RecordsError(f"{path} has a header but no records: leave this silo out, or give it its data.")
    features = encode_features(schema, table, source=path.name)
    return Records(schema, features, encode_target(schema, table, source=path.name))
