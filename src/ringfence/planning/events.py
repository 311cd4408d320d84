"""What a silo released, described as frozen data; ``accountant`` interprets it.

Every event is about replace-one adjacency. ``shift`` is always in units of the noise's standard deviation:
how far replacing one record can move the release, 2L/(Kσ) for an average over K records of norm at most L.
"""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, get_args

from ringfence.errors import AccountingError
from ringfence.protocol.plan import Sampling

__all__ = [
    "DisjointBatchRelease",
    "Event",
    "Events",
    "FixedSizeRelease",
    "GaussianRelease",
    "PoissonRelease",
    "event_from_dict",
    "per_round_event",
    "require_count",
    "require_positive",
    "require_probability",
    "run_events",
]


def require_count(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``least``; otherwise refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AccountingError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    return value


def require_positive(name: str, value: object) -> float:
    """Return ``value`` as a float if it is a finite number above 0; otherwise refuse it."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 < value <= sys.float_info.max:
        raise AccountingError(f"{name} must be a finite number above 0, but is {value!r}.")
    return float(value)


def require_probability(name: str, value: object) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1; otherwise refuse it."""
    if not isinstance(value, float) or not 0 < value < 1:
        raise AccountingError(f"{name} must lie strictly between 0 and 1, but is {value!r}.")
    return value


@dataclass(frozen=True)
class _Release:
    """What all events share: a kind for the ledger, a shift, and a plain-data form."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, str | int | float]:
        """Return the event as JSON-ready data; ``event_from_dict`` reads it back."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class GaussianRelease(_Release):
    """Gaussian noise on an average in which every record takes part: exactly μ-GDP with μ = ``shift``.

    ``shift`` = 2L/(nσ).
    """

    kind: ClassVar[str] = "gaussian"
    shift: float

    def __post_init__(self) -> None:
        require_positive("shift", self.shift)


@dataclass(frozen=True)
class FixedSizeRelease(_Release):
    """Gaussian noise on an average over ``batch`` distinct records of ``records``, drawn afresh and kept secret.

    ``shift`` = 2L/(Kσ): how far the release moves when the replaced record is inside the batch.
    """

    kind: ClassVar[str] = "fixed-size"
    records: int
    batch: int
    shift: float

    def __post_init__(self) -> None:
        require_count("records", self.records)
        require_count("batch", self.batch)
        require_positive("shift", self.shift)
        if self.batch > self.records:
            raise AccountingError(
                f"A batch of {self.batch} distinct records cannot be drawn from {self.records}; lower the batch."
            )


@dataclass(frozen=True)
class PoissonRelease(_Release):
    """Gaussian noise on a sum over records that each take part with probability ``rate``, over a fixed divisor K.

    ``shift`` = 2L/(Kσ), so taking part moves the release by at most ``shift``/2 for either neighbour.
    """

    kind: ClassVar[str] = "poisson"
    rate: float
    shift: float

    def __post_init__(self) -> None:
        require_positive("shift", self.shift)
        if require_positive("rate", self.rate) > 1:
            raise AccountingError(f"rate is a probability and must not exceed 1, but is {self.rate!r}.")


@dataclass(frozen=True)
class DisjointBatchRelease(_Release):
    """Gaussian noise on an average over one batch of a one-pass partition.

    A record lies in one batch only, so all events of one ``partition`` together cost a single Gaussian release
    with the largest shift among them (parallel composition). This holds only if each batch of the partition is
    released once and the partition was chosen without looking at the records: the silo must see to both.
    """

    kind: ClassVar[str] = "disjoint-batch"
    partition: str
    shift: float

    def __post_init__(self) -> None:
        if not isinstance(self.partition, str) or not self.partition:
            raise AccountingError(
                f"partition must name the one-pass partition, but is {self.partition!r}: two passes over the same "
                "records need two names, or the second would be counted as free."
            )
        require_positive("shift", self.shift)


Event = GaussianRelease | FixedSizeRelease | PoissonRelease | DisjointBatchRelease
"""One release by a silo."""

Events = Iterable[tuple[Event, int]]
"""A composition: each event with how many times it happened. Order and grouping do not matter."""

_KINDS: dict[str, type[Event]] = {kind.kind: kind for kind in get_args(Event)}


def event_from_dict(data: object) -> Event:
    """Read back what ``to_dict`` wrote; refuse an unknown kind and any missing, extra or invalid field."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    event_type = _KINDS.get(kind) if isinstance(kind, str) else None
    if event_type is None or not isinstance(data, Mapping):
        raise AccountingError(
            f"Privacy event of unknown kind {kind!r}: this version knows {', '.join(sorted(_KINDS))}, "
            "and an event that is not understood cannot be accounted for."
        )
    arguments = {name: value for name, value in data.items() if name != "kind"}
    expected = {field.name for field in fields(event_type)}
    if arguments.keys() != expected:
        raise AccountingError(
            f"A {kind!r} event has the fields {sorted(expected)}, but this one has {sorted(map(str, arguments))}."
        )
    return event_type(**arguments)  # whose __post_init__ checks every field


def per_round_event(
    sampling: str,
    *,
    records: int,
    batch: int,
    clip: float,
    sigma: float,
    dimension: int = 1,
    partition: str = "",
) -> Event:
    """Describe one round: noise of standard deviation ``sigma`` per coordinate on an average over ``batch`` records.

    Each record contributes at most ``clip`` / ``batch`` in l2 norm. ``partition`` is needed for "one-pass" only.
    """
    if sampling not in get_args(Sampling):
        raise AccountingError(f"Unknown sampling {sampling!r}: choose one of {', '.join(get_args(Sampling))}.")
    n = require_count("records", records)
    K = require_count("batch", batch)
    d = require_count("dimension", dimension)
    L, sigma = require_positive("clip", clip), require_positive("sigma", sigma)
    if n < K:
        raise AccountingError(f"The batch of {K} is larger than the {n} records; lower the batch.")
    if sampling == "full" and n != K:
        raise AccountingError(f'Sampling "full" uses all {n} records, but the batch is {K}; make them equal.')

    # Summing at most n terms of norm L/K in double precision errs by about n 2⁻⁵³ · nL/K in l2, and clipping adds
    # d 2⁻⁵³ relative to each norm; both happen for either neighbour. 2⁻⁵¹ leaves room for a factor of two.
    rounding = 1 + (n + d) * n * 2.0**-51
    # The silo rounds the average to a grid of width at most 2⁻³⁰σ: half a width per coordinate and neighbour.
    grid = math.sqrt(d) * 2.0**-30
    if sampling == "poisson":
        grid *= 2  # here shift/2 must cover two rounded averages: with the record in, and with it left out
    shift = 2 * L / (K * sigma) * rounding + grid
    if not shift < math.inf:
        raise AccountingError(f"Noise of standard deviation {sigma!r} is too small to account for; raise sigma.")

    if sampling == "one-pass":
        return DisjointBatchRelease(partition, shift)
    if n == K:
        return GaussianRelease(shift)
    return FixedSizeRelease(n, K, shift) if sampling == "fixed" else PoissonRelease(K / n, shift)


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
    """Describe a whole run: ``rounds`` times the event of one round, as a ledger with a row per round holds it."""
    require_count("rounds", rounds)
    event = per_round_event(
        sampling,
        records=records,
        batch=batch,
        clip=clip,
        sigma=sigma,
        dimension=dimension,
        partition=partition,
    )
    if sampling == "one-pass" and rounds * batch > records:
        raise AccountingError(
            f"One pass has no {rounds} disjoint batches of {batch}: {rounds * batch} records are needed and "
            f"{records} exist; lower the rounds or the batch."
        )
    return [(event, rounds)]
