"""From a table's text cells to the numbers a model sees, by the public schema alone.

A silo uses it for its records, a model's user for new rows. Errors name row and column and never a value.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.schema import Categorical, Numeric, Schema, may_tell_persons

Table = Mapping[str, Sequence[str]]
"""Columns of text cells by name."""


class Reading(NamedTuple):
    """A column's cells: of numbers, clamped and scaled; of categories, each category's place in the public list.

    `empty` tells for which cells the public `missing` value stands in, if the column has one.
    """

    values: NDArray[Any]
    empty: NDArray[np.bool_] | None

    def take(self, rows: NDArray[Any]) -> "Reading":
        """Return the given rows."""
        return Reading(self.values[rows], None if self.empty is None else self.empty[rows])


Readings = Mapping[str, Reading]
"""Columns by name."""


def encode_features(schema: Schema, table: Table, *, source: str) -> FloatArray:
    """Return one feature vector per row: scaled, one-hot encoded, cut to the radius, intercept last."""
    return features_of(schema, read_cells(schema.features, table, source=source))


def encode_target(schema: Schema, table: Table, *, source: str) -> FloatArray:
    """Return the scaled target, ±1 for two categories (the second is +1), or the category's index."""
    column = {name: column for name, column in schema.used.items() if name == schema.target}
    return target_of(schema, read_cells(column, table, source=source))


def read_cells(columns: Mapping[str, Numeric | Categorical], table: Table, *, source: str) -> Readings:
    """Read columns' cells: all that the public schema lets a model know of them."""
    return {
        name: Reading(
            _numbers(column, name, table, source)
            if isinstance(column, Numeric)
            else _indices(column, name, table, source),
            None if column.missing is None else np.array([not cell for cell in table[name]], dtype=bool),
        )
        for name, column in columns.items()
    }


def features_of(schema: Schema, readings: Readings) -> FloatArray:
    """Put feature vectors together from columns that were read."""
    blocks = [
        readings[name].values[:, None]
        if isinstance(column, Numeric)
        else _category_columns(column, readings[name].values)
        for name, column in schema.features.items()
    ]
    features = np.concatenate(blocks, axis=1)
    if schema.radius is not None:
        norms = np.sqrt(np.sum(features * features, axis=1, keepdims=True))
        features *= schema.radius / np.maximum(norms, schema.radius)
    if schema.intercept:
        features = np.concatenate([features, np.full((len(features), 1), schema.intercept)], axis=1)
    return features


def target_of(schema: Schema, readings: Readings) -> FloatArray:
    """Return the target from a column that was read; zeros where nothing is predicted."""
    if schema.target is None:
        return np.zeros(len(next(iter(readings.values())).values))
    column, reading = schema.target_column, readings[schema.target].values
    if isinstance(column, Numeric):
        return reading
    indices = reading.astype(np.float64)
    return 2.0 * indices - 1.0 if len(column.categories) == 2 else indices


def read_csv(path: Path) -> dict[str, list[str]]:
    """Read a CSV file with a header line into columns of stripped text."""
    with _readable(path) as rows:
        names = [name.strip() for name in next(rows, [])]
        if not names or any(not name for name in names):
            raise RecordsError(f"{path} needs a first line that names every column.")
        if len(set(names)) != len(names):
            raise RecordsError(f"{path} has two columns of the same name in its first line.")
        cells: list[list[str]] = []
        for number, row in enumerate(rows, start=2):
            if not row:
                if any(rows):
                    raise RecordsError(f"{path}, line {number} is blank in the middle of the file; remove it.")
                break
            if len(row) != len(names):
                raise RecordsError(
                    f"{path}, line {number} has {len(row)} cells where the first line names {len(names)} columns."
                )
            cells.append(row)
    columns = zip(*cells, strict=True) if cells else ([] for _ in names)
    return {name: [cell.strip() for cell in column] for name, column in zip(names, columns, strict=True)}


def column_types(path: Path) -> dict[str, Literal["numeric", "categorical"]]:
    """Tell which columns hold numbers only; nothing else about their values is kept."""

    def kind(cells: Sequence[str]) -> Literal["numeric", "categorical"]:
        filled = [cell for cell in cells if cell]
        is_numeric = filled and all(math.isfinite(_number_or_nan(cell)) for cell in filled)
        return "numeric" if is_numeric else "categorical"

    return {name: kind(cells) for name, cells in read_csv(path).items()}


def repeating_identifiers(path: Path) -> list[str]:
    """Name the columns that look as if they told whose a row is, and whose values repeat: for the file's owner alone.

    They are called so, with at most 100 rows for each value on average; or hold text of 20 values or more, with at most
    4 rows for each.
    """

    def looks_so(name: str, cells: Sequence[str]) -> bool:
        values = len(set(cells))
        if may_tell_persons(name):
            return values < len(cells) <= 100 * values
        is_text = all(math.isnan(_number_or_nan(cell)) for cell in cells)
        return is_text and values >= 20 and values < len(cells) <= 4 * values

    return [name for name, cells in read_csv(path).items() if looks_so(name, cells)]


@contextmanager
def _readable(path: Path) -> Iterator[Iterator[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield csv.reader(file, strict=True)
    except OSError as problem:
        raise RecordsError(f"The data file {path} could not be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise RecordsError(f"The data file {path} is not UTF-8 text; save it as a UTF-8 CSV file.") from None
    except csv.Error:
        raise RecordsError(f"The data file {path} is not well-formed CSV (a quote that never closes?).") from None


def cells_of(name: str, table: Table, source: str) -> Sequence[str]:
    """Return the column of that name, which the schema names too."""
    try:
        return table[name]
    except KeyError:
        raise RecordsError(f"{source} has no column '{name}', which the schema names.") from None


def _refuse(source: str, row: int, name: str, problem: str) -> RecordsError:
    # Rows are counted as in a spreadsheet: the header is row 1.
    return RecordsError(f"{source}, row {row + 2}, column '{name}': {problem}.")


def _numbers(column: Numeric, name: str, table: Table, source: str) -> FloatArray:
    cells = cells_of(name, table, source)
    if column.missing is not None:
        cells = [cell or str(column.missing) for cell in cells]
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        values = np.array([_number_or_nan(cell) for cell in cells])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        row = int(bad[0])
        if not cells[row]:
            problem = "the cell is empty; give the column a public `missing` value in the schema, or remove the row"
            raise _refuse(source, row, name, problem)
        raise _refuse(source, row, name, "this is not a finite number")
    return without_negligible((np.clip(values, column.lower, column.upper) - column.offset) / column.unit)


def _number_or_nan(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _indices(column: Categorical, name: str, table: Table, source: str) -> NDArray[np.int64]:
    places = {category: place for place, category in enumerate(column.categories)}
    if column.missing is not None:
        places[""] = places[column.missing]
    cells = cells_of(name, table, source)
    indices = np.array([places.get(cell, -1) for cell in cells], dtype=np.int64)
    bad = np.flatnonzero(indices < 0)
    if bad.size:
        row = int(bad[0])
        problem = "the cell is empty" if not cells[row] else "this category is not in the schema's public list"
        raise _refuse(source, row, name, problem)
    return indices


def _category_columns(column: Categorical, indices: NDArray[np.int64]) -> FloatArray:
    if column.ordered:
        return 2.0 * column.scale * (indices[:, None] / (len(column.categories) - 1) - column.center)
    return column.scale * np.eye(len(column.categories))[indices]
