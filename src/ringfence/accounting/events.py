"""What a silo released, described as frozen data; ``accountant`` interprets it.

Every event is about replace-one adjacency. ``shift`` is always in units of the noise's standard deviation:
how far replacing one record can move the release, 2L/(Kσ) for an average over K records of norm at most L.

``of_group`` says what an event costs a group: rows that are replaced together, as the copies of one record in a
bootstrap sample, or all rows of one person. docs/proofs.md, "Copies of a record", has the proofs.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar, Self, get_args

from ringfence.errors import AccountingError
from ringfence.protocol import Observer
from ringfence.storage.files import require_known_format

_SECOND_ROUNDING = 2.0**-16
"""Rounding to the grid for two more neighbours, √d·2⁻³⁰ standard deviations of up to 2²⁸ numbers."""


def require_count(name: str, value: object, least: int = 1) -> int:
    """Return a number for the accounting of events, if it is whole and at least ``least``; otherwise refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise AccountingError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    return value


def require_positive(name: str, value: object) -> float:
    """Return a number for the accounting of events as a float, if finite and above 0; otherwise refuse it."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 < value <= sys.float_info.max:
        raise AccountingError(f"{name} must be a finite number above 0, but is {value!r}.")
    return float(value)


def require_probability(name: str, value: object) -> float:
    """Return a number for the accounting of events as a float, if strictly between 0 and 1; otherwise refuse it."""
    if not isinstance(value, float) or not 0 < value < 1:
        raise AccountingError(f"{name} must lie strictly between 0 and 1, but is {value!r}.")
    return value


@dataclass(frozen=True)
class _Release(ABC):
    """What all events share: a kind for the ledger, a shift, and a plain-data form."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON-ready data; ``event_from_dict`` reads it back."""
        return {"kind": self.kind, **asdict(self)}

    def seen_by(self, observer: Observer) -> Self:
        """Return the release as the observer sees it: in its noise, the same to all."""
        return self

    def of_silo(self, silo: str) -> Self:
        """Return the release beside those of other silos: the parts of a silo's partition are its own."""
        return self

    @abstractmethod
    def of_group(self, size: int) -> tuple["Event", int]:
        """Return an event, and how many of it cost at least what this one costs ``size`` rows together."""


@dataclass(frozen=True)
class GaussianRelease(_Release):
    """Gaussian noise on an average in which every record takes part: exactly μ-GDP with μ = ``shift``.

    ``shift`` = 2L/(nσ).
    """

    kind: ClassVar[str] = "gaussian"
    shift: float

    def __post_init__(self) -> None:
        """Refuse a Gaussian release whose shift is not positive."""
        require_positive("shift", self.shift)

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return a Gaussian release with a shift ``size`` times as large, which is exact."""
        return replace(self, shift=require_count("size", size) * self.shift), 1


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
        """Refuse a fixed-size release with a batch larger than its records, or an invalid shift."""
        require_count("records", self.records)
        require_count("batch", self.batch)
        require_positive("shift", self.shift)
        if self.batch > self.records:
            raise AccountingError(
                f"A batch of {self.batch} distinct records cannot be drawn from {self.records}; lower the batch."
            )

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return a draw for each row: it has 1/``size`` of the noise's variance, and other rows may have been drawn.

        Where the rows outside the group cannot fill the batch, or it has more rows than the batch, assume no draw at
        all.
        """
        if require_count("size", size) == 1:
            return self, 1
        if size > min(self.batch, self.records - self.batch):
            return GaussianRelease(min(size, self.batch) * self.shift), 1
        shift = math.sqrt(size) * (self.shift + _SECOND_ROUNDING)
        return FixedSizeRelease(self.records - size + 1, self.batch, shift), size


@dataclass(frozen=True)
class PoissonRelease(_Release):
    """Gaussian noise on a sum over records that each take part with probability ``rate``, over a fixed divisor K.

    ``shift`` = 2L/(Kσ), so taking part moves the release by at most ``shift``/2 for either neighbour.
    """

    kind: ClassVar[str] = "poisson"
    rate: float
    shift: float

    def __post_init__(self) -> None:
        """Refuse a Poisson release whose rate is not a probability, or with an invalid shift."""
        require_positive("shift", self.shift)
        if require_positive("rate", self.rate) > 1:
            raise AccountingError(f"rate is a probability and must not exceed 1, but is {self.rate!r}.")

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return a draw for each row, with 1/``size`` of the noise's variance."""
        return replace(self, shift=math.sqrt(require_count("size", size)) * self.shift), size


