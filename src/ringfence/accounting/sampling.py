"""What each sampling rule makes of a round's cost: how far a release moves, and how often a record is in it.

The only file that turns a rule into an event. `docs/proofs.md` has the proofs.
"""

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
from ringfence.accounting.shifts import shift_of
from ringfence.errors import AccountingError
from ringfence.protocol.sampling import (
    SAMPLING_NAMES,
    FixedSize,
    Full,
    OnePass,
    Part,
    Phased,
    Poisson,
    Sampling,
    sampling_named,
)

Shift = Callable[[float], float]
"""Maps a share of the sensitivity to the shift of a release that moves by that share."""


def event(rule: Sampling, *, records: int, batch: int, partition: str, part: Part | None, shift: Shift) -> Release:
    """Describe one round under the rule.

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
    """Describe one round: noise of standard deviation ``sigma`` per coordinate on an average over ``batch`` records.

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
    """Describe a whole run, as briefly as its cost allows: the event of one round, ``rounds`` times.

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
