"""From what was released to what it costs: (ε, δ) under replace-one adjacency, as a proved upper bound.

Full-batch, one-pass and phased releases compose exactly: Gaussian releases with shifts μ_1, μ_2, ... are together one
Gaussian release with shift √(μ_1² + μ_2² + ...) (Dong, Roth & Su 2019, Corollary 3.3). Sampled batches compose as
privacy-loss distributions (``pld``): tight to about four digits of ε, and cautious by more only where a record takes
part so rarely (rates below 1e-4) that δ is comparable to that. Compose events, never (ε, δ) pairs: that is what makes
the sum tight.
"""

import math
from collections import Counter, defaultdict
from typing import assert_never, get_args

from ringfence.errors import AccountingError
from ringfence.planning import pld
from ringfence.planning.events import (
    DisjointBatchRelease,
    Event,
    Events,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    require_count,
    require_probability,
)
from ringfence.planning.profiles import (
    FixedSizeProfile,
    GaussianProfile,
    PoissonProfile,
    Profile,
    gaussian_delta,
    gaussian_epsilon,
)

__all__ = ["as_one_gaussian", "delta", "epsilon"]

SMALLEST_SHIFT, LARGEST_SHIFT, SMALLEST_RATE = 1e-7, 1e6, 1e-12
"""Bounds that keep the arithmetic of sampled releases within range.

A profile grows with the shift and with the rate (it is convex in the rate, and 0 at rate 0), so counting a smaller
one as the least of these is only more cautious; nothing is claimed for a larger shift, where epsilon exceeds 1e11.
"""


def epsilon(events: Events, delta: float) -> float:
    """Return the ε that all ``events`` together cost at ``delta``; infinity if none can be proved.

    - no events: 0.0
    - an event type this version does not know, or a count that is not a whole number: AccountingError
    - delta outside (0, 1): AccountingError
    """
    require_probability("delta", delta)
    match _parts(events):
        case []:
            return 0.0
        case [(GaussianProfile(shift), 1)]:
            return gaussian_epsilon(shift, delta)
        case parts:
            return pld.epsilon_bound(parts, delta) if _in_range(parts) else math.inf


def delta(events: Events, epsilon: float) -> float:
    """Return the δ that all ``events`` together cost at ``epsilon``, which may be 0; no events cost 0.0."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, float | int) or not 0 <= epsilon < math.inf:
        raise AccountingError(f"epsilon must be a finite number of at least 0, but is {epsilon!r}.")
    match _parts(events):
        case []:
            return 0.0
        case [(GaussianProfile(shift), 1)]:
            return gaussian_delta(shift, epsilon)
        case parts:
            return pld.delta_bound(parts, epsilon) if _in_range(parts) else 1.0


def as_one_gaussian(events: Events) -> float | None:
    """Return the shift of the single Gaussian release that ``events`` amount to; 0.0 for no events.

    None if a sampled batch is among them: such a composition is no Gaussian release.
    """
    match _parts(events):
        case []:
            return 0.0
        case [(GaussianProfile(shift), 1)]:
            return shift
        case _:
            return None


def _in_range(parts: list[pld.Part]) -> bool:
    return all(profile.shift <= LARGEST_SHIFT for profile, _ in parts)


def _parts(events: Events) -> list[pld.Part]:
    """Return the sampled releases with their counts, and all others as one Gaussian release.

    The result does not depend on the events' order or grouping.
    """
    counts: Counter[Event] = Counter()
    for event, count in events:
        if not isinstance(event, get_args(Event)):
            raise AccountingError(
                f"Cannot account for {event!r}: it is none of the known privacy events, and guessing its cost could "
                "understate it."
            )
        counts[event] += require_count("the count of an event", count, least=0)

    gaussian: list[float] = []
    divided: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    sampled: Counter[Profile] = Counter()
    for event, count in counts.items():
        if count == 0:
            continue
        match event:
            case GaussianRelease(shift):
                gaussian.append(math.sqrt(count) * shift)
            case DisjointBatchRelease(partition, part, shift):
                divided[partition][part].append(math.sqrt(count) * shift)
            case FixedSizeRelease(records, batch, shift) if batch < records:
                sampled[FixedSizeProfile(max(batch / records, SMALLEST_RATE), max(shift, SMALLEST_SHIFT))] += count
            case PoissonRelease(rate, shift) if rate < 1:
                sampled[PoissonProfile(max(rate, SMALLEST_RATE), max(shift, SMALLEST_SHIFT))] += count
            case FixedSizeRelease(shift=shift) | PoissonRelease(shift=shift):  # every record takes part
                gaussian.append(math.sqrt(count) * shift)
            case _:
                assert_never(event)

    parts = sorted(sampled.items(), key=repr)
    # A record lies in one part of a partition: the dearest part counts, whatever else is composed with it.
    gaussian += [max(math.hypot(*sorted(shifts)) for shifts in by_part.values()) for by_part in divided.values()]
    together = math.hypot(*sorted(gaussian)) * (1 + 2.0**-49)  # more than the roots' and sums' rounding errors
    if together:
        parts.append((GaussianProfile(max(together, SMALLEST_SHIFT) if sampled else together), 1))
    return parts
