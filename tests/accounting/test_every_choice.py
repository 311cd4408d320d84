"""Filter and odometer against whoever makes the best choice after every answer, by a dynamic programme.

Plans are small, and every answer that they may give is enumerated with its probability under either neighbour, from the
definition of what is released: nothing of the accountant is used but the verdicts that are tested. The observer may
approve any plan that is admitted, ask any round of any approved plan, of neighbours in either order, end a plan, and
stop, each by all answers so far.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from ringfence.accounting import accountant, filters
from ringfence.accounting.events import BinomialRelease, Event, FixedSizeRelease, GaussianRelease, PoissonRelease
from ringfence.accounting.filters import Commitment
from ringfence.protocol import Guarantee

Floats = NDArray[np.float64]
LIMIT = Guarantee(epsilon=1.0, delta=1e-3)
EDGES = np.linspace(-7.0, 8.0, 151)
RATIOS = np.concatenate(
    [[0.0], np.exp([*np.linspace(-8, -3, 50), *np.linspace(-2.99, 1, 400), *np.linspace(1.1, 4, 30)])]
)
"""Of the probabilities of all answers so far under one neighbour and the other: values are computed at these."""


@dataclass(frozen=True, eq=False)
class Kind:
    """A small plan: what a round is charged as, how many there are, and its answers' probabilities, by neighbour."""

    event: Event
    rounds: int
    pairs: tuple[tuple[Floats, Floats], ...]


def cells(*means: float) -> Floats:
    """The law of a number that is drawn around one of these means, each as likely as another, cut into cells."""
    below = np.mean([ndtr(EDGES - mean) for mean in means], axis=0)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def full(shift: float, rounds: int) -> Kind:
    return Kind(GaussianRelease(shift), rounds, ((cells(shift), cells(0.0)),))


def fixed(records: int, batch: int, shift: float, rounds: int) -> Kind:
    """All batches: the first record is replaced, and all others are at one end or in the middle."""
    drawn = [0 in batch_of for batch_of in combinations(range(records), batch)]

    def law(one: float) -> Floats:
        return cells(*(one if inside else 0.0 for inside in drawn))

    ends, half = (law(shift), law(0.0)), (law(shift / 2), law(-shift / 2))
    return Kind(FixedSizeRelease(records, batch, shift), rounds, (ends, ends[::-1], half))


def poisson(tenths: int, shift: float, rounds: int) -> Kind:
    law = [cells(*[end] * tenths, *[0.0] * (10 - tenths)) for end in (shift / 2, -shift / 2)]
    return Kind(PoissonRelease(tenths / 10, shift), rounds, ((law[0], law[1]),))


def counted(reach: int, coins: int, rounds: int) -> Kind:
    heads = np.arange(coins + reach + 1)
    law = binom.pmf(heads, coins, 0.5), binom.pmf(heads - reach, coins, 0.5)
    event = BinomialRelease(reach=float(reach), trials=coins, own=coins, dimension=1, slack=1e-7)
    return Kind(event, rounds, (law, law[::-1]))


@dataclass(frozen=True)
class Approved:
    """A plan in the ledger."""

    kind: Kind
    asked: int = 0
    ended: bool = False
    founding: bool = False

    def commitment(self) -> Commitment:
        event, rounds = self.kind.event, self.kind.rounds
        charged = [(event, self.asked)] if self.asked else []
        return Commitment.of([(event, rounds)], charged if self.ended else None, founding=self.founding)


State = tuple[Approved, ...]


def history(state: State) -> list[Commitment]:
    return [plan.commitment() for plan in state]


@dataclass(frozen=True)
class Game:
    """What may be approved, and what is believed of everything when the observer stops: an epsilon."""

    kinds: tuple[Kind, ...]
    admits: Callable[[State], bool]
    reading: Callable[[State], float]
    most_plans: int

    def reached(self, founding: Kind) -> float:
        """Return the largest P(A) - E_Q[e^reading; A] over all sets A of transcripts and all ways to choose.

        The `founding` plan is approved before the first answer.
        """

        @cache
        def value(state: State) -> Floats:
            """The value at every ratio Q/P so far. It is convex in it, so interpolation only raises it."""
            best = np.maximum(1 - RATIOS * math.exp(self.reading(state)), 0.0)
            for place, plan in enumerate(state):
                if not plan.ended and plan.asked < plan.kind.rounds:
                    asked = replace(plan, asked=plan.asked + 1)
                    best = np.maximum(best, ask(plan.kind, changed(state, place, asked)))
                    best = np.maximum(best, value(changed(state, place, replace(plan, ended=True))))
            if len(state) < self.most_plans:
                for kind in self.kinds:
                    if self.admits((*state, Approved(kind))):
                        best = np.maximum(best, ask(kind, (*state, Approved(kind, asked=1))))
            return best

        def ask(kind: Kind, then: State) -> Floats:
            later = value(then)
            found = [np.interp(RATIOS[:, None] * (q / np.maximum(p, 1e-300)), RATIOS, later) @ p for p, q in kind.pairs]
            return np.asarray(np.max(found, axis=0))

        return float(np.interp(1.0, RATIOS, value((Approved(founding, founding=True),))))