@dataclass(frozen=True)
class DisjointBatchRelease(_Release):
    """Gaussian noise on an average over one ``part`` of a ``partition`` of the records into disjoint parts.

    Events of one part are about the same records and compose: √(Σ shift²). Different parts share no record, so a
    partition costs as much as the most expensive of its parts, beside any other releases (`docs/proofs.md`, Lemma R5).
    Each record must keep its part, and parts must be chosen without looking at the records: the silo must ensure both.

    In one pass every answer has its own part. In phased training part i holds the records of phase i.
    """

    kind: ClassVar[str] = "disjoint-batch"
    partition: str
    part: int
    shift: float

    def __post_init__(self) -> None:
        """Refuse a disjoint-batch release without the name of its partition, or with invalid numbers."""
        if not isinstance(self.partition, str) or not self.partition:
            raise AccountingError(
                f"partition must name the division into disjoint parts, but is {self.partition!r}: two divisions of "
                "the same records need two names, or parts that overlap would be counted as disjoint."
            )
        require_count("part", self.part, least=0)
        require_positive("shift", self.shift)

    def of_silo(self, silo: str) -> Self:
        """Name the partition of a disjoint-batch release by its silo too."""
        return replace(self, partition=f"{self.partition} of {silo}")

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return a shift that is ``size`` times as large: all rows in the most expensive part are the worst case."""
        return replace(self, shift=require_count("size", size) * self.shift), 1


@dataclass(frozen=True)
class BinomialRelease(_Release):
    """Counts with fair coins, of which only the total over several silos leaves a shuffler (`shuffled_sums`).

    Replacing one record moves the total by at most ``reach`` in l2 norm before it is rounded. Every one of
    ``dimension`` coordinates carries ``trials`` coins that the server's accomplices do not know, ``own`` of them the
    silo's own; ``slack`` is the part of δ that one release sets aside. ``partition`` and ``part`` are as in
    `DisjointBatchRelease`; without a partition every record takes part.

    Against an observer of the silo's own counts (a server that colludes with the shuffler, or with more silos
    than the plan assumes), only its own coins protect.
    """

    kind: ClassVar[str] = "binomial"
    reach: float
    trials: int
    own: int
    dimension: int
    slack: float
    partition: str = ""
    part: int = 0

    def __post_init__(self) -> None:
        """Refuse a binomial release with invalid numbers, such as more own coins than there are in all."""
        require_positive("reach", self.reach)
        require_count("trials", self.trials)
        require_count("own", self.own)
        require_count("dimension", self.dimension)
        require_probability("slack", self.slack)
        require_count("part", self.part, least=0)
        if self.own > self.trials:
            raise AccountingError(
                f"A silo cannot toss more coins ({self.own}) than all silos together ({self.trials})."
            )
        if not isinstance(self.partition, str):
            raise AccountingError(f"partition must be a text, but is {self.partition!r}.")

    def seen_by(self, observer: Observer) -> Self:
        """Return a binomial release by the coins that hide it: all `trials`, or against anyone the silo's own."""
        return self if observer == "server" else replace(self, trials=self.own)

    def of_silo(self, silo: str) -> Self:
        """Name the partition of a binomial release by its silo too, if there is one."""
        return replace(self, partition=f"{self.partition} of {silo}") if self.partition else self

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return a reach that is ``size`` times as large; rows that may lie in several parts are not accounted for."""
        if require_count("size", size) > 1 and self.partition:
            raise AccountingError(
                "The cost of several rows of one person through a shuffler is proved only if all records take part in "
                "every round, not for one-pass or phased sampling. Keep one row per person."
            )
        return replace(self, reach=size * self.reach), 1

    @property
    def is_mixed(self) -> bool:
        """Whether the cost relies on coins of other silos, and so on shares that hide which coins are whose."""
        return self.trials > self.own


Release = GaussianRelease | FixedSizeRelease | PoissonRelease | DisjointBatchRelease | BinomialRelease
"""One release in which all records take the same part, as far as anyone knows."""


@dataclass(frozen=True)
class SectionRelease(_Release):
    """A ``release`` of one ``section`` of a silo's records, by a ``division`` made without looking at them.

    A record lies in one section of a division, so it pays only for that section's releases; the most expensive section
    counts (`docs/proofs.md`, Lemma R6).
    """

    kind: ClassVar[str] = "section"
    division: str
    section: str
    release: Release

    def __post_init__(self) -> None:
        """Refuse a section's release without a division, a section or a release inside."""
        if not all(isinstance(name, str) and name for name in (self.division, self.section)):
            raise AccountingError("A section's release must name both the division of the records and the section.")
        if not isinstance(self.release, Release):
            raise AccountingError(f"{self.release!r} cannot be the release of a section.")

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON-ready data, with its release inside."""
        return {**super().to_dict(), "release": self.release.to_dict()}

    def seen_by(self, observer: Observer) -> Self:
        """Return the section's release as the observer sees it."""
        return replace(self, release=self.release.seen_by(observer))

    def of_silo(self, silo: str) -> Self:
        """Name the division of a section's release by its silo too."""
        return replace(self, division=f"{self.division} of {silo}", release=self.release.of_silo(silo))

    def of_group(self, size: int) -> tuple["Event", int]:
        """Return the cost of a section's release if rows of a group may lie in every section: each pays for all."""
        return (self, 1) if require_count("size", size) == 1 else self.release.of_group(size)


