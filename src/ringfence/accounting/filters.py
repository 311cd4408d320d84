"""Privacy filters and odometers: budgets for plans that may be chosen in the light of earlier answers.

That each sequence of plans fits by exact composition is not enough then (``docs/proofs.md``, "What composes, and who
may choose", has an example and the proofs). A *filter* admits plans such that (ε, δ) holds however they are chosen, and
an *odometer* gives a reading that holds whenever you stop.

A plan enters the filter by a pair (μ, s): at every ε its δ is at most that of N(μ,1) against N(0,1), plus s. A Gaussian
plan has s = 0; the k-th other plan of a ledger has s = RESERVE·δ/(k(k+1)), and the least μ for it. Plans are admitted
while N(√Σμ², 1) against N(0,1) is (ε, (1 - RESERVE)·δ)-DP.

Plans that were approved before the first answer, the *founding* ones, were chosen by nobody's answer: their exact
composition is enough for them. If they leave no room in the filter, nothing else is admitted, but for Gaussian plans
after Gaussian ones, by the filter with no reserve.

Where plans ask sections of the records, each place has a filter of its own, and all of them must admit a plan.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import count

from ringfence.accounting import accountant
from ringfence.accounting.accountant import gaussian_shift
from ringfence.accounting.events import BinomialRelease, Event, Events, places, seen_by
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.protocol import Guarantee, Observer

RESERVE = 1 / 64
"""The part of δ that is kept, from the first answer on, for plans that are not Gaussian."""

_LEAST = 2.0**-6  # a first plan that costs less counts as this much where the odometer's ladder begins


@dataclass(frozen=True)
class Commitment:
    """A plan in a ledger: what all its rounds cost, and, once it has ended, what was charged.

    ``founding``: it was approved, and could be asked, when the ledger's first round was charged.
    """

    planned: tuple[tuple[Event, int], ...] = ()
    charged: tuple[tuple[Event, int], ...] | None = None
    founding: bool = False

    @classmethod
    def of(cls, planned: Events, charged: Events | None = None, *, founding: bool = False) -> "Commitment":
        """Return the commitment to these events; ``charged`` is given if the plan has ended."""
        return cls(tuple(planned), None if charged is None else tuple(charged), founding)

    def mapped(self, change: Callable[[Events], Events]) -> "Commitment":
        """Return the commitment with both its lists of events changed, as by `seen_by` or `RecordPlace.pays_for`."""
        charged = None if self.charged is None else change(self.charged)
        return Commitment.of(change(self.planned), charged, founding=self.founding)

    @cached_property
    def is_gaussian(self) -> bool:
        """Whether the plan of the commitment is one Gaussian release, exactly."""
        return accountant.as_one_gaussian(self.planned) is not None

    @property
    def counted(self) -> tuple[tuple[Event, int], ...]:
        """What a filter counts: of an ended plan, what was charged; of a sampled one, once it has begun, all rounds.

        A sampled plan's pair is about all its rounds, and its end may have been chosen by their answers.
        """
        if self.charged is None or (self.charged and accountant.is_sampled(self.planned)):
            return self.planned
        return self.charged

    @property
    def is_later(self) -> bool:
        """Whether the committed plan may have been chosen in the light of another plan's answer."""
        return not self.founding and bool(self.counted)


def used(history: Sequence[Commitment], limit: Guarantee) -> float:
    """Return the ε that the plans use of the limit, against its observer; they are admitted if it is at most ε.

    ``history`` has every plan that was ever approved, in that order.
    """
    return max(
        _used(seen, limit.epsilon, limit.delta, any(each.is_later for each in seen))
        for seen in _seen_by(limit.against, history)
    )


def enough(history: Sequence[Commitment], limit: Guarantee) -> Guarantee:
    """Return the filter's limit if it admits the plans, else one of a larger ε that does."""
    if used(history, limit) <= limit.epsilon:
        return limit
    whole = [replace(each, charged=None) if each.founding else each for each in history]
    unlimited = limit.model_copy(update={"epsilon": math.inf})
    return limit.model_copy(update={"epsilon": used(whole, unlimited)})


def left(history: Sequence[Commitment], limit: Guarantee, *, answered: bool) -> float:
    """Return the ε that the filter's limit leaves to one more Gaussian plan; less than a millionth of it counts as 0.

    ``answered``: some round was charged, so that a further plan may be chosen by its answer.
    """
    remaining = limit.epsilon - max(
        _used(seen, limit.epsilon, limit.delta, answered) for seen in _seen_by(limit.against, history)
    )
    return remaining if remaining > 1e-6 * limit.epsilon else 0.0


def guaranteed(history: Sequence[Commitment], pledged: Guarantee) -> Guarantee:
    """Return the guarantee of all plans together, however they are chosen and whenever you stop.

    ``pledged`` is the limit that was in force when the first round was charged, so that no answer chose it: it is the
    guarantee while it admits all plans. After that, the odometer's reading is.
    """
    admits = used(history, pledged) <= pledged.epsilon
    return pledged if admits else odometer(history, pledged.delta, pledged.against)


