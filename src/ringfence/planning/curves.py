"""Curves of numeric columns, in straight pieces between knots that a survey of the columns places."""

import math

from ringfence.planning.defaults import WIDEST_MATRIX
from ringfence.protocol import ColumnDistributions, Schema
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.maps.curves import Curve, Spline

PIECES = 8
"""Most straight pieces of a curve, unless the request says otherwise."""

COLUMNS_SHARE, COLUMNS_ROUNDS = 0.06, 2
"""Share of the budget (in μ²) of the survey of columns, which raises the noise of training by a thirtieth, and its
rounds."""

_HALF_NOISE = 0.125
"""Most noise in the share of the records in one half of a column's bins."""

_MOST_BINS = 32


def with_curves(data: Schema, pieces: int | None, noise: float) -> tuple[Schema, ColumnDistributions | None]:
    """Return the schema with a curve for every numeric feature that has none, and the survey that places knots.

    Both stay as they are if the survey's noise would hide in which half of its bounds a column lies, or if the schema
    has a radius, which would bend every curve by the others. `noise` is the noise in the silos' average of a number of
    sensitivity 1/n, for the whole budget.
    """
    taken = {name for each in data.maps or () if isinstance(each, Curve) for name in each.columns}
    columns = tuple(
        name
        for name, column in data.features.items()
        if isinstance(column, Scaled) and not column.is_unbounded and name not in taken
    )
    if pieces == 0 or not columns or data.radius is not None:
        return data, None
    own = math.sqrt(2 * len(columns) / (COLUMNS_SHARE / COLUMNS_ROUNDS)) * noise
    bins = 2 ** min(int(math.log2(_MOST_BINS)), math.floor(1 + 2 * math.log2(_HALF_NOISE / own)))
    knots = (pieces or PIECES) + 1
    if bins <= 2 or data.width + len(columns) * (knots - 1) > WIDEST_MATRIX:
        return data, None
    curve = Spline(columns=columns, knots=knots, degree=1, surveyed=True)
    return data.with_maps((*(data.maps or ()), curve)), ColumnDistributions(bins=bins)
