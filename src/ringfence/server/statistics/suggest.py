"""What a schema could say of numeric columns, by what was found: private answers, and so no leak."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ringfence.server.statistics.summary import DataSummary, Numbers

TAIL = 0.01
"""Which share of the values bounds may cut off at either end, if noise lets so little be seen."""


def schema_fields(found: DataSummary, unbounded: Mapping[str, bool]) -> dict[str, dict[str, Any]]:
    """Return, by column, bounds where there were none, else centre and scale; nothing of what noise hides."""
    fields = {
        name: _bounds(column) if unbounded[name] else _scale(column)
        for name, column in found.columns.items()
        if isinstance(column, Numbers)
    }
    return {name: own for name, own in fields.items() if own}


def _bounds(column: Numbers) -> dict[str, float]:
    """Return the edges of the bins that hold all values but a small share at either end, and of one bin more.

    The share is `TAIL`, or three times what the interval of a bin allows for: noise alone would have to add up to about
    four of its deviations, at one of the edges, to be taken for values.
    """
    shares = np.array([bin.value for bin in column.bins])
    noise = max((bin.records.high - bin.value) for bin in column.bins)
    total = max(float(shares.sum()), TAIL)
    tail = max(TAIL * total, 3 * noise)
    below, above = np.cumsum(shares), np.cumsum(shares[::-1])[::-1]
    if tail >= total / 4:
        return {}
    first, last = int(np.argmax(below > tail)), len(shares) - 1 - int(np.argmax(above[::-1] > tail))
    if first > last:
        return {}
    first, last = max(first - 1, 0), min(last + 1, len(shares) - 1)
    return {"lower": _shown(column.edges[first]), "upper": _shown(column.edges[last + 1])}


def _scale(column: Numbers) -> dict[str, float]:
    """Return mean and deviation, if noise leaves more than 0 of the latter."""
    deviation = column.deviation
    if column.mean is None or deviation is None or deviation.records.low <= 0:
        return {}
    return {"center": _shown(column.mean.value), "scale": _shown(deviation.value)}


def _shown(value: float) -> float:
    """Return the number with three digits: more would be noise."""
    if value == 0:
        return 0.0
    return round(float(value), 2 - math.floor(math.log10(abs(value))))
