"""The terms of a survival curve: the interval in which a record's time ends, and whether with an event."""

import numpy as np

from ringfence.protocol import FloatArray, Plan, SurvivalCurve
from ringfence.silo.records.records import Records


def terms(query: SurvivalCurve, plan: Plan, argument: FloatArray, records: Records) -> FloatArray:
    """Return a 1 for every record's interval and event, and 0 elsewhere."""
    cells = records.table_cells("A survival curve needs")
    column, times = plan.data.used[query.time], cells[query.time].values
    (offset, unit), (_, longest, _) = column.scaling[0], column.limits[0]
    # The same rounding as a cell's, so that a time on a cut stays before it.
    *edges, end = ((np.array([*query.cuts, longest]) - offset) / unit).astype(times.dtype)
    cell = 2 * np.searchsorted(edges, times, side="left") + cells[query.event].values.astype(np.int64)
    cell[times >= end] = 2 * len(edges)
    result: FloatArray = np.eye(query.length(plan))[cell]
    return result
