"""The accountant: from events to (ε, δ) under replace-one adjacency, as a proved upper bound.

Full-batch, one-pass and phased releases compose exactly: Gaussian releases with shifts μ_1, μ_2, ... are together one
Gaussian release with shift √(μ_1² + μ_2² + ...) (Dong, Roth & Su 2019, Corollary 3.3). Sampled batches compose as
privacy-loss distributions (``pld``): tight to about four digits of ε, and cautious by more only where a record takes
part so rarely (rates below 1e-4) that δ is comparable to that. Counts from a shuffler are each a Gaussian release plus
a share of δ, which add up (``shuffled_sums``). Compose events, never (ε, δ) pairs: that is what makes the sum tight.

Where releases are about sections of the records, the most expensive section counts.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never, get_args

from ringfence.accounting import pld
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Events,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    Release,
    places,
    require_count,
    require_positive,
    require_probability,
)
from ringfence.accounting.profiles import (
    FixedSizeProfile,
    GaussianProfile,
    PoissonProfile,
    Profile,
    gaussian_delta,
    gaussian_epsilon,
)
from ringfence.accounting.shuffled_sums import binomial_shift
from ringfence.errors import AccountingError

SMALLEST_SHIFT, LARGEST_SHIFT, SMALLEST_RATE = 1e-7, 1e6, 1e-12
"""Bounds that keep the arithmetic of sampled releases within range.

A profile grows with the shift and with the rate (it is convex in the rate, and 0 at rate 0), so counting a smaller
one as the least of these is only more cautious; nothing is claimed for a larger shift, where epsilon exceeds 1e11.
"""


LARGEST_MIXED = 60.0
"""No larger epsilon is claimed where shares were mixed.

What a mix reveals beside the total is within total variation distance `channels.shuffler.MIXED` = 2⁻¹⁶⁰ of nothing,
which adds (1 + e^ε)·2⁻¹⁶⁰ < 1e-22 to δ up to this ε, per round.
"""

_MIXING = 1e-22


@dataclass(frozen=True)
class _Composed:
    """Composed events: profiles that compose, and the δ that was set aside."""

    parts: tuple[pld.Part, ...]
    slack: float
    mixed: bool
    """Whether something relies on mixed shares."""

    @property
    def shift(self) -> float | None:
        """The shift of composed releases if they are one Gaussian release; 0 if there are none."""
        match self.parts:
            case []:
                return 0.0
            case [(GaussianProfile(shift), 1)]:
                return shift
            case _:
                return None

    @property
    def is_in_range(self) -> bool:
        """Whether the accountant can prove anything: a Gaussian release alone needs no numerical composition."""
        return self.shift is not None or all(profile.shift <= LARGEST_SHIFT for profile, _ in self.parts)

    def left_of(self, delta: float) -> float:
        """Return what the composed releases' slack leaves of a δ, rounded down."""
        return delta - self.slack * (1 + 2.0**-40)

    def epsilon(self, delta: float) -> float:
        """Return the ε of the composed releases at δ."""
        left = self.left_of(delta)
        if not self.parts:
            return 0.0
        if left <= 0 or not self.is_in_range:
            return math.inf
        result = pld.epsilon_bound(self.parts, left) if self.shift is None else gaussian_epsilon(self.shift, left)
        return math.inf if self.mixed and result > LARGEST_MIXED else result

    def delta(self, epsilon: float) -> float:
        """Return the δ of the composed releases at ε."""
        if not self.parts:
            return 0.0
        if not self.is_in_range or (self.mixed and epsilon > LARGEST_MIXED):
            return 1.0
        shift = self.shift
        found = pld.delta_bound(self.parts, epsilon) if shift is None else gaussian_delta(shift, epsilon)
        return min(1.0, found + self.slack)

    def dominating_shift(self, slack: float) -> float:
        """Return the shift of a Gaussian release that costs no less than the composed releases, but for ``slack``."""
        left = self.left_of(slack)
        if left < 0:
            return math.inf
        if self.shift is not None:
            return self.shift
        unsampled = math.hypot(*(math.sqrt(count) * profile.shift for profile, count in self.parts)) * (1 + 2.0**-49)
        return min(unsampled, pld.dominating_shift(self.parts, left) if self.is_in_range else math.inf)


def epsilon(events: Events, delta: float) -> float:
    """Return the ε that all ``events`` together cost at ``delta``; infinity if none can be proved.

    - no events: 0.0
    - an event type this version does not know, or a count that is not a whole number: AccountingError
    - delta outside (0, 1): AccountingError
    """
    require_probability("delta", delta)
    return max(composed.epsilon(delta) for composed in _composed(events))


def delta(events: Events, epsilon: float) -> float:
    """Return the δ that all ``events`` together cost at ``epsilon``, which may be 0; no events cost 0.0."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, float | int) or not 0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be a finite number of at least 0, but is {epsilon!r}.")
    return max(composed.delta(epsilon) for composed in _composed(events))


def gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the largest μ, to twelve digits and rounded down, for which N(μ,1) against N(0,1) is (ε, δ)-DP."""
    return _gaussian_shift(require_positive("epsilon", epsilon), require_probability("delta", delta))


