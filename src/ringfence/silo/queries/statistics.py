"""Counts of cells, by category or bin."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.protocol import FloatArray, Plan, Statistics
from ringfence.protocol.queries.statistics_layout import QUARTERS, Association, Categories, ColumnPart, Layout, Tree
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records

_BITS = 31
"""A row counts as a whole number of 2⁻³¹: a record's as 2³¹ of them, each of a person's m rows as ⌊2³¹/m⌋."""

_ROWS = 2**21
"""That many rows at a time add up to less than 2⁵³, and so exactly."""


def total(query: Statistics, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
    """Add up the layout's numbers over rows, in the order of `_scales`."""
    cells, layout = records.table_cells("Statistics need"), query.layout(plan)
    rows = _weights(records, chosen)
    places = {name: _places(part, cells[name]) for name, part in layout.columns.items()}
    found: list[Counts] = []
    for name, part in layout.columns.items():
        counts = _counts(places[name], rows, part.coarse if isinstance(part, Categories) else part.leaves + 1)
        if isinstance(part, Categories):
            found.append(_in_units(counts))
            continue
        found.append(_in_units(_differences(counts[:-1])))
        if part.fine:
            found.append(exact_sums.column_sums(_within(part, cells[name], places[name]), rows / 2.0**_BITS))
        if part.column.may_be_empty:
            found.append(_in_units(counts[-1:]))
    for (a, b), table in layout.cross.items():
        first, second = (_coarse(layout.columns[name], places[name]) for name in (a, b))
        counts = _counts(first * table.columns + second, rows, table.length)
        found.append(_in_units(_centred(table, counts)))
    return np.concatenate(found)


def answer(query: Statistics, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the layout's numbers, each divided and rounded once."""
    found, begin = [], 0
    for length, times, scale in _scales(query.layout(plan)):
        found.append(exact_sums.quotient(total[begin : begin + length], batch * times, scale))
        begin += length
    return np.concatenate(found)


def _scales(layout: Layout) -> Iterator[tuple[int, int, float]]:
    """Yield, for every group of sums in the statistics, their number, how many times too large they are, and scale."""
    for part in layout.columns.values():
        weight = part.weight / layout.unit
        if isinstance(part, Categories):
            yield part.coarse, 1, weight
            continue
        yield part.leaves - 1, 1, weight
        if part.fine:
            yield 2, 1, part.fine * weight
        if part.column.may_be_empty:
            yield 1, 1, part.empty / layout.unit
    for table in layout.cross.values():
        yield table.length, table.length, table.weight / layout.unit


def _weights(records: Records, chosen: FloatArray) -> NDArray[np.int64]:
    """Return what each row counts for in statistics: all rows of a person together for no more than a record."""
    weights: NDArray[np.int64] = chosen.astype(np.int64) << _BITS
    if records.persons is None:
        return weights
    return np.asarray(weights // records.persons.rows)[records.persons.of_row]


def _places(part: ColumnPart, reading: Reading) -> NDArray[np.int64]:
    """Return each row's category or bin in the statistics; the number after the last one if its cell is empty."""
    if isinstance(part, Categories):
        places, none = reading.values.astype(np.int64), len(part.column.classes)
    else:
        # The same rounding as a cell's, so that a number on an edge stays on it.
        edges = ((part.edges - part.column.offset) / part.column.unit).astype(reading.values.dtype)
        places, none = np.searchsorted(edges, reading.values, side="right"), part.leaves
    return places if reading.empty is None else np.where(reading.empty, none, places)


def _coarse(part: ColumnPart, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each row's cell in a cross table of the statistics."""
    return places if isinstance(part, Categories) else places * QUARTERS // part.leaves


def _within(part: Tree, reading: Reading, places: NDArray[np.int64]) -> FloatArray:
    """Return how far each number, and its square, lies from the middle of its statistics bin; 0 for an empty cell."""
    width, half = part.column.high - part.column.low, 0.5 / part.leaves
    value = (reading.values * part.column.unit + (part.column.offset - part.column.low)) / width - 0.5
    middle = (places + 0.5) / part.leaves - 0.5
    off = np.clip((value - middle) / half, -1.0, 1.0)
    square = np.clip(off * (2 * middle + half * off) / (1 - half), -1.0, 1.0)
    return np.where((places < part.leaves)[:, None], np.column_stack([off, square]), 0.0)


def _counts(places: NDArray[np.int64], rows: NDArray[np.int64], cells: int) -> NDArray[Any]:
    """Add up the rows' weights by their category or bin, for statistics: whole numbers, of any size."""
    total: Any = np.zeros(cells, dtype=object)
    for begin in range(0, len(places), _ROWS):
        own = slice(begin, begin + _ROWS)
        total = total + np.bincount(places[own], rows[own], cells).astype(np.int64)
    return np.asarray(total, dtype=object)


def _differences(counts: NDArray[Any]) -> NDArray[Any]:
    """Return upper minus lower half of every node of a statistics tree, from the root down."""
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


def _in_units(counts: NDArray[Any]) -> Counts:
    """Return the statistics' counts in units of exact sums."""
    return np.asarray(counts * 2 ** (exact_sums.UNIT - _BITS), dtype=object)
