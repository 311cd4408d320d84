"""Budgets and readings hold also for whoever chooses plans, or stops, by the answers so far.

What an observer can reach is computed apart from the accountant: by integrating over the answers that choices go by.
`test_every_choice.py` enumerates all of these, and all choices, for small plans of every kind.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

from ringfence.accounting import accountant, calibrate, filters
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    SectionRelease,
)
from ringfence.accounting.filters import Commitment, guaranteed, left, odometer, used
from ringfence.accounting.profiles import gaussian_delta
from ringfence.protocol import Guarantee
from tests.generated import examples

Floats = NDArray[np.float64]
LIMIT = Guarantee(epsilon=1.0, delta=1e-5)
SHIFT = calibrate.gaussian_shift(LIMIT.epsilon, LIMIT.delta)
X = np.linspace(-12.0, 12.0, 20_001)
DENSITY = np.exp(-X * X / 2) / math.sqrt(2 * math.pi)
MAKES: list[Callable[[float], Event]] = [
    GaussianRelease,
    *((lambda shift, batch=batch: FixedSizeRelease(1000, batch, shift)) for batch in (1, 3, 10, 30, 100, 300)),
]


def once(event: Event, *, founding: bool = False) -> Commitment:
    return Commitment.of([(event, 1)], founding=founding)


def gaussian_profile(shift: float, epsilon: Floats) -> Floats:
    return ndtr(-epsilon / shift + shift / 2) - np.exp(epsilon) * ndtr(-epsilon / shift - shift / 2)


def profile(event: Event, epsilon: Floats) -> Floats:
    """The exact δ(ε) of one release, for ε of either sign."""
    epsilon = np.clip(epsilon, -50.0, 50.0)
    if isinstance(event, GaussianRelease):
        return gaussian_profile(event.shift, epsilon)
    assert isinstance(event, FixedSizeRelease)
    rate, positive = event.batch / event.records, np.abs(epsilon)
    upper = rate * gaussian_profile(event.shift, np.log1p(np.expm1(positive) / rate))
    return np.where(epsilon >= 0, upper, -np.expm1(-positive) + np.exp(-positive) * upper)


def reached(first: float, choices: Sequence[Event], epsilon: float) -> float:
    """The true δ(ε) for whoever sees a Gaussian release of shift `first`, and then picks the best of the choices."""
    loss = first * X + first**2 / 2
    best = np.max([profile(choice, epsilon - loss) for choice in choices], axis=0)
    return float(np.trapezoid(best * DENSITY, X))


def largest(make: Callable[[float], Event], admits: Callable[[Event], bool]) -> Event:
    low, high = 1e-6, 30.0
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if admits(make(middle)) else (low, middle)
    return make(low)


def test_a_plan_chosen_by_an_earlier_answer_breaks_exact_composition_and_not_the_filter() -> None:
    """Sixty percent of the budget by a full batch, and then, by its answer, one of seven plans that still fit."""
    first = GaussianRelease(SHIFT * math.sqrt(0.6))

    def composes(event: Event) -> bool:
        return accountant.epsilon([(first, 1), (event, 1)], LIMIT.delta) <= LIMIT.epsilon

    def admitted(event: Event) -> bool:
        return used([once(first, founding=True), once(event)], LIMIT) <= LIMIT.epsilon

    by_composition = [largest(make, composes) for make in MAKES]
    assert reached(first.shift, by_composition, LIMIT.epsilon) == pytest.approx(2.12e-5, rel=0.01)
    assert [admitted(event) for event in by_composition] == [False] * 7
    by_filter = [largest(make, admitted) for make in MAKES]
    assert 0.97 * LIMIT.delta < reached(first.shift, by_filter, LIMIT.epsilon) <= LIMIT.delta


def test_a_reserve_that_is_set_aside_only_when_a_plan_needs_it_is_not_enough() -> None:
    """By the answer: the rest of the shift that all of δ allows, or half of δ as the chance to see everything."""
    first = calibrate.gaussian_shift(LIMIT.epsilon, LIMIT.delta / 2)
    rest, slack = math.sqrt(SHIFT**2 - first**2), LIMIT.delta / 2
    beyond = np.clip(LIMIT.epsilon - first * X - first**2 / 2, -50.0, 50.0)
    gaussian = gaussian_profile(rest, beyond)
    seen = slack + (1 - slack) * np.maximum(-np.expm1(beyond), 0.0)
    reached = np.trapezoid(np.maximum(gaussian, seen) * DENSITY, X)
    assert np.trapezoid(gaussian * DENSITY, X) == pytest.approx(LIMIT.delta, rel=1e-4)
    assert np.trapezoid(seen * DENSITY, X) == pytest.approx(LIMIT.delta, rel=1e-4)
    assert reached > 1.4 * LIMIT.delta


@pytest.fixture
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize(("rate", "shift", "rounds"), [(0.1, 0.6, 10), (0.3, 1.0, 3)])
def test_a_dominating_gaussian_is_above_another_library_s_profile_and_no_larger_than_needed(
    rate: float, shift: float, rounds: int
) -> None:
    import dp_accounting
    from dp_accounting import pld

    theirs = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(2 / shift)), rounds)
    slack = 1e-8
    dominating = accountant.dominating_shift([(PoissonRelease(rate, shift), rounds)], slack, 0)
    furthest = accountant.epsilon([(PoissonRelease(rate, shift), rounds)], slack)
    gaps = [
        (theirs.get_delta(epsilon) * (1 - 1e-4) - slack) / gaussian_delta(dominating, epsilon)
        for epsilon in furthest * np.append(np.linspace(0.0, 0.8, 5), np.linspace(0.82, 1.2, 20))
    ]
    assert 0.99 < max(gaps) <= 1.0


@given(
    st.floats(0.005, 0.95),
    st.floats(0.05, 4.0),
    st.integers(1, 60),
    st.booleans(),
    st.floats(-10, -4),
    st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3),
)
@examples(30)
def test_a_sampled_plan_costs_no_more_than_its_gaussian_and_slack_at_any_epsilon(
    rate: float, shift: float, rounds: int, poisson: bool, log_slack: float, places: list[float]
) -> None:
    event: Event = PoissonRelease(rate, shift) if poisson else FixedSizeRelease(1000, max(1, round(1000 * rate)), shift)
    slack = 10.0**log_slack
    dominating = accountant.dominating_shift([(event, rounds)], slack, 0)
    assert dominating <= shift * math.sqrt(rounds) * (1 + 1e-9)
    assert accountant.dominating_shift([(event, rounds)], slack / 10, 0) >= dominating * (1 - 1e-4)
    furthest = accountant.epsilon([(event, rounds)], slack)
    for epsilon in [0.0, *(place * furthest for place in places)]:
        # The accountant's own bound, which is above the truth by about 1e-4 of it.
        truth = accountant.delta([(event, rounds)], epsilon)
        assert truth <= (gaussian_delta(dominating, epsilon) + slack) * (1 + 2e-3)


def test_counts_from_a_shuffler_are_priced_with_the_slack_that_the_filter_has() -> None:
    event = BinomialRelease(reach=6.0, trials=80_000, own=16_000, dimension=20, slack=1e-8)
    dear = accountant.dominating_shift([(event, 30)], 1e-12, 30)
    assert accountant.dominating_shift([(event, 30)], 1e-7, 30) < dear < math.inf
    half = Commitment.of([(event, 30)], [(event, 15)])
    assert half.counted == ((event, 15),)
    whole = used([Commitment.of([(event, 30)])], LIMIT)
    assert 0.5 * whole < used([half], LIMIT) < 0.8 * whole  # √½ of the shift: each round has its own pair
    assert whole > used([Commitment.of([(event, 30)])], LIMIT.model_copy(update={"against": "server"}))


def test_gaussian_plans_after_a_gaussian_one_share_the_budget_but_for_the_reserve() -> None:
    first = once(GaussianRelease(0.6 * SHIFT), founding=True)
    room = calibrate.gaussian_shift(LIMIT.epsilon, LIMIT.delta * (1 - filters.RESERVE))
    fits = math.sqrt(room**2 - (0.6 * SHIFT) ** 2)
    assert used([first, once(GaussianRelease(fits * (1 - 1e-9)))], LIMIT) <= LIMIT.epsilon
    assert used([first, once(GaussianRelease(fits * (1 + 1e-9)))], LIMIT) > LIMIT.epsilon
    assert room**2 > 0.998 * SHIFT**2  # what the reserve costs


@pytest.mark.parametrize("batch", [1000, 30])
def test_the_first_plan_has_the_whole_budget_and_then_there_is_none_left(batch: int) -> None:
    size = {"records": 1000, "batch": batch, "clip": 1.0}
    sampling = "full" if batch == 1000 else "fixed"
    sigma = calibrate.noise(sampling, rounds=20, epsilon=LIMIT.epsilon, delta=LIMIT.delta, **size)  # type: ignore[arg-type]
    from ringfence.accounting import run_events

    first = Commitment.of(run_events(sampling, 20, sigma=sigma, **size), founding=True)  # type: ignore[arg-type]
    assert used([first], LIMIT) <= LIMIT.epsilon
    assert left([first], LIMIT, answered=True) == 0.0  # and not what rounding leaves
    for more in (GaussianRelease(1e-3), PoissonRelease(0.1, 1e-3)):
        assert used([first, once(more)], LIMIT) > LIMIT.epsilon
    # Before any answer, plans are chosen by nobody's: what they compose to is enough.
    halves = [Commitment.of([(GaussianRelease(SHIFT / math.sqrt(2) * (1 - 1e-9)), 1)], founding=True)] * 2
    assert used(halves, LIMIT) <= LIMIT.epsilon


def test_a_gaussian_plan_that_ends_early_gives_back_and_a_sampled_one_does_not() -> None:
    round_of = GaussianRelease(SHIFT / 10)
    ended = Commitment.of([(round_of, 100)], [(round_of, 25)], founding=True)
    assert used([ended, once(GaussianRelease(0.8 * SHIFT))], LIMIT) <= LIMIT.epsilon
    # The first plan left no room for anything that is not Gaussian, and which plans come may go by its answers.
    assert used([ended, once(PoissonRelease(0.1, 0.1))], LIMIT) > LIMIT.epsilon
    sampled = PoissonRelease(0.1, 0.3)
    running = Commitment.of([(sampled, 20)])
    assert used([Commitment.of([(sampled, 20)], [(sampled, 1)])], LIMIT) == used([running], LIMIT) > 0
    assert used([Commitment.of([(sampled, 20)], [])], LIMIT) == 0.0


def test_parts_of_one_pass_cost_as_much_as_one_of_them() -> None:
    parts = [(DisjointBatchRelease("plan", part, 0.5 * SHIFT), 1) for part in range(7)]
    planned = parts[:1]
    one = once(GaussianRelease(0.5 * SHIFT))
    assert used([Commitment.of(planned, parts)], LIMIT) == used([one], LIMIT)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 0.5), st.floats(0.05, 1.0)), min_size=1, max_size=5))
@examples(20)
def test_more_plans_never_take_up_less_and_the_odometer_never_runs_back(plans: list[tuple[bool, float, float]]) -> None:
    history: list[Commitment] = []
    before = reading = 0.0
    for number, (sampled, rate, shift) in enumerate(plans):
        history.append(once(PoissonRelease(rate, shift) if sampled else GaussianRelease(shift), founding=number == 0))
        after, now = used(history, LIMIT), odometer(history, LIMIT.delta)
        assert after >= before * (1 - 1e-9)
        assert now.epsilon >= reading
        again = [Commitment.of(each.planned, each.charged, founding=each.founding) for each in history]
        assert now == odometer(again, LIMIT.delta)  # a replayed ledger reads the same
        before, reading = after, now.epsilon


def stopped(readings: Sequence[float], shift: float) -> float:
    """The true δ for whoever stops equal Gaussian runs when it suits them and then believes the reading of that time.

    The best stopping rule, by a dynamic programme over the privacy loss: E (1 - e^(reading - loss))₊ at the stop.
    """
    losses = np.arange(-2.5, 9.0, 0.005)
    steps = np.arange(-0.8, 0.8 + 1e-9, 0.005)
    kernel = np.exp(-((steps - shift**2 / 2) ** 2) / (2 * shift**2))
    kernel /= kernel.sum()
    value = np.zeros_like(losses)
    for reading in reversed(readings):
        now = np.maximum(-np.expm1(reading - losses), 0.0)
        ahead = np.pad(value, len(steps) // 2, mode="edge")
        value = np.maximum(now, np.convolve(ahead, kernel[::-1], mode="valid")) if np.any(value) else now
    ahead = np.pad(value, len(steps) // 2, mode="edge")
    return float(np.interp(0.0, losses, np.convolve(ahead, kernel[::-1], mode="valid")))


@pytest.mark.parametrize(("runs", "naive"), [(2, 1.9e-6), (10, 5.6e-6), (100, 1.35e-5)])
def test_what_was_used_is_no_guarantee_if_one_stops_by_it_and_the_odometer_is(runs: int, naive: float) -> None:
    delta, event = 1e-6, GaussianRelease(0.1)
    by_use = [accountant.epsilon([(event, count)], delta) for count in range(1, runs + 1)]
    assert stopped(by_use, 0.1) == pytest.approx(naive, rel=0.03)
    history = [once(event, founding=number == 0) for number in range(runs)]
    readings = [odometer(history[:count], delta) for count in range(1, runs + 1)]
    assert {reading.delta for reading in readings[1:]} == {2 * delta}
    assert stopped([reading.epsilon for reading in readings], 0.1) <= 2 * delta


def test_the_budget_is_guaranteed_while_it_admits_all_plans_and_the_odometer_after_that() -> None:
    half = [once(GaussianRelease(SHIFT / math.sqrt(2.1)), founding=founding) for founding in (True, False, False)]
    assert guaranteed(half[:2], LIMIT) == LIMIT
    beyond = guaranteed(half, LIMIT)
    assert beyond == odometer(half, LIMIT.delta)
    assert beyond.epsilon > accountant.epsilon([(GaussianRelease(SHIFT / math.sqrt(2.1)), 3)], 2 * LIMIT.delta)
    nothing_proved = [half[0], once(BinomialRelease(reach=9.0, trials=20, own=20, dimension=3, slack=1e-8))]
    assert guaranteed(nothing_proved, LIMIT).epsilon == math.inf


def test_a_record_of_the_section_that_pays_most_decides_what_is_left_and_what_dominates() -> None:
    dear, cheap = (
        SectionRelease("halves", name, GaussianRelease(share * SHIFT)) for name, share in (("a", 0.8), ("b", 0.1))
    )
    both, alone = (
        [Commitment.of([(dear, 1), (cheap, 1)], founding=True)],
        [once(GaussianRelease(0.8 * SHIFT), founding=True)],
    )
    assert left(both, LIMIT, answered=True) == left(alone, LIMIT, answered=True)
    assert used(both, LIMIT) == used(alone, LIMIT)
    assert odometer(both, LIMIT.delta) == odometer(alone, LIMIT.delta)
    assert accountant.dominating_shift([(dear, 1), (cheap, 1)], 1e-6, 0) == pytest.approx(0.8 * SHIFT, rel=1e-12)


@pytest.mark.parametrize("others", [0, 1])
def test_nothing_above_epsilon_60_is_claimed_where_coins_of_other_silos_count(others: int) -> None:
    beside = [once(GaussianRelease(0.01), founding=True)] * others

    def reading(shift: float, own: int) -> float:
        mixed = BinomialRelease(reach=shift * 5e5, trials=10**12, own=own, dimension=1, slack=1e-9)
        return odometer([*beside, once(mixed, founding=True), once(GaussianRelease(0.01))], 1e-5, "server").epsilon

    assert 30 < reading(4.0, own=10**11) < 60
    assert reading(6.0, own=10**11) == math.inf
    assert 60 < reading(6.0, own=10**12) < math.inf
