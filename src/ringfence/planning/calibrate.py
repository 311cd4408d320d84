"""From a budget to the least noise that meets it, always on the safe side."""

import math
from collections.abc import Callable
from functools import cache

from scipy.optimize import brentq

from ringfence.errors import AccountingError
from ringfence.planning import accountant
from ringfence.planning.events import (
    DisjointBatchRelease,
    Events,
    require_count,
    require_positive,
    require_probability,
    run_events,
)
from ringfence.planning.profiles import gaussian_delta

__all__ = ["gaussian_shift", "noise"]

_PRECISION = 1e-7  # of sigma, relative
_OUT_OF_REACH = (
    "No noise meets this budget: rounding alone, or what was already released, costs as much; raise epsilon, or lower "
    "the rounds."
)


def gaussian_shift(epsilon: float, delta: float) -> float:
    """Return the largest μ, to twelve digits and rounded down, for which N(μ,1) against N(0,1) is (ε, δ)-DP."""
    require_positive("epsilon", epsilon)
    require_probability("delta", delta)
    meets, fails = 1.0, 1.0
    while gaussian_delta(meets, epsilon) > delta:
        meets /= 2
    while gaussian_delta(fails, epsilon) <= delta:
        fails *= 2
    while fails - meets > 1e-12 * meets:
        middle = (meets + fails) / 2
        meets, fails = (middle, fails) if gaussian_delta(middle, epsilon) <= delta else (meets, middle)
    return meets


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

    sigma is the noise's standard deviation per coordinate of the averaged gradient, to about six digits.
    ``accountant.epsilon([*already, *run_events(...)], delta) <= epsilon`` holds exactly as computed. ``partition``
    names the new pass of "one-pass" sampling; it must not occur in ``already``.
    """
    require_positive("epsilon", epsilon)
    require_probability("delta", delta)
    require_count("rounds", rounds)
    require_positive("clip", clip)
    spent = list(already)
    if any(isinstance(event, DisjointBatchRelease) and event.partition == partition for event, _ in spent):
        raise AccountingError(
            f"The pass named {partition!r} was already released, so a new pass of that name would be counted as free; "
            "name it differently."
        )

    def total(sigma: float) -> Events:
        run = run_events(
            sampling,
            rounds,
            records=records,
            batch=batch,
            clip=clip,
            sigma=sigma,
            dimension=dimension,
            partition=partition,
        )
        return [*spent, *run]

    total(clip)  # refuses whatever does not depend on sigma, in its own words
    if accountant.epsilon(spent, delta) >= epsilon:
        raise AccountingError(
            f"The budget of epsilon {epsilon:g} at delta {delta:g} is already spent by earlier releases, so no noise "
            "is enough for a new one; raise the budget."
        )

    @cache
    def excess(log_sigma: float) -> float:
        cost = accountant.epsilon(total(math.exp(log_sigma)), delta)
        # In logarithms, where epsilon falls smoothly; the ends stand for 0 and infinity.
        return math.log(min(max(cost, 1e-12 * epsilon), 1e12 * epsilon) / epsilon)

    full_batch = 2 * clip * math.sqrt(rounds) / (records * gaussian_shift(epsilon, delta))
    low, high = _bracket(excess, math.log(full_batch))
    sigma, factor = math.exp(brentq(excess, low, high, xtol=_PRECISION)), 1 + _PRECISION
    while accountant.epsilon(total(sigma), delta) > epsilon:
        if factor > 1e9:
            raise AccountingError(_OUT_OF_REACH)
        sigma, factor = sigma * factor, factor**4
    return sigma


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Return two points, the first above 0 under ``excess`` and the second not, by ever longer steps from ``start``."""
    sign = 1 if excess(start) > 0 else -1
    before, here, step = start, start + sign / 4, 1 / 2
    while (excess(here) > 0) == (sign > 0):
        if step > 64:
            raise AccountingError(_OUT_OF_REACH)
        before, here, step = here, here + sign * step, 2 * step
    return (before, here) if sign > 0 else (here, before)
