"""The cost of a round by its sampling rule: the sensitivity over the noise, rounding included, as an event.

The only file that turns a rule into an event. `docs/proofs.md` has the proofs.
"""

import math
from collections.abc import Callable

from ringfence.accounting.events import (
    DisjointBatchRelease,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    Release,
    require_count,
    require_positive,
)
from ringfence.errors import AccountingError
from ringfence.protocol import FixedSize, Full, OnePass, Phased, Poisson, Sampling
from ringfence.protocol.plan.sampling import Part


def shift_of(
    *, sensitivity: float, sigma: float, summed: int, dimension: int = 1, rows: int = 1, rounding: float | None = None
) -> float:
    """Return the sensitivity of a release in standard deviations of its noise, with the silo's rounding.

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
    """Return the factor by which rounding may raise the sensitivity of an answer whose sum is exact.

    ``roundings`` is as in `BaseQuery.roundings`; every row of correlated noise adds one. Eight more, for a single
    record, cover the arithmetic of the charge itself, and that noise lies on a grid (`docs/proofs.md`, Arithmetic).
    """
    return 1 + ((rows + roundings) * summed + 8) * 2.0**-53


Shift = Callable[[float], float]
"""Maps a share of the sensitivity to the shift of a release with that sensitivity."""


def event(rule: Sampling, *, records: int, batch: int, partition: str, part: Part | None, shift: Shift) -> Release:
    """Return the event of one round under the sampling rule.

    ``shift(1.0)`` is how far replacing a record that takes part moves the answer, in standard deviations of its noise,
    rounding included; ``shift(0.5)`` how far leaving it out does. ``partition`` names the plan's division of the
    records into parts, ``part`` the one that takes part.
    """
    match rule:
        case Full():
            return GaussianRelease(shift(1.0))
        case OnePass() | Phased() if part is not None:
            return DisjointBatchRelease(partition, part.number, shift(1.0))
        case FixedSize():
            return FixedSizeRelease(records, batch, shift(1.0)) if records > batch else GaussianRelease(shift(1.0))
        case Poisson():
            # shift/2 must cover the way from the record in to the record left out, which is half as long, with the
            # rounding of both averages.
            both = 2 * shift(0.5)
            return PoissonRelease(batch / records, both) if records > batch else GaussianRelease(both)
        case _:  # never guess: a sampling that is counted as another could cost more than is charged
            raise AccountingError(f"This version cannot account for sampling '{rule.name}'.")
