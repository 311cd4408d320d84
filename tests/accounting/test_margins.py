"""The safety margins of the accounting: each allowance is as large as its proof says, and on the safe side."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.correlation import coefficients, column_norm, inverse_coefficients
from ringfence.accounting.events import (
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    require_count,
    require_positive,
    require_probability,
)
from ringfence.accounting.filters import RESERVE, Commitment, enough, left, odometer, used
from ringfence.accounting.pld import ComposedLoss
from ringfence.accounting.profiles import gaussian_delta, gaussian_epsilon
from ringfence.accounting.runs import per_round_event, run_events
from ringfence.accounting.sampling import exact_rounding, shift_of
from ringfence.errors import AccountingError
from ringfence.protocol import Guarantee
from tests.generated import examples

DELTA = 1e-5
LIMIT = Guarantee(epsilon=1.0, delta=DELTA)


# -- a round's shift --


@pytest.mark.parametrize(("summed", "rows", "roundings"), [(1, 1, 2), (1000, 1, 2), (1000, 7, 2), (10, 2, 5)])
def test_rounding_raises_a_sensitivity_by_what_the_lemma_says(summed: int, rows: int, roundings: int) -> None:
    exact = 1 + Fraction((rows + roundings) * summed + 8, 2**53)
    assert exact_rounding(summed, rows, roundings) == float(exact)


def test_a_shift_is_sensitivity_over_noise_and_half_a_grid_width_for_each_row_neighbour_and_coordinate() -> None:
    assert shift_of(sensitivity=3.0, sigma=2.0, summed=10, rounding=1.0) == 1.5 + 2.0**-30
    assert shift_of(sensitivity=3.0, sigma=2.0, summed=10, dimension=16, rounding=1.0) == 1.5 + 4 * 2.0**-30
    assert shift_of(sensitivity=3.0, sigma=2.0, summed=10, dimension=16, rows=9, rounding=2.0) == 3 + 12 * 2.0**-30
    assert shift_of(sensitivity=1.0, sigma=1.0, summed=2**40) > 1 + 3 * 2.0**-13
    assert shift_of(sensitivity=1.0, sigma=1.0, summed=5, rows=5) > 1  # as many rows as records
    with pytest.raises(AccountingError, match="6 rows need at least as many records"):
        shift_of(sensitivity=1.0, sigma=1.0, summed=5, rows=6)
    with pytest.raises(AccountingError, match="too small to account for"):
        shift_of(sensitivity=1e300, sigma=1e-300, summed=5)


def test_a_round_over_a_batch_moves_by_twice_the_clip_over_the_batch() -> None:
    full = per_round_event("full", records=100, batch=100, clip=3.0, sigma=0.5)
    assert full == GaussianRelease(shift_of(sensitivity=0.06, sigma=0.5, summed=100))
    fixed = per_round_event("fixed", records=100, batch=20, clip=3.0, sigma=0.5, dimension=4)
    assert fixed == FixedSizeRelease(100, 20, shift_of(sensitivity=0.3, sigma=0.5, summed=100, dimension=4))
    poisson = per_round_event("poisson", records=100, batch=20, clip=3.0, sigma=0.5)
    assert poisson == PoissonRelease(0.2, 2 * shift_of(sensitivity=0.15, sigma=0.5, summed=100))
    assert isinstance(per_round_event("fixed", records=100, batch=100, clip=3.0, sigma=0.5), GaussianRelease)
    assert isinstance(per_round_event("poisson", records=100, batch=100, clip=3.0, sigma=0.5), GaussianRelease)
    part = per_round_event("one-pass", records=100, batch=20, clip=3.0, sigma=0.5, partition="pass", part=3)
    assert part == DisjointBatchRelease("pass", 3, shift_of(sensitivity=0.3, sigma=0.5, summed=100))
    for wrong in ({"batch": 101}, {"batch": 99}, {"sampling": "sometimes"}):
        with pytest.raises(AccountingError):
            per_round_event(**{"sampling": "full", "records": 100, "batch": 100, "clip": 1.0, "sigma": 1.0, **wrong})  # type: ignore[arg-type]


def test_a_pass_may_use_every_record_and_none_twice() -> None:
    size = {"records": 100, "batch": 20, "clip": 1.0, "sigma": 1.0, "partition": "pass"}
    [(event, count)] = run_events("one-pass", 5, **size)  # type: ignore[arg-type]
    assert (isinstance(event, DisjointBatchRelease), count) == (True, 1)
    with pytest.raises(AccountingError, match="6 disjoint batches of 20 needs 120 records"):
        run_events("one-pass", 6, **size)  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="phased"):
        run_events("phased", 5, **size)  # type: ignore[arg-type]


@pytest.mark.parametrize("theta", [0.0, 0.25, 0.5, 0.9])
def test_correlated_noise_has_the_coefficients_of_its_series_and_their_norm(theta: float) -> None:
    exact = [Fraction(1)]
    for k in range(1, 8):
        exact.append(exact[-1] * (k - 1 + Fraction(theta)) / k)
    assert coefficients(theta, 8) == pytest.approx([float(each) for each in exact], rel=1e-14)
    assert column_norm(theta, 8) == pytest.approx(math.sqrt(sum(each * each for each in exact)), rel=1e-14)
    assert np.convolve(coefficients(theta, 8), inverse_coefficients(theta, 8))[:8] == pytest.approx([1] + [0] * 7)
    assert column_norm(theta, 1) == 1.0


@pytest.mark.parametrize("theta", [-0.001, 1.0, math.nan, True, "0.5"])
def test_noise_is_not_correlated_by_an_exponent_outside_its_range(theta: object) -> None:
    with pytest.raises(AccountingError, match="theta must be at least 0 and below 1"):
        column_norm(theta, 3)  # type: ignore[arg-type]


def test_numbers_of_an_account_are_taken_up_to_their_limits_and_not_beyond() -> None:
    assert (require_count("n", 1), require_count("n", 0, least=0)) == (1, 0)
    assert require_positive("x", 5e-324) == 5e-324
    assert require_positive("x", 3) == 3.0
    for wrong in (0, True, 1.0, "1"):
        with pytest.raises(AccountingError, match="n must be a whole number of at least 1"):
            require_count("n", wrong)
    for wrong in (0.0, math.inf, math.nan, True, "1"):
        with pytest.raises(AccountingError, match="x must be a finite number above 0"):
            require_positive("x", wrong)
    for wrong in (0.0, 1.0, 1, math.nan):
        with pytest.raises(AccountingError, match="p must lie strictly between 0 and 1"):
            require_probability("p", wrong)


# -- composition --


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.integers(1, 10**6)), min_size=1, max_size=6))
@examples(200)
def test_gaussian_releases_compose_to_no_less_than_the_root_of_their_squares(given: list[tuple[float, int]]) -> None:
    events: list[tuple[Event, int]] = [(GaussianRelease(shift), count) for shift, count in given]
    found = accountant.as_one_gaussian(events)
    assert found is not None
    squares = sum(count * Fraction(shift) ** 2 for shift, count in given)
    assert squares <= Fraction(found) ** 2 <= squares * (1 + Fraction(1, 2**46))


def test_a_release_that_happened_no_times_costs_nothing_and_no_sampled_release_is_taken_for_a_gaussian_one() -> None:
    assert accountant.epsilon([(GaussianRelease(1.0), 0), (PoissonRelease(0.1, 1.0), 0)], DELTA) == 0.0
    assert accountant.as_one_gaussian([]) == 0.0
    assert accountant.as_one_gaussian([(PoissonRelease(0.1, 1.0), 1), (GaussianRelease(1.0), 1)]) is None
    assert accountant.is_sampled([(PoissonRelease(0.1, 1.0), 1), (GaussianRelease(1.0), 1)])
    assert not accountant.is_sampled([(GaussianRelease(1.0), 1), (DisjointBatchRelease("pass", 0, 1.0), 1)])
    assert accountant.delta([], 0.0) == 0.0
    for wrong in (-1e-9, math.inf, math.nan, True):
        with pytest.raises(AccountingError):
            accountant.delta([(GaussianRelease(1.0), 1)], wrong)


def composed(outside: float = 0.0, rounding: float = 0.0) -> ComposedLoss:
    """Losses of −1, 0, 1 and 2, at a tilt of 0."""
    losses, masses = np.array([-1.0, 0.0, 1.0, 2.0]), np.array([0.1, 0.4, 0.3, 0.2])
    return ComposedLoss(losses, masses, outside, log_moment=0.0, order=0.0, rounding=rounding)


def test_a_composed_delta_adds_all_that_is_outside_and_all_rounding() -> None:
    exact = 0.3 * -math.expm1(0.5 - 1) + 0.2 * -math.expm1(0.5 - 2)
    assert composed().delta(0.5) == pytest.approx(exact)
    assert composed(outside=0.01).delta(0.5) == pytest.approx(exact + 0.01)
    assert composed(rounding=0.02).delta(0.5) == pytest.approx(exact + 0.02)
    assert composed(outside=0.9, rounding=0.9).delta(0.5) == 1.0
    assert composed().delta(-1.5) == 1.0  # below what was kept
    assert composed().delta(-1.0) < 1.0
    tilted = ComposedLoss(composed().losses, composed().masses, 0.0, log_moment=0.25, order=2.0, rounding=1e-3)
    assert tilted.rounding_at(0.5) == pytest.approx(1e-3 * math.exp(0.25 - 2 * 0.5))


def test_a_dominating_gaussian_allows_for_all_that_is_outside_and_all_rounding() -> None:
    slack = 1e-3
    bare, _ = composed().dominating_shift(slack, math.inf)
    for more in (composed(outside=1e-3), composed(rounding=1e-6)):
        needed, start = more.dominating_shift(slack, math.inf)
        assert start == 0.0
        assert needed > bare
    for epsilon in (0.0, 0.5, 0.999, 1.0, 1.5, 1.999):
        at = composed(outside=1e-3)
        assert at.delta(epsilon) <= gaussian_delta(at.dominating_shift(slack, math.inf)[0], epsilon) + slack
    assert composed(rounding=0.5).dominating_shift(slack, 7.0) == (0.0, 7.0)  # nothing is settled below


def test_a_dominating_gaussian_is_proved_from_the_first_loss_that_was_kept() -> None:
    kept = ComposedLoss(np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.3, 0.2]), 0.0, 0.0, 0.0, rounding=0.0)
    _, start = kept.dominating_shift(1e-3, math.inf)
    assert start == 0.5


def test_a_least_epsilon_is_met_by_its_delta_to_twelve_digits() -> None:
    for shift in (1e-3, 0.3, 2.0, 50.0):
        epsilon = gaussian_epsilon(shift, DELTA)
        if epsilon:
            assert gaussian_delta(shift, epsilon) <= DELTA < gaussian_delta(shift, epsilon * (1 - 3e-12))
    assert gaussian_epsilon(1e-6, 0.5) == 0.0


# -- filters --


def once(shift: float, *, founding: bool = False) -> Commitment:
    return Commitment.of([(GaussianRelease(shift), 1)], founding=founding)


def test_less_than_a_millionth_of_a_budget_counts_as_nothing_left() -> None:
    for share, remains in ((0.75e-6, False), (1.5e-6, True)):
        plan = once(calibrate.gaussian_shift(LIMIT.epsilon * (1 - share), DELTA), founding=True)
        assert (left([plan], LIMIT, answered=False) > 0) is remains


def test_a_limit_that_admits_all_plans_is_enough_and_else_the_least_that_does() -> None:
    half = once(calibrate.gaussian_shift(0.5, DELTA), founding=True)
    assert enough([half], LIMIT) == LIMIT
    exactly = LIMIT.model_copy(update={"epsilon": used([half], LIMIT)})
    assert enough([half], exactly) == exactly
    double = [half, once(2.0)]
    found = enough(double, LIMIT)
    assert found.epsilon > LIMIT.epsilon
    assert found.delta == DELTA
    assert used(double, found) <= found.epsilon


def test_the_reserve_is_one_part_in_sixty_four_and_what_is_not_gaussian_shares_it_by_number() -> None:
    assert RESERVE == 1 / 64
    event = FixedSizeRelease(1000, 30, 0.5)
    first = accountant.dominating_shift([(event, 10)], RESERVE * DELTA / 2, 0)
    second = accountant.dominating_shift([(event, 10)], RESERVE * DELTA / 6, 0)
    sampled = Commitment.of([(event, 10)])
    start = once(0.05, founding=True)
    expected = gaussian_epsilon(math.hypot(0.05, first, second), DELTA * (1 - RESERVE))
    assert used([start, sampled, sampled], LIMIT) == pytest.approx(expected, rel=1e-9)
    assert second > first


def test_an_odometer_reads_the_founding_plans_at_delta_and_later_ones_at_twice_that_up_to_a_half() -> None:
    start = once(1.0, founding=True)
    assert odometer([start], DELTA).delta == DELTA
    assert odometer([start], DELTA).epsilon == accountant.epsilon([(GaussianRelease(1.0), 1)], DELTA)
    assert odometer([start, once(0.1)], DELTA).delta == 2 * DELTA
    assert odometer([start, once(0.1)], 0.3).delta == 0.5


def test_an_odometer_climbs_to_the_first_rung_that_admits_all_plans() -> None:
    unit = calibrate.gaussian_shift(accountant.epsilon([(GaussianRelease(1.0), 1)], DELTA), DELTA) * (1 + 1e-6)
    start = once(1.0, founding=True)
    for later, rung in ((1, 2), (2, 3), (5, 6)):
        reading = odometer([start, *[once(1.0)] * later], DELTA)
        share = DELTA / (rung * (rung - 1))
        assert reading.epsilon == gaussian_epsilon(unit * math.sqrt(rung), share * (1 - RESERVE)), rung


def test_a_sampled_release_too_large_to_compose_is_dominated_by_all_its_rounds_without_sampling() -> None:
    for shift, count in ((1e7, 3), (3e6, 7), (1.1e6, 1)):
        found = Fraction(accountant.dominating_shift([(PoissonRelease(0.5, shift), count)], 1e-9, 0)) ** 2
        assert count * Fraction(shift) ** 2 <= found <= count * Fraction(shift) ** 2 * (1 + Fraction(1, 2**46))
    assert accountant.epsilon([(PoissonRelease(0.5, 1e7), 3)], DELTA) == math.inf
    assert accountant.delta([(PoissonRelease(0.5, 1e7), 3)], 5.0) == 1.0


def test_the_largest_number_is_one() -> None:
    assert require_positive("shift", sys.float_info.max) == sys.float_info.max
    with pytest.raises(AccountingError):
        require_positive("shift", math.inf)
