"""From a table's cells to the numbers a model sees, by the public schema alone.

A silo uses it for its records, a model's user for new rows. Errors name row and column and never a value.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from ringfence.errors import RecordsError
from ringfence.protocol.arrays import FloatArray, pieces
from ringfence.protocol.schema.blocks import Readings
from ringfence.protocol.schema.columns.base import ReadColumn, Reading
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.roles import Roles
from ringfence.protocol.schema.schema import Schema
from ringfence.sources.cells import Cells, Table, as_cells

ODD_REMEDY = 'store what a model should read as columns of numbers or texts, or give it type = "ignore"'

PART = 2**12
"""How many rows are put together at a time, so that they stay in a processor's cache."""


def encode_features(schema: Schema, table: Table, *, source: str) -> FloatArray:
    """Return one feature vector per row: scaled, one-hot encoded, mapped, clipped to the radius, intercept last."""
    return features_of(schema, read_cells(schema.features, table, source=source))


def read_cells(columns: Mapping[str, ReadColumn], table: Table, *, source: str) -> Readings:
    """Read columns' cells: all that the public schema lets a model know about them."""
    require_columns(columns, table, source=source)
    return {name: read_column(name, column, as_cells(table[name]), source=source) for name, column in columns.items()}


def read_column(name: str, column: ReadColumn, cells: Cells, *, source: str, first: int = 0) -> Reading:
    """Read a column's cells: all that the public schema lets a model know; `first` is the first row's number."""
    if cells.odd:
        raise RecordsError(f"{source}, column '{name}' holds {cells.odd}: {ODD_REMEDY}.")
    reading, problems = column.read(cells)
    if problems:
        row, what = min((int(problem.rows[0]), problem.what) for problem in problems)
        raise RecordsError(f"{source}, row {row + first + 2}, column '{name}': {what}.")
    return reading


def features_of(schema: Schema, readings: Readings) -> FloatArray:
    """Return feature vectors of columns that were read, clipped to the radius and with the intercept."""
    count = len(next(iter(readings.values())).values)
    features = np.empty((count, schema.width))
    for rows in pieces(count, PART):
        own, place = {name: readings[name].within(rows) for name in schema.features}, 0
        for block in schema.blocks:
            made = block.features(own)
            features[rows, place : place + made.shape[1]] = made
            place += made.shape[1]
        if schema.radius is not None:
            varying = features[rows, :place]
            norms = np.sqrt(np.sum(varying * varying, axis=1, keepdims=True))
            varying *= schema.radius / np.maximum(norms, schema.radius)
        features[rows, place:] = schema.intercept
    return features


def target_of(schema: Schema, readings: Readings) -> FloatArray:
    """Return the target from a column that was read; zeros where nothing is predicted.

    Where the schema names more, a row per record (`protocol.losses.targets`): targets, and whether an event ended it if
    the schema names one; the offset, counted from the middle of its range; and the weight. Each is clamped to its
    public bounds, as all numbers are. Those who may see the records check for that first (`require_within`); a gate
    must not, since its answer would then depend on a record.
    """
    own = _plain_target(schema, readings)
    if not schema.has_roles:
        return own
    columns = [own, *(readings[name].values for name in schema.more_targets or ())]
    if schema.event is not None:
        column = schema.target_column
        horizon = own >= (column.high - column.offset) / column.unit if isinstance(column, Scaled) else False
        columns.append(np.where(horizon, 0.0, readings[schema.event].values.astype(np.float64)))
    return np.column_stack([*columns, offsets_of(schema, readings), _weights_of(schema, readings)])


def encode_offsets(schema: Schema, table: Table, *, source: str) -> FloatArray | None:
    """Return the offsets of new rows, if the schema names any."""
    name = schema.offset or schema.exposure
    return None if name is None else offsets_of(schema, read_cells({name: schema.used[name]}, table, source=source))


def offsets_of(schema: Schema, readings: Readings) -> FloatArray:
    """Return every record's offset, counted from the middle of the public range; 0 where there is none."""
    name, (middle, _) = schema.offset or schema.exposure, schema.offset_range
    if name is None:
        return np.zeros(len(next(iter(readings.values())).values))
    raw = _raw(schema, name, readings)
    return (raw if schema.exposure is None else np.log(raw)) - middle


def _weights_of(schema: Schema, readings: Readings) -> FloatArray:
    """Return every record's weight, from the weight column and the target's class weights, for encoding."""
    weights = np.ones(len(next(iter(readings.values())).values))
    if schema.weight is not None:
        weights = np.maximum(_raw(schema, schema.weight, readings), 0.0)
    if schema.class_weights is not None:
        by_place = np.array([schema.class_weights[category] for category in schema.target_column.classes])
        weights = weights * by_place[readings[str(schema.target)].values.astype(np.int64)]
    return weights


def _raw(schema: Schema, name: str, readings: Readings) -> FloatArray:
    """Return a numeric column's readings in its own units, for encoding offsets and weights."""
    column = schema.used[name]
    if not isinstance(column, Scaled):
        raise TypeError(f"the column '{name}' is not numeric")
    return column.in_units(readings[name].values)


def clamped_parts(roles: Roles, target: str | None, readings: Readings) -> list[str]:
    """Return a sentence for each column with a role, naming the first row whose number is outside its bounds.

    A time above its bound does not count: it is observed until the bound. Only for those who may see the records.
    """
    parts = [(role, name, True) for role, name in roles.roles.items()]
    parts += [("time", target, False)] if roles.event is not None and target is not None else []
    found = [(role, name, readings[name].first_beyond(above=above)) for role, name, above in parts if name in readings]
    return [
        f"Row {row + 2}, column '{name}': this {role} is outside the schema's bounds, and clamping would change it: "
        "widen `lower` and `upper`, from public knowledge, or remove the row."
        for role, name, row in found
        if row is not None
    ]


def require_within(schema: Schema, readings: Readings) -> None:
    """Raise RecordsError if a time, an offset, an exposure or a weight lies beyond its public bounds."""
    for problem in clamped_parts(schema, schema.target, readings):
        raise RecordsError(problem)


def _plain_target(schema: Schema, readings: Readings) -> FloatArray:
    """Return the encoded target without offsets, events or weights."""
    if schema.target is None:
        return np.zeros(len(next(iter(readings.values())).values))
    column, reading = schema.target_column, readings[schema.target].values
    if column.is_number:
        return reading
    indices: FloatArray = reading.astype(np.float64)
    return 2.0 * indices - 1.0 if len(column.classes) == 2 else indices


def require_columns(names: Iterable[str], table: Table, *, source: str) -> None:
    """Refuse a table that lacks a column that the schema names.

    It names none of the table's own: in a file without a header they would be a record's cells.
    """
    for name in names:
        if name not in table:
            similar = any(_loosely(name) == _loosely(own) for own in table)
            remedy = (
                "rename the one that differs only in capitals, spaces or hyphens" if similar else "add or rename it"
            )
            raise RecordsError(f"{source} has no column '{name}', which the schema names: {remedy}.")


def _loosely(name: str) -> str:
    """Return a column's name without punctuation and capitals, to find a misspelled one in a table to encode."""
    return re.sub(r"[\W_]+", "", name).casefold()
