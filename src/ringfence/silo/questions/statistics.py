"""Counts of cells: which category, which bin, or none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.encoding import Reading
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Statistics
from ringfence.protocol.questions.statistics_layout import QUARTERS, Association, Categories, ColumnPart, Tree
from ringfence.silo import exact_sums
from ringfence.silo.records import Records

_BITS = 31
"""A row counts as a whole number of 2⁻³¹: a record's as 2³¹ of them, each of a person's m rows as ⌊2³¹/m⌋."""

_ROWS = 2**21
"""So many rows at a time add up to less than 2⁵³, and so exactly."""


def compute(
    question: Statistics, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the layout's numbers, each a whole sum over rows, divided and rounded once."""
    del argument
    if records.cells is None:
        raise RecordsError("Statistics are of cells, and these records were not read from a table: give their file.")
    layout = question.layout(plan)
    rows = _weights(records, chosen)
    places = {name: _places(part, records.cells[name]) for name, part in layout.columns.items()}
    found: list[FloatArray] = []
    for name, part in layout.columns.items():
        counts = _counts(places[name], rows, part.coarse if isinstance(part, Categories) else part.leaves + 1)
        weight = part.weight / layout.unit
        if isinstance(part, Categories):
            found.append(_mean(counts, batch, weight))
            continue
        found.append(_mean(_differences(counts[:-1]), batch, weight))
        if part.fine:
            within = _within(part, records.cells[name], places[name])
            terms = ((rows[own, None] / 2.0**_BITS, within[own], 0) for own in exact_sums.parts(*within.shape))
            found.append(exact_sums.quotient(exact_sums.outer_sum(terms)[0], batch, part.fine * weight))
        if part.may_be_empty:
            found.append(_mean(counts[-1:], batch, part.empty / layout.unit))
    for (a, b), table in layout.cross.items():
        first, second = (_coarse(layout.columns[name], places[name]) for name in (a, b))
        counts = _counts(first * table.columns + second, rows, table.length)
        found.append(_mean(_centred(table, counts), batch * table.length, table.weight / layout.unit))
    return np.concatenate(found)


def _weights(records: Records, chosen: FloatArray) -> NDArray[np.int64]:
    """Return what each row counts for: all rows of a person together for no more than a record."""
    weights: NDArray[np.int64] = chosen.astype(np.int64) << _BITS
    if records.persons is None:
        return weights
    return np.asarray(weights // records.persons.rows)[records.persons.of_row]


def _places(part: ColumnPart, reading: Reading) -> NDArray[np.int64]:
    """Return each row's category or bin; the number after the last one if its cell is empty."""
    if isinstance(part, Categories):
        places, none = reading.values.astype(np.int64), len(part.column.categories)
    else:
        # The same rounding as a cell's, so that a number on an edge stays on it.
        edges = (part.edges - part.column.offset) / part.column.unit
        places, none = np.searchsorted(edges, reading.values, side="right"), part.leaves
    return places if reading.empty is None else np.where(reading.empty, none, places)


def _coarse(part: ColumnPart, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each row's cell in a cross table."""
    return places if isinstance(part, Categories) else places * QUARTERS // part.leaves


def _within(part: Tree, reading: Reading, places: NDArray[np.int64]) -> FloatArray:
    """Return how far each number, and its square, lies from its bin's middle; 0 for an empty cell."""
    width, half = part.column.upper - part.column.lower, 0.5 / part.leaves
    value = (reading.values * part.column.unit + (part.column.offset - part.column.lower)) / width - 0.5
    middle = (places + 0.5) / part.leaves - 0.5
    off = np.clip((value - middle) / half, -1.0, 1.0)
    square = np.clip(off * (2 * middle + half * off) / (1 - half), -1.0, 1.0)
    return np.where((places < part.leaves)[:, None], np.column_stack([off, square]), 0.0)


def _counts(places: NDArray[np.int64], rows: NDArray[np.int64], cells: int) -> NDArray[Any]:
    """Add up the rows' weights by their places: whole numbers, of any size."""
    total: Any = np.zeros(cells, dtype=object)
    for begin in range(0, len(places), _ROWS):
        own = slice(begin, begin + _ROWS)
        total = total + np.bincount(places[own], rows[own], cells).astype(np.int64)
    return np.asarray(total, dtype=object)


def _differences(counts: NDArray[Any]) -> NDArray[Any]:
    """Return upper minus lower half of every node, from the root down."""
    levels = []
    while len(counts) > 1:
        levels.append(counts[1::2] - counts[::2])
        counts = counts[1::2] + counts[::2]
    return np.concatenate(levels[::-1])


def _centred(table: Association, counts: NDArray[Any]) -> NDArray[Any]:
    """Take the means of rows and columns off, all times the number of cells, which keeps numbers whole."""
    cells = counts.reshape(table.rows, table.columns)
    rows, columns = cells.sum(axis=1, keepdims=True), cells.sum(axis=0, keepdims=True)
    centred = table.length * cells - table.rows * rows - table.columns * columns + cells.sum()
    return np.asarray(centred.reshape(-1), dtype=object)


def _mean(counts: NDArray[Any], divisor: int, scale: float) -> FloatArray:
    return exact_sums.quotient(counts * 2 ** (exact_sums.UNIT - _BITS), divisor, scale)
