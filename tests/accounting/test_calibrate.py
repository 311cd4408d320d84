"""Noise for a budget: safe, as small as possible, and mindful of what was already spent."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.events import DisjointBatchRelease, Event, GaussianRelease, PoissonRelease
from ringfence.accounting.profiles import gaussian_delta
from ringfence.accounting.runs import run_events
from ringfence.errors import AccountingError

DELTA = 1e-6
FULL: Any = {"sampling": "full", "records": 500, "batch": 500, "delta": DELTA}
PASS: Any = {"sampling": "one-pass", "records": 500, "batch": 20, "rounds": 25, "delta": DELTA}


@given(epsilon=st.floats(1e-4, 1e4), delta=st.floats(1e-12, 0.5))
def test_the_gaussian_shift_is_the_largest_that_meets_the_budget(epsilon: float, delta: float) -> None:
    shift = calibrate.gaussian_shift(epsilon, delta)
    assert gaussian_delta(shift, epsilon) <= delta < gaussian_delta(shift * (1 + 1e-9), epsilon)


def test_full_batch_noise_is_the_closed_form() -> None:
    sigma = calibrate.noise(**FULL, rounds=25, clip=3.0, epsilon=1.0)
    expected = 2 * 3.0 * math.sqrt(25) / (500 * calibrate.gaussian_shift(1.0, DELTA))
    assert sigma == pytest.approx(expected, rel=1e-6)


def test_one_pass_noise_is_that_of_a_single_release() -> None:
    sigma = calibrate.noise(**PASS, clip=3.0, epsilon=1.0)
    assert sigma == pytest.approx(2 * 3.0 / (20 * calibrate.gaussian_shift(1.0, DELTA)), rel=1e-6)


def test_a_spent_budget_leaves_no_noise_that_is_enough() -> None:
    with pytest.raises(AccountingError, match="already spent"):
        calibrate.noise(**FULL, rounds=1, clip=1.0, epsilon=1.0, already=[(GaussianRelease(1.0), 1)])


def test_almost_no_budget_left_gives_safe_noise_or_a_refusal() -> None:
    already: list[tuple[Event, int]] = [(PoissonRelease(0.05, 0.8), 30)]
    spent = accountant.epsilon(already, DELTA)
    query: Any = {"records": 1000, "batch": 50, "rounds": 30, "clip": 1.0}
    for room in (1e-4, 1e-12):
        budget = spent * (1 + room)
        try:
            sigma = calibrate.noise("fixed", epsilon=budget, delta=DELTA, already=already, **query)
        except AccountingError as refused:
            assert room == 1e-12
            assert "No amount of noise meets this budget" in str(refused)  # noqa: PT017
            continue
        total = already + run_events("fixed", 30, records=1000, batch=50, clip=1.0, sigma=sigma)
        assert spent * (1 - 1e-6) <= accountant.epsilon(total, DELTA) <= budget


def test_rounding_alone_can_exceed_a_tiny_budget() -> None:
    with pytest.raises(AccountingError, match="No amount of noise meets this budget"):
        calibrate.noise("full", records=10, batch=10, rounds=10**9, clip=1.0, epsilon=1e-6, delta=1e-9, dimension=10**6)


def test_a_new_pass_may_not_hide_behind_an_old_ones_name() -> None:
    already = [(DisjointBatchRelease("spring", 3, 0.1), 5)]
    with pytest.raises(AccountingError, match="counted as free"):
        calibrate.noise(**PASS, clip=1.0, epsilon=9.0, already=already, partition="spring")


def test_a_later_phase_pays_for_its_own_records_only() -> None:
    limit = calibrate.gaussian_shift(1.0, DELTA)

    def phase(part: int) -> Callable[[float], list[tuple[Event, int]]]:
        return lambda sigma: [(DisjointBatchRelease("run", part, 1 / sigma), 9)]

    first = phase(0)(calibrate.least_noise(phase(0), epsilon=1.0, delta=DELTA, start=1.0))
    second = calibrate.least_noise(phase(1), epsilon=1.0, delta=DELTA, start=1.0, already=first)
    assert second == pytest.approx(3 / limit, rel=1e-6)
    half_spent: list[tuple[Event, int]] = [(DisjointBatchRelease("run", 0, 0.6 * limit), 1)]
    again = calibrate.least_noise(phase(0), epsilon=1.0, delta=DELTA, start=1.0, already=half_spent)
    assert again == pytest.approx(3 / (0.8 * limit), rel=1e-6)  # the same records: 0.6² + 0.8² = 1


@settings(max_examples=50, deadline=None)
@given(
    start=st.floats(1e-8, 1e8),
    shares=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4),
    spent=st.floats(0.0, 0.999),
    epsilon=st.floats(0.05, 50),
    delta=st.floats(1e-9, 1e-2),
)
def test_the_least_noise_of_any_gaussian_run_is_safe_and_tight_wherever_the_search_starts(
    start: float, shares: list[float], spent: float, epsilon: float, delta: float
) -> None:
    def run(sigma: float) -> list[tuple[Event, int]]:
        parts = [(DisjointBatchRelease("run", part, share / sigma), 1) for part, share in enumerate(shares)]
        return [*parts, (GaussianRelease(0.1 / sigma), 3)]

    already: list[tuple[Event, int]] = []
    if spent:
        already.append((GaussianRelease(spent * calibrate.gaussian_shift(epsilon, delta)), 1))
    sigma = calibrate.least_noise(run, epsilon=epsilon, delta=delta, start=start, already=already)
    assert accountant.epsilon([*already, *run(sigma)], delta) <= epsilon
    assert accountant.epsilon([*already, *run(sigma * (1 - 1e-5))], delta) > epsilon


def test_a_run_whose_cost_does_not_depend_on_its_noise_has_no_least_noise() -> None:
    with pytest.raises(AccountingError, match="Any amount of noise meets this budget"):
        calibrate.least_noise(lambda _: [(GaussianRelease(1e-3), 1)], epsilon=1.0, delta=DELTA, start=1.0)
    with pytest.raises(AccountingError, match="Any amount of noise meets this budget"):
        calibrate.least_noise(lambda _: [], epsilon=1.0, delta=DELTA, start=1.0)
    with pytest.raises(AccountingError, match="No amount of noise meets this budget"):
        calibrate.least_noise(lambda _: [(GaussianRelease(10.0), 1)], epsilon=1.0, delta=DELTA, start=1.0)


def test_the_accountant_has_the_last_word_where_the_search_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = accountant.as_one_gaussian
    monkeypatch.setattr(accountant, "as_one_gaussian", lambda events: 0.9 * (honest(events) or 0.0))
    sigma = calibrate.noise(**FULL, rounds=25, clip=1.0, epsilon=1.0)
    run = run_events("full", 25, records=500, batch=500, clip=1.0, sigma=sigma)
    assert accountant.epsilon(run, DELTA) <= 1.0


@pytest.mark.parametrize("start", [0.0, -1.0, math.inf, math.nan])
def test_a_search_must_start_somewhere(start: float) -> None:
    with pytest.raises(AccountingError, match="start must be"):
        calibrate.least_noise(lambda sigma: [(GaussianRelease(sigma), 1)], epsilon=1.0, delta=DELTA, start=start)


def test_a_shift_that_was_computed_before_is_still_refused_for_a_wrong_type() -> None:
    calibrate.gaussian_shift(1.0, DELTA)
    with pytest.raises(AccountingError, match="epsilon must be"):
        calibrate.gaussian_shift(True, DELTA)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("epsilon", [0.0, -1.0, math.inf, math.nan], "epsilon must be"),
        ("delta", [0.0, 1.0], "delta must lie"),
        ("rounds", [11], "disjoint batches"),  # and all else that `run_events` refuses: test_sampling
    ],
)
def test_bad_numbers_are_refused_in_one_sentence(name: str, values: list[object], reason: str) -> None:
    run: Any = {"sampling": "one-pass", "records": 100, "batch": 10, "rounds": 5, "clip": 1.0, "partition": "new run"}
    for value in values:
        with pytest.raises(AccountingError, match=reason) as refusal:
            calibrate.noise(**{**run, "epsilon": 1.0, "delta": DELTA, name: value})
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 20.0])
@pytest.mark.parametrize(("records", "rounds"), [(200, 100), (2000, 3000), (50, 10)])
def test_small_batches_of_many_records_get_no_more_noise_than_they_need(
    records: int, rounds: int, epsilon: float
) -> None:
    """Delta falls so steeply in sigma here that a search which followed it once gave seven times too much."""
    query: Any = {"records": records, "batch": 1, "clip": 1.0}
    sigma = calibrate.noise("fixed", rounds=rounds, epsilon=epsilon, delta=1e-5, **query)
    assert accountant.epsilon(run_events("fixed", rounds, sigma=sigma, **query), 1e-5) <= epsilon
    assert accountant.epsilon(run_events("fixed", rounds, sigma=0.99 * sigma, **query), 1e-5) > epsilon
