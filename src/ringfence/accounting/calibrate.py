"""Calibration: from a budget to the least noise that meets it, rounded to the safe side."""

import math
from collections.abc import Callable
from functools import cache

from ringfence.accounting import accountant
from ringfence.accounting.accountant import gaussian_shift
from ringfence.accounting.events import (
    DisjointBatchRelease,
    Events,
    FixedSizeRelease,
    PoissonRelease,
    places,
    require_positive,
)
from ringfence.accounting.runs import run_events
from ringfence.errors import AccountingError
from ringfence.protocol import sampling_named

__all__ = ["fixed_size_words", "gaussian_shift", "least_noise", "noise"]

_PRECISION = 1e-7  # of sigma, relative
_SLACK = 1 - 1e-9  # of a shift: more than the last digit of the accountant's epsilon
_OUT_OF_REACH = (
    "No amount of noise meets this budget: rounding, or earlier releases, already use it up. Raise epsilon or lower "
    "the rounds."
)
_NO_LIMIT = "Any amount of noise meets this budget: the cost of this request does not grow as its noise shrinks."


def least_noise(
    events_of: Callable[[float], Events], *, epsilon: float, delta: float, start: float, already: Events = ()
) -> float:
    """Return the least sigma for which ``events_of(sigma)``, after what was ``already`` released, is (ε, δ)-DP.

    To about six digits; ``accountant.epsilon([*already, *events_of(sigma)], delta) <= epsilon`` holds exactly as
    computed. The cost must fall as sigma grows, from more than is left of the budget to less: if it does not, or if
    nothing is left, AccountingError. ``start`` is a guess at sigma: a poor one only takes longer. Parts of a partition
    that occurs in ``already`` count as parts of that same partition.
    """
    require_positive("epsilon", epsilon)
    require_positive("start", start)
    limit = gaussian_shift(epsilon, delta) * _SLACK
    spent = list(already)
    if accountant.epsilon(spent, delta) >= epsilon:
        raise AccountingError(
            f"The budget of epsilon {epsilon:g} at delta {delta:g} is already spent by earlier releases: no amount of "
            "noise makes room for another. Raise the budget."
        )

    @cache
    def excess(log_sigma: float) -> float:
        """Return the logarithm of cost over budget, which falls smoothly in log sigma, for the calibration of noise."""
        events = [*spent, *events_of(math.exp(log_sigma))]
        shift = accountant.as_one_gaussian(events)
        if shift is not None:  # as good as epsilon, which grows with it, and a hundred times as fast
            return math.log(max(shift, 1e-12 * limit) / limit)
        cost = accountant.epsilon(events, delta)
        return math.log(min(max(cost, 1e-12 * epsilon), 1e12 * epsilon) / epsilon)  # the ends: 0 and infinity

    sigma, factor = math.exp(_root(excess, *_bracket(excess, math.log(start)))), 1 + _PRECISION
    while accountant.epsilon([*spent, *events_of(sigma)], delta) > epsilon:
        if factor > 1e9:
            raise AccountingError(_OUT_OF_REACH)
        sigma, factor = sigma * factor, factor**4
    return sigma


def noise(
    sampling: str,
    *,
    records: int,
    batch: int,
    rounds: int,
    clip: float,
    epsilon: float,
    delta: float,
    dimension: int = 1,
    already: Events = (),
    partition: str = "new run",
) -> float:
    """Return the least sigma with which ``rounds`` rounds, after what was ``already`` released, are (ε, δ)-DP.

    sigma is the noise's standard deviation per coordinate of the averaged gradient; see ``least_noise``. ``partition``
    names the new pass of "one-pass" sampling; no part of it may occur in ``already``, where it would be another pass.
    """
    require_positive("clip", clip)
    spent = list(already)
    if any(isinstance(event, DisjointBatchRelease) and event.partition == partition for event, _ in spent):
        raise AccountingError(
            f"The pass named {partition!r} was already released, so a new pass of that name would be counted as free; "
            "name it differently."
        )

    def run(sigma: float) -> Events:
        """Return the events of the whole run with noise `sigma`, to calibrate it."""
        sizes = {"records": records, "batch": batch, "dimension": dimension}
        return run_events(sampling, rounds, clip=clip, sigma=sigma, partition=partition, **sizes)

    run(clip)  # refuses whatever does not depend on sigma, in its own words
    # Exact for a full batch and for one pass, and near enough for a sampled one.
    taking_part = 1 / batch if sampling_named(sampling).is_fresh else math.sqrt(rounds) / records
    start = 2 * clip * taking_part / gaussian_shift(epsilon, delta)
    return least_noise(run, epsilon=epsilon, delta=delta, start=start, already=spent)


def fixed_size_words(events: Events, delta: float) -> str:
    """Return a sentence on how much less noise Poisson sampling would need for the same epsilon.

    Empty if no batch has a fixed size, or if nothing is saved.
    """
    found = list(events)
    paid_for = (place.pays_for(found) for place in places(event for event, _ in found))
    released = next(filter(_has_fixed_size, paid_for), [])
    epsilon = accountant.epsilon(released, delta)
    if not 0 < epsilon < math.inf:
        return ""

    def with_poisson(noise: float) -> Events:
        """Return the events with Poisson instead of fixed-size sampling, and that many times the noise."""
        return [
            (PoissonRelease(e.batch / e.records, e.shift / noise) if isinstance(e, FixedSizeRelease) else e, count)
            for e, count in released
        ]

    more = 1 / least_noise(with_poisson, epsilon=epsilon, delta=delta, start=0.8) - 1
    if more < 0.005:
        return ""
    return f"Batches of fixed size need {more:.0%} more noise here than Poisson sampling does at the same epsilon."


def _has_fixed_size(releases: Events) -> bool:
    """Return whether some releases are about batches of fixed size, which need more noise than Poisson sampling."""
    return any(isinstance(event, FixedSizeRelease) for event, _ in releases)


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Bracket the calibrated noise: return a point above 0 under ``excess`` and one not, by ever longer steps."""
    sign = 1 if excess(start) > 0 else -1
    before, here, step = start, start + sign / 4, 1 / 2
    while (excess(here) > 0) == (sign > 0):
        if step > 64:
            raise AccountingError(_OUT_OF_REACH if sign > 0 else _NO_LIMIT)
        before, here, step = here, here + sign * step, 2 * step
    return (before, here) if sign > 0 else (here, before)


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return where ``excess`` is no longer above 0, to ``_PRECISION``, for calibrated noise; it is at ``low``.

    By false position with Illinois' rule: the value at an end that stays twice is halved. (SciPy's root finders take
    longer to load than all of this package.)
    """
    above, below = excess(low), excess(high)
    was_above: bool | None = None
    while high - low > _PRECISION:
        guess = (low * below - high * above) / (below - above)
        guess = min(max(guess, low + _PRECISION / 2), high - _PRECISION / 2)
        found = excess(guess)
        if found > 0:
            low, above, below = guess, found, below / (1 + (was_above is True))
        else:
            high, below, above = guess, found, above / (1 + (was_above is False))
        was_above = found > 0
    return high
