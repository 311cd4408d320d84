"""Each row's bin in every surveyed column."""

import numpy as np

from ringfence.protocol import ColumnDistributions, FloatArray, Plan
from ringfence.silo.records.records import Records


def terms(query: ColumnDistributions, plan: Plan, argument: FloatArray, records: Records) -> FloatArray:
    """Return 1 for the bin of every row in each surveyed column, and 0 elsewhere and for empty cells."""
    cells, found = records.table_cells("Column distributions need"), []
    for (name, column), (lower, upper) in zip(plan.data.open_columns.items(), argument.reshape(-1, 2), strict=True):
        reading = cells[name]
        share = (np.clip(column.in_units(reading.values), lower, upper) - lower) / (upper - lower)
        rows = np.eye(query.bins)[np.minimum((share * query.bins).astype(np.int64), query.bins - 1)]
        found.append(rows if reading.empty is None else rows * ~reading.empty[:, None])
    return np.concatenate(found, axis=1)
