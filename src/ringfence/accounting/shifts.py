"""How far a release can move, in standard deviations of its noise, as silos compute it: rounding included."""

import math

from ringfence.accounting.events import require_count, require_positive
from ringfence.errors import AccountingError


def shift_of(
    *,
    sensitivity: float,
    sigma: float,
    summed: int,
    dimension: int = 1,
    rows: int = 1,
    rounding: float | None = None,
) -> float:
    """Return how far a release can move, in standard deviations of its noise, as the silo computes it.

    In exact arithmetic replacing one record moves the release by at most ``sensitivity`` in l2 norm, and that would
    be sensitivity/σ. The silo adds up the terms of ``summed`` records, of norm at most ``sensitivity``, which makes it
    ``rounding`` times as much (`exact_rounding`, unless another is given), rounds each of the ``dimension`` coordinates
    to its grid and adds noise of standard deviation ``sigma`` to each.

    - An average over K records of norm at most L: sensitivity 2L/K.
    - Correlated noise (``correlation``): sensitivity 2L/K · column_norm, where a record moves up to ``rows`` vectors;
      ``summed`` then counts the records of all rows together.
    """
    s, sigma = require_positive("sensitivity", sensitivity), require_positive("sigma", sigma)
    n = require_count("summed", summed)
    d, rows = require_count("dimension", dimension), require_count("rows", rows)
    if rows > n:
        raise AccountingError(f"{rows} rows need at least as many records, but only {n} are summed; lower the rows.")
    rounding = exact_rounding(n, rows) if rounding is None else rounding
    # A vector is rounded to a grid of width at most 2⁻³⁰σ: half a width per coordinate, row and neighbour.
    grid = math.sqrt(rows) * math.sqrt(d) * 2.0**-30
    shift = s / sigma * rounding + grid
    if not shift < math.inf:
        raise AccountingError(f"Noise of standard deviation {sigma!r} is too small to account for; raise sigma.")
    return shift


def exact_rounding(summed: int, rows: int = 1, roundings: int = 2) -> float:
    """Return by how much more than in exact arithmetic an answer may move whose sum is exact, as a factor.

    ``roundings`` is as in `BaseQuestion.roundings`; every row of correlated noise adds one. Eight more, for a single
    record, cover the arithmetic of the charge itself, and that noise lies on a grid (`docs/proofs.md`, Arithmetic).
    """
    return 1 + ((rows + roundings) * summed + 8) * 2.0**-53


def rounding_of(summed: int, dimension: int) -> float:
    """Return by how much more than in exact arithmetic a sum in floating point may move, as a factor.

    Plans until version 0.2 are charged so. Adding up n terms of norm s errs by about n 2⁻⁵³ · ns in l2, and clipping
    adds d 2⁻⁵³ relative to each norm; both happen for either neighbour, and 2⁻⁵¹ leaves room for a factor of two.

    It also covers the sum over earlier rows of correlated noise: with K records of norm s/(2‖c‖) in each, row k errs by
    rows 2⁻⁵³ Σc · Ks/(2‖c‖), where Σc ≤ √rows ‖c‖; all rows of both neighbours together by rows 2⁻⁵³ · rows K s, where
    rows ≤ n and rows K ≤ n.
    """
    return 1 + (summed + dimension) * summed * 2.0**-51
