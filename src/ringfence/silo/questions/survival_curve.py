"""Counts of records by the part of the time in which theirs ends, and whether by an event."""

import numpy as np

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import SurvivalCurve
from ringfence.silo import exact_sums
from ringfence.silo.records import Records


def total(
    question: SurvivalCurve, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> exact_sums.Counts:
    """Count the records in each cell."""
    del argument
    if records.cells is None:
        raise RecordsError(
            "A survival curve needs a table's cells, but these records were not read from a table: give their file."
        )
    column, times = plan.data.used[question.time], records.cells[question.time].values
    (offset, unit), (_, longest, _) = column.scaling[0], column.limits[0]
    # The same rounding as a cell's, so that a time on a cut stays before it.
    *edges, end = ((np.array([*question.cuts, longest]) - offset) / unit).astype(times.dtype)
    cell = 2 * np.searchsorted(edges, times, side="left") + records.cells[question.event].values.astype(np.int64)
    cell[times >= end] = 2 * len(edges)
    rows = np.eye(question.length(plan))[cell]
    return exact_sums.column_sums(records.means(rows), chosen)


def answer(
    question: SurvivalCurve, plan: Plan, argument: FloatArray, total: exact_sums.Counts, batch: int
) -> FloatArray:
    """Return the share of the records in each cell."""
    del question, plan, argument
    return exact_sums.quotient(total, batch)