def odometer(history: Sequence[Commitment], delta: float, observer: Observer = "anyone") -> Guarantee:
    """Return the guarantee of everything so far, which holds whenever you stop, also by this reading.

    For founding plans alone it is their exact composition at ``delta``. Later plans let it climb a ladder of filters:
    the j-th, j ≥ 2, admits j times the squared shift of the founding plans, at delta/(j(j-1)), and the guarantee is at
    twice ``delta``.
    """
    readings = [_odometer(seen, delta) for seen in _seen_by(observer, history)]
    epsilon, delta = (max(values) for values in zip(*readings, strict=True))
    return Guarantee(epsilon=epsilon, delta=delta, against=observer)


def _odometer(seen: tuple[Commitment, ...], delta: float) -> tuple[float, float]:
    """Return the ε and the δ of the odometer for a record of one place."""
    start = accountant.epsilon(_planned(each for each in seen if each.founding), delta)
    if start == math.inf or not any(each.is_later for each in seen):
        return start, delta
    unit = gaussian_shift(max(start, _LEAST), delta) * (1 + 1e-6)  # so that equal plans do not just miss a rung
    rung, needed = 0, 2
    while rung < needed:
        rung, share = needed, delta / (needed * (needed - 1))
        shift = max(_shifts(seen, share))
        if shift == math.inf:
            return shift, delta
        needed = math.ceil((shift / unit) ** 2)
    epsilon = gaussian_epsilon(unit * math.sqrt(rung), share * (1 - RESERVE))
    return _unless_mixed(seen, epsilon), min(2 * delta, 0.5)


def _seen_by(observer: Observer, history: Sequence[Commitment]) -> list[tuple[Commitment, ...]]:
    """Return a filter's commitments, as the observer sees them, to a record of each place."""
    seen = [each.mapped(partial(seen_by, observer)) for each in history]
    found = places(event for each in seen for event, _ in (*each.planned, *(each.charged or ())))
    return [tuple(each.mapped(place.pays_for) for each in seen) for place in found]


def _planned(plans: Iterable[Commitment]) -> list[tuple[Event, int]]:
    """Return the planned events of all commitments that a filter counts."""
    return [event for plan in plans for event in plan.planned]


def _used(history: tuple[Commitment, ...], epsilon: float, delta: float, later: bool) -> float:
    """Return the ε that a filter's commitments use of a limit, for a record of one place."""
    together, founding = _shifts(history, delta)
    found, for_founding = (_epsilon(shift, delta * (1 - RESERVE)) for shift in (together, founding))
    if for_founding > epsilon:  # they leave no room, whatever was given back since
        found = _epsilon(together, delta) if all(plan.is_gaussian for plan in history) else max(found, for_founding)
    if not later:
        found = min(found, accountant.epsilon(_planned(plan for plan in history if plan.founding), delta))
    return _unless_mixed(history, found)


@lru_cache(maxsize=256)
def _shifts(history: tuple[Commitment, ...], delta: float) -> tuple[float, float]:
    """Return the shifts of all that a filter counts, and of the founding plans with all rounds, by the slacks of δ."""
    of_all, of_founding = [], []
    numbers = count(1)
    for plan in history:
        number = 0 if plan.is_gaussian else next(numbers)
        slack = RESERVE * delta / (number * (number + 1)) if number else 0.0
        of_all.append(_shift(plan.counted, slack, plan.planned))
        if plan.founding:
            of_founding.append(_shift(plan.planned, slack, plan.planned))
    return _together(of_all), _together(of_founding)


def _unless_mixed(history: Iterable[Commitment], epsilon: float) -> float:
    """Return ε, or infinity where a filter's commitments rely on coins of other silos and ε is too large."""
    mixed = any(isinstance(event, BinomialRelease) and event.is_mixed for event, _ in _planned(history))
    return math.inf if mixed and epsilon > accountant.LARGEST_MIXED else epsilon


def _together(shifts: Sequence[float]) -> float:
    """Return the shift of several Gaussian releases together, rounded up, for a privacy filter."""
    return math.hypot(*sorted(shifts)) * (1 + 2.0**-49)


def _epsilon(shift: float, delta: float) -> float:
    """Return the ε of a filter's total Gaussian shift, which may be 0 or infinite."""
    return gaussian_epsilon(shift, delta) if 0 < shift < math.inf else shift


@lru_cache(maxsize=4096)
def _shift(counted: tuple[tuple[Event, int], ...], slack: float, planned: tuple[tuple[Event, int], ...]) -> float:
    """Return the Gaussian shift that dominates a commitment's counted events, for a privacy filter."""
    releases = sum(times for event, times in planned if isinstance(event, BinomialRelease))
    return accountant.dominating_shift(counted, slack, releases)