@lru_cache(maxsize=4096)
def _gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the largest shift that meets (ε, δ), by bisection."""
    meets, fails = 1.0, 1.0
    while gaussian_delta(meets, epsilon) > delta:
        meets /= 2
    while gaussian_delta(fails, epsilon) <= delta:
        fails *= 2
    while fails - meets > 1e-12 * meets:
        middle = (meets + fails) / 2
        meets, fails = (middle, fails) if gaussian_delta(middle, epsilon) <= delta else (meets, middle)
    return meets


def as_one_gaussian(events: Events) -> float | None:
    """Return the shift of the single Gaussian release that ``events`` amount to; 0.0 for no events.

    None if they include a sampled batch, or counts from a shuffler: such a composition is not a Gaussian release.
    """
    shifts = [None if composed.slack else composed.shift for composed in _composed(events)]
    return None if None in shifts else max(shift for shift in shifts if shift is not None)


def is_sampled(events: Events) -> bool:
    """Return whether some of the events are about sampled batches."""
    parts = (part for composed in _composed(events) for part in composed.parts)
    return any(not isinstance(profile, GaussianProfile) for profile, _ in parts)


def dominating_shift(events: Events, slack: float, releases: int) -> float:
    """Return μ with which ``events``, at every ε, have no more δ than N(μ,1) against N(0,1), plus ``slack``.

    Infinity if none can be proved. Half of the slack is for counts from a shuffler, of which there are or may yet be as
    many as ``releases``: each may be priced with any slack, not only with its own. Sampling only hides: with every
    record in every batch the cost would be no lower.
    """
    aside = slack / (2 * max(releases, 1))
    return max(composed.dominating_shift(slack) for composed in _composed(events, aside))


def _composed(events: Events, aside: float | None = None) -> list[_Composed]:
    """Return the composition of the releases that a record of each place pays for; see ``_compose``."""
    found = list(events)
    return [_compose(place.pays_for(found), aside) for place in places(event for event, _ in found)]


def _compose(events: Iterable[tuple[Release, int]], aside: float | None) -> _Composed:
    """Return, for the accountant, sampled releases with counts, all others as one Gaussian, and the slack.

    The result does not depend on the events' order or grouping. ``aside`` replaces the slack of counts from a shuffler.
    """
    counts: Counter[Release] = Counter()
    for event, count in events:
        if not isinstance(event, get_args(Release)):
            raise AccountingError(
                f"Cannot account for {event!r}: it is not a known privacy event, and guessing its cost could "
                "understate it."
            )
        priced = replace(event, slack=aside) if aside is not None and isinstance(event, BinomialRelease) else event
        counts[priced] += require_count("the count of an event", count, least=0)

    gaussian: list[float] = []
    slacks: list[float] = []
    divided: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    divided_slacks: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    sampled: Counter[Profile] = Counter()
    for event, count in counts.items():
        if count == 0:
            continue
        match event:
            case DisjointBatchRelease(partition, part, shift):
                divided[partition][part].append(math.sqrt(count) * shift)
            case BinomialRelease(reach, trials, _, dimension, slack, partition, part):
                slack_list = divided_slacks[partition][part] if partition else slacks
                slack_list.append(count * (slack + (_MIXING if event.is_mixed else 0.0)))
                shift_list = divided[partition][part] if partition else gaussian
                shift = binomial_shift(reach=reach, trials=trials, dimension=dimension, slack=slack)
                shift_list.append(math.sqrt(count) * shift)
            case FixedSizeRelease(records, batch, shift) if (rate := _rounded_up(batch / records)) < 1:
                sampled[FixedSizeProfile(rate, max(shift, SMALLEST_SHIFT))] += count
            case PoissonRelease(rate, shift) if (rate := _rounded_up(rate)) < 1:
                sampled[PoissonProfile(rate, max(shift, SMALLEST_SHIFT))] += count
            case GaussianRelease(shift) | FixedSizeRelease(shift=shift) | PoissonRelease(shift=shift):
                gaussian.append(math.sqrt(count) * shift)
            case _:
                assert_never(event)

    parts = sorted(sampled.items(), key=repr)
    # A record lies in one part of a partition: the most expensive part counts, whatever else is composed with it.
    gaussian += [max(math.hypot(*sorted(shifts)) for shifts in by_part.values()) for by_part in divided.values()]
    together = math.hypot(*sorted(gaussian)) * (1 + 2.0**-49)  # more than the roots' and sums' rounding errors
    if together:
        parts.append((GaussianProfile(max(together, SMALLEST_SHIFT) if sampled else together), 1))
    slacks += [max(map(math.fsum, by_part.values())) for by_part in divided_slacks.values()]
    mixed = any(isinstance(event, BinomialRelease) and event.is_mixed for event in counts)
    return _Composed(tuple(parts), math.fsum(slacks), mixed)


def _rounded_up(rate: float) -> float:
    """Return a sampling rate that is no less than the quotient of whole numbers that this one was rounded from."""
    return max(math.nextafter(rate, 1.0), SMALLEST_RATE)
