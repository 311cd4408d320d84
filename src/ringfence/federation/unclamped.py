"""Targets as they stand in a file, before clamping: for those who may see the records, never for training."""

from ringfence.protocol import FloatArray
from ringfence.silo.records.records import Records


def unclamped_targets(records: Records) -> FloatArray:
    """Return the file's targets, scaled but not clamped, to measure a model by."""
    targets, cells = records.targets, records.cells or {}
    for place, name in enumerate(records.schema.targets):
        reading = cells.get(name)
        # A time beyond its bound is censored there.
        if reading is not None and reading.beyond is not None and records.schema.event is None:
            targets = targets.copy()
            targets.reshape(len(targets), -1)[:, place] = reading.unclamped
    return targets


def first_below(records: Records, least: float) -> int | None:
    """Return the first row whose unclamped target is less, if any.

    Only targets outside the schema's bounds are checked, since the bounds are no less.
    """
    schema, cells = records.schema, records.cells
    reading = None if cells is None or schema.target is None else cells[schema.target]
    if reading is None or reading.beyond is None:
        return None
    unit, offset = schema.target_scaling
    # A 0 that was scaled and back must count as neither negative nor positive.
    slack = -1e-9 * unit if least > 0 else 1e-9 * unit
    rows, numbers = reading.beyond
    found = rows[numbers * unit + offset + slack < least]
    return int(found[0]) if found.size else None
