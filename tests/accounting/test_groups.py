"""What rows cost that are replaced together: never less than the exact divergence of small cases."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from ringfence.accounting import accountant
from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.correlation import coefficients, column_norm
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    of_group,
)
from ringfence.accounting.profiles import gaussian_delta
from ringfence.errors import AccountingError
from tests.accounting.test_brute_force import cells, hockey_stick, squared

EPSILONS = [0.0, 0.3, 1.0, 2.5]


def cost(event: Event, size: int, epsilon: float, rounds: int = 1) -> float:
    return accountant.delta(of_group(size, [(event, rounds)]), epsilon)


@pytest.mark.parametrize(("size", "epsilon"), [(1, 1.0), (5, 5.926), (10, 13.507)])
def test_rows_of_full_batches_cost_their_number_times_the_shift(size: int, epsilon: float) -> None:
    one = GaussianRelease(gaussian_shift(1.0, 1e-6))
    assert accountant.epsilon(of_group(size, [(one, 1)]), 1e-6) == pytest.approx(epsilon, abs=1e-3)


def test_rows_in_parts_cost_no_less_than_wherever_they_lie() -> None:
    shifts = (0.4, 0.9, 0.3)
    events = [(DisjointBatchRelease("pass", part, shift), 1) for part, shift in enumerate(shifts)]
    reported = accountant.as_one_gaussian(of_group(4, events))
    assert reported is not None
    for first in range(5):
        for second in range(5 - first):
            placed = (first, second, 4 - first - second)
            assert math.hypot(*(n * shift for n, shift in zip(placed, shifts, strict=True))) <= reported


def test_copies_in_two_correlated_rows_cost_no_more_than_twice_the_column_norm() -> None:
    theta = 0.7
    _, second = coefficients(theta, 2)
    moved = math.hypot(1.0, 1.0 + second)  # the first copy moves both rows, the second one the last
    assert gaussian_delta(moved, 1.0) <= cost(DisjointBatchRelease("pass", 0, column_norm(theta, 2)), 2, 1.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("rate", "shift"), [(0.1, 1.0), (0.5, 3.0), (0.9, 0.4)])
@pytest.mark.parametrize("size", [2, 3])
def test_rows_drawn_by_chance_cost_no_less_than_the_binomial_mixture(
    size: int, rate: float, shift: float, epsilon: float
) -> None:
    weights = np.asarray(binom.pmf(range(size + 1), size, rate))
    p, q = (
        cells(*((weight, sign * drawn * shift / 2) for drawn, weight in enumerate(weights))) for sign in (1.0, -1.0)
    )
    assert hockey_stick(p, q, epsilon) <= cost(PoissonRelease(rate, shift), size, epsilon)
    assert hockey_stick(squared(p, p), squared(q, q), epsilon) <= cost(PoissonRelease(rate, shift), size, epsilon, 2)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", [2, 3, 5, 7])  # five rows are more than the batch, and seven leave too few others
def test_rows_drawn_without_replacement_cost_no_less_than_the_mixture_over_all_batches(
    size: int, epsilon: float
) -> None:
    records, batch, shift, random = 8, 3, 1.3, np.random.default_rng(size)
    bound = cost(FixedSizeRelease(records, batch, shift), size, epsilon)
    corners = [(a, b, c) for a in (-0.5, 0.0, 0.5) for b in (-0.5, 0.5) for c in (-0.5, 0.5)]
    tried = [np.repeat([a, b, c], [size, size, records - size]) for a, b, c in corners]
    tried += [random.uniform(-0.5, 0.5, size + records) for _ in range(5)]
    for values in tried:
        ours, theirs, others = np.split(values, [size, 2 * size])
        p, q = (
            cells(*((times / math.comb(records, batch), mean) for mean, times in drawn.items()))
            for drawn in (
                Counter(float(shift * sum(rows)) for rows in combinations([*own, *others], batch))
                for own in (ours, theirs)
            )
        )
        assert hockey_stick(p, q, epsilon) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_rows_counted_through_a_shuffler_move_the_total_by_their_number(epsilon: float) -> None:
    trials, levels, size = 400, 3, 4
    counts = np.arange(trials + size * levels + 1)
    p, q = binom.pmf(counts - size * levels, trials, 0.5), binom.pmf(counts, trials, 0.5)
    event = BinomialRelease(reach=float(levels), trials=trials, own=trials, dimension=1, slack=1e-9)
    exact = hockey_stick(p, q, epsilon)
    assert cost(event, 1, epsilon) < exact <= cost(event, size, epsilon)
    with pytest.raises(AccountingError, match="Keep one row per person"):
        BinomialRelease(3.0, 400, 400, 1, 1e-9, "pass", 0).of_group(2)


@pytest.mark.parametrize("event", [PoissonRelease(0.1, 1.0), FixedSizeRelease(100, 10, 1.0), GaussianRelease(1.0)])
def test_one_row_costs_what_it_did_and_no_row_is_refused(event: Event) -> None:
    assert event.of_group(1) == (event, 1)
    with pytest.raises(AccountingError, match="size must be a whole number"):
        event.of_group(0)


def test_an_event_of_a_group_has_the_records_draws_and_shift_of_its_lemma() -> None:
    fixed = FixedSizeRelease(100, 10, 0.5)
    assert fixed.of_group(1) == (fixed, 1)
    assert fixed.of_group(3) == (FixedSizeRelease(98, 10, math.sqrt(3) * (0.5 + 2.0**-16)), 3)
    assert fixed.of_group(10) == (FixedSizeRelease(91, 10, math.sqrt(10) * (0.5 + 2.0**-16)), 10)
    assert fixed.of_group(11) == (GaussianRelease(5.0), 1)  # more rows than a batch has
    assert FixedSizeRelease(100, 95, 0.5).of_group(5)[1] == 5
    assert FixedSizeRelease(100, 95, 0.5).of_group(6) == (GaussianRelease(3.0), 1)  # the others cannot fill a batch
    assert PoissonRelease(0.1, 0.5).of_group(4) == (PoissonRelease(0.1, 1.0), 4)
    assert DisjointBatchRelease("pass", 2, 0.5).of_group(4) == (DisjointBatchRelease("pass", 2, 2.0), 1)
    counts = BinomialRelease(4.0, 100, 40, 3, 1e-9)
    assert counts.of_group(4) == (BinomialRelease(16.0, 100, 40, 3, 1e-9), 1)
    divided = BinomialRelease(4.0, 100, 40, 3, 1e-9, "pass", 1)
    assert divided.of_group(1) == (divided, 1)
    with pytest.raises(AccountingError, match="Keep one row per person"):
        divided.of_group(2)
    assert of_group(3, [(fixed, 5)]) == [(fixed.of_group(3)[0], 15)]


def test_parts_of_two_silos_are_never_taken_for_parts_of_one_division() -> None:
    part = DisjointBatchRelease("pass", 2, 0.5)
    assert part.of_silo("north") == DisjointBatchRelease("pass of north", 2, 0.5)
    counts = BinomialRelease(4.0, 100, 40, 3, 1e-9)
    assert counts.of_silo("north") == counts
    divided = BinomialRelease(4.0, 100, 40, 3, 1e-9, "pass", 1)
    assert divided.of_silo("north") == BinomialRelease(4.0, 100, 40, 3, 1e-9, "pass of north", 1)
    assert GaussianRelease(0.5).of_silo("north") == GaussianRelease(0.5)
