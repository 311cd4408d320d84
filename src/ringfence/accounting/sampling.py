"""The cost of a round by its sampling rule: the sensitivity over the noise, rounding included, as an event.

The only file that turns a rule into an event. `docs/proofs.md` has the proofs.
"""

import math
from collections.abc import Callable

from ringfence.accounting.events import (
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    Release,
    require_count,
    require_positive,
)
from ringfence.errors import AccountingError
from ringfence.protocol import FixedSize, Full, OnePass, Phased, Poisson, Sampling, sampling_named
from ringfence.protocol.plan.sampling import SAMPLING_NAMES, Part


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


def per_round_event(
    sampling: str,
    *,
    records: int,
    batch: int,
    clip: float,
    sigma: float,
    dimension: int = 1,
    partition: str = "",
    part: int = 0,
) -> Release:
    """Return the event of one round: noise of standard deviation ``sigma`` per coordinate on an average over ``batch``
    records.

    Each record contributes at most ``clip`` / ``batch`` in l2 norm. ``partition`` and ``part`` say which records take
    part: in "one-pass" they name the pass and count its answers; in "phased", where all ``batch`` records of the
    phase's part take part, they name the run and count its phases. Elsewhere they have no meaning.
    """
    n, K, L = require_count("records", records), require_count("batch", batch), require_positive("clip", clip)
    if n < K:
        raise AccountingError(f"The batch of {K} is larger than the {n} records; lower the batch.")
    if sampling not in SAMPLING_NAMES:
        raise AccountingError(f"Unknown sampling {sampling!r}: choose one of {', '.join(SAMPLING_NAMES)}.")
    rule = sampling_named(sampling)
    if rule.takes_all and n != K:
        raise AccountingError(f'Sampling "{sampling}" uses all {n} records, but the batch is {K}; make them equal.')

    def shift(share: float) -> float:
        """Return the shift of one round's average under a sampling rule, with that share of the sensitivity."""
        return shift_of(sensitivity=2 * L / K * share, sigma=sigma, dimension=dimension, summed=n)

    return event(rule, records=n, batch=K, partition=partition, part=Part(part, 0), shift=shift)


def run_events(
    sampling: str,
    rounds: int,
    *,
    records: int,
    batch: int,
    clip: float,
    sigma: float,
    dimension: int = 1,
    partition: str = "",
) -> list[tuple[Event, int]]:
    """Return the events of a whole run, in short: the event of one round, ``rounds`` times.

    One pass is represented by its part 0, once: all its parts have the same shift, so ``rounds`` of them cost as
    much as any one. A silo that charges round by round must charge each answer as its own part instead. A "phased"
    run is refused: its phases differ, and each is described on its own.
    """
    require_count("rounds", rounds)
    made = per_round_event(
        sampling, records=records, batch=batch, clip=clip, sigma=sigma, dimension=dimension, partition=partition
    )
    rule = sampling_named(sampling)
    if isinstance(rule, Phased):
        raise AccountingError("The phases of a phased run differ in size and rounds; describe each with its own event.")
    try:
        rule.check("any", records=records, batch=batch, rounds=rounds)
    except ValueError:
        raise AccountingError(
            f"One pass of {rounds} disjoint batches of {batch} needs {rounds * batch} records, but there are "
            f"{records}; lower the rounds or the batch."
        ) from None
    return [(made, rule.times(rounds))]
