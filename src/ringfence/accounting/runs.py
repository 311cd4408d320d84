"""The events of a run that is described by its numbers, without a plan."""

from ringfence.accounting.events import Event, Release, require_count, require_positive
from ringfence.accounting.sampling import event, shift_of
from ringfence.errors import AccountingError
from ringfence.protocol import Phased, sampling_named
from ringfence.protocol.plan.sampling import SAMPLING_NAMES, Part


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