def changed(state: State, place: int, plan: Approved) -> State:
    return (*state[:place], plan, *state[place + 1 :])


def admitted(state: State) -> bool:
    return filters.used(history(state), LIMIT) <= LIMIT.epsilon


def composed(state: State) -> float:
    return accountant.epsilon([event for plan in history(state) for event in plan.counted], LIMIT.delta)


def composes(state: State) -> bool:
    return composed(state) <= LIMIT.epsilon


MAKES: list[Callable[[float], Kind]] = [
    lambda shift: full(shift, 1),
    lambda shift: fixed(100, 1, shift, 1),
    lambda shift: fixed(10, 3, shift, 2),
    lambda shift: poisson(2, shift, 2),
    lambda shift: counted(4, round((8 / shift) ** 2), 1),
]


def largest(make: Callable[[float], Kind], fits: Callable[[Kind], bool]) -> Kind:
    low, high = 0.06, 10.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(make(middle)) else (low, middle)
    return make(low)


def largest_kinds(admits: Callable[[State], bool], before: State, times: int) -> tuple[Kind, ...]:
    """The largest plans of every make that are admitted so many times, one after the other."""
    return tuple(largest(make, lambda kind: admits((*before, *[Approved(kind)] * times))) for make in MAKES)


def believed(state: State) -> float:
    del state
    return LIMIT.epsilon


SHIFT = 0.3884
"""Of all that the budget allows, in full batches; a little less."""


@pytest.mark.parametrize(("share", "times"), [(0.4, 1), (0.4, 2), (0.8, 1)])
def test_no_choice_of_plans_by_answers_costs_more_than_the_budget(share: float, times: int) -> None:
    """After a share of the squared shift, one plan that takes what is left, or two that do."""
    first = full(SHIFT * math.sqrt(share), 1)
    kinds = largest_kinds(admitted, (Approved(first, founding=True),), times)
    assert 0.98 * LIMIT.delta < Game(kinds, admitted, believed, 1 + times).reached(first) <= LIMIT.delta


def test_the_programme_finds_out_a_filter_that_goes_by_exact_composition() -> None:
    first = full(SHIFT * math.sqrt(0.6), 1)
    kinds = largest_kinds(composes, (Approved(first, founding=True),), 1)
    assert Game(kinds, composes, believed, 2).reached(first) > 1.6 * LIMIT.delta


def test_what_a_gaussian_plan_gives_back_at_its_end_goes_to_gaussian_plans_and_breaks_nothing() -> None:
    first = full(SHIFT / math.sqrt(2), 2)
    half = (Approved(first, asked=1, ended=True, founding=True),)
    kinds = largest_kinds(admitted, half, 1)
    assert [admitted((*half, Approved(kind))) for kind in kinds] == [True, False, False, False, False]
    assert 0.98 * LIMIT.delta < Game(kinds, admitted, believed, 3).reached(first) <= LIMIT.delta


@pytest.mark.parametrize("make", MAKES[2:])
def test_a_first_plan_may_take_all_of_the_budget_and_then_nothing_more_is_lost(make: Callable[[float], Kind]) -> None:
    first = largest(make, lambda kind: admitted((Approved(kind, founding=True),)))
    kinds = largest_kinds(admitted, (Approved(first, founding=True),), 1)
    assert 0.7 * LIMIT.delta < Game(kinds, admitted, believed, 2).reached(first) <= LIMIT.delta


READINGS: dict[str, Callable[[State], float]] = {
    "odometer": lambda state: filters.odometer(history(state), LIMIT.delta).epsilon,
    "guarantee": lambda state: filters.guaranteed(history(state), LIMIT.model_copy(update={"epsilon": 0.3})).epsilon,
}


@pytest.mark.parametrize("reading", READINGS)
def test_an_observer_who_chooses_plans_and_stops_by_the_reading_learns_no_more_than_it_says(reading: str) -> None:
    game = Game((full(0.1, 1), poisson(2, 0.4, 1)), lambda state: True, READINGS[reading], 4)
    assert 0.5 * LIMIT.delta < game.reached(full(0.1, 1)) <= 2 * LIMIT.delta
    assert replace(game, reading=composed).reached(full(0.1, 1)) > 2 * LIMIT.delta