Event = Release | SectionRelease
"""One release by a silo."""


Events = Iterable[tuple[Event, int]]
"""A composition: each event with how many times it happened. Order and grouping do not matter."""


def seen_by(observer: Observer, events: Events) -> list[tuple[Event, int]]:
    """Return the releases among the events as the observer sees them."""
    return [(event.seen_by(observer), count) for event, count in events]


def of_group(size: int, events: Events) -> list[tuple[Event, int]]:
    """Return what the events cost ``size`` rows of the silo together, each replaced by any other."""
    return [(made, times * count) for event, count in events for made, times in [event.of_group(size)]]


def of_copies(copies: Mapping[str | None, int], events: Events) -> list[tuple[Event, int]]:
    """Return what the events cost that many rows in each section together, each replaced by any other.

    One row whose section nobody knows is in `None`, and pays for the most expensive (`docs/proofs.md`, "Copies of a
    record", Lemma G7).
    """
    if None in copies:
        return of_group(sum(copies.values()), events)
    found: list[tuple[Event, int]] = []
    for event, count in events:
        size, release = sum(copies.values()), event
        if isinstance(event, SectionRelease):
            size, release = copies.get(event.section, 0), event.release
        found += of_group(size, [(release, count)]) if size else []
    return found


_MOST_DIVISIONS = 4
"""The number of newest divisions whose sections are distinguished; in older ones, each record pays for everything."""


def in_version(version: int | str, events: Events) -> list[tuple[Event, int]]:
    """Return releases of that version of a data set: another version's rows may be divided otherwise."""
    return [
        (replace(event, division=f"{event.division}, version {version}"), count)
        if isinstance(event, SectionRelease)
        else (event, count)
        for event, count in events
    ]


@dataclass(frozen=True)
class RecordPlace:
    """Where a record may lie: in which section of each division that distinguishes sections."""

    sections: Mapping[str, str]

    def pays_for(self, events: Events) -> list[tuple[Release, int]]:
        """Return the releases, among the events, that a record of this place has a part in."""
        found: list[tuple[Release, int]] = []
        for event, count in events:
            if not isinstance(event, SectionRelease):
                found.append((event, count))
            elif self.sections.get(event.division, event.section) == event.section:
                found.append((event.release, count))
        return found


def places(events: Iterable[Event]) -> list[RecordPlace]:
    """Return every place that the releases distinguish; there is always one."""
    divisions: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, SectionRelease):
            divisions.setdefault(event.division, set()).add(event.section)
    newest = list(divisions)[-_MOST_DIVISIONS:]
    chosen = product(*(sorted(divisions[division]) for division in newest))
    return [RecordPlace(dict(zip(newest, sections, strict=True))) for sections in chosen]


_KINDS: dict[str, type[Event]] = {kind.kind: kind for kind in get_args(Event)}


def event_from_dict(data: object) -> Event:
    """Read back what ``to_dict`` wrote; refuse an unknown kind or format, and any missing, extra or invalid field.

    A field with a default may be missing: it was added later, and its absence means what was true before.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else None
    event_type = _KINDS.get(kind) if isinstance(kind, str) else None
    if event_type is None or not isinstance(data, Mapping):
        raise AccountingError(
            f"Privacy event of unknown kind {kind!r}: this version knows {', '.join(sorted(_KINDS))}, "
            "and an event that is not understood cannot be accounted for."
        )
    require_known_format(f"{kind!r} event", data.get("format"), 1, AccountingError)
    arguments = {name: value for name, value in data.items() if name not in ("kind", "format")}
    known = {field.name: field.default is not MISSING for field in fields(event_type)}
    required = {name for name, optional in known.items() if not optional}
    if not required <= arguments.keys() <= known.keys():
        raise AccountingError(
            f"A {kind!r} event has the fields {sorted(known)}, but this one has {sorted(map(str, arguments))}."
        )
    if "release" in arguments:
        arguments["release"] = event_from_dict(arguments["release"])
    return event_type(**arguments)  # whose __post_init__ checks every field
