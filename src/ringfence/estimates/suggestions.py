"""Bounds, centres and scales that statistics suggest for a schema."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ringfence.estimates.statistics import DataSummary, NumericSummary

_TAIL = 0.01
"""The share of the values that suggested bounds may clip at either end, if the noise allows it."""


def suggested_schema_fields(summary: DataSummary, unbounded: Mapping[str, bool]) -> dict[str, dict[str, Any]]:
    """Return, for numeric columns, bounds where there were none, else centre and scale; none where noise hides them."""
    fields = {
        name: _suggested_bounds(column) if unbounded[name] else _suggested_scale(column)
        for name, column in summary.columns.items()
        if isinstance(column, NumericSummary)
    }
    return {name: own for name, own in fields.items() if own}


def _suggested_bounds(column: NumericSummary) -> dict[str, float]:
    """Suggest bounds: the edges of the bins that hold all but a small share at either end, and of one bin more.

    The share is `_TAIL`, or three half-widths of a bin's interval: noise alone would have to add up to about four of
    its deviations, at one of the edges, to count as values.
    """
    shares = np.array([bin.value for bin in column.bins])
    noise = max((bin.records.high - bin.value) for bin in column.bins)
    total = max(float(shares.sum()), _TAIL)
    tail = max(_TAIL * total, 3 * noise)
    below, above = np.cumsum(shares), np.cumsum(shares[::-1])[::-1]
    first, last = int(np.argmax(below > tail)), len(shares) - 1 - int(np.argmax(above[::-1] > tail))
    if tail >= total / 4 or first > last:
        return {}
    first, last = max(first - 1, 0), min(last + 1, len(shares) - 1)
    return {"lower": _three_digits(column.edges[first]), "upper": _three_digits(column.edges[last + 1])}


def _suggested_scale(column: NumericSummary) -> dict[str, float]:
    """Suggest a centre and scale for a schema: mean and deviation, if the deviation is significantly above 0."""
    deviation = column.deviation
    if column.mean is None or deviation is None or deviation.records.low <= 0:
        return {}
    return {"center": _three_digits(column.mean.value), "scale": _three_digits(deviation.value)}


def _three_digits(value: float) -> float:
    """Round a suggested bound or scale of a schema to three digits."""
    return 0.0 if value == 0 else round(float(value), 2 - math.floor(math.log10(abs(value))))
