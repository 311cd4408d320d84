"""Every accounting path obeys the suite; and what only one of them must do."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.accounting import accountant
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    seen_by,
)
from ringfence.accounting.shuffled_sums import binomial_shift
from ringfence.errors import AccountingError
from tests.accounting.accountant_suite import DELTA, AccountantSuite
from tests.support import shift_in


class TestFullBatch(AccountantSuite):
    sampling = "full"
    batch = 1000


class TestFixedSize(AccountantSuite):
    sampling = "fixed"


class TestPoisson(AccountantSuite):
    sampling = "poisson"


class TestOnePass(AccountantSuite):
    sampling = "one-pass"

    def row(self, answer: int, sigma: float) -> list[tuple[Event, int]]:
        return [(self.round("one-pass", sigma, part=answer), 1)]


class TestPhased(AccountantSuite):
    """Three phases, each on half as many records as the one before and with noise to match."""

    sampling = "phased"

    def run(self, rounds: int, sigma: float) -> list[tuple[Event, int]]:
        return [
            (self.round("phased", sigma * 2**part, part=part, batch=self.batch >> part), rounds) for part in range(3)
        ]

    def row(self, answer: int, sigma: float) -> list[tuple[Event, int]]:
        return self.run(1, sigma)


class TestMixed(AccountantSuite):
    """A data set that was used in every way; the new run is a fixed-size one."""

    sampling = "fixed"
    already = (
        (PoissonRelease(0.1, 0.2), 3),
        (GaussianRelease(0.02), 2),
        (DisjointBatchRelease("earlier pass", 0, 0.05), 1),
        (DisjointBatchRelease("earlier pass", 1, 0.1), 1),
    )

    def run(self, rounds: int, sigma: float) -> list[tuple[Event, int]]:
        return [(event, rounds * count) for event, count in self.already] + super().run(rounds, sigma)

    def new_run(self, sigma: float) -> list[tuple[Event, int]]:
        return super().run(self.rounds, sigma)


@pytest.mark.parametrize("stranger", ["gaussian", 1.0, None, {"kind": "gaussian", "shift": 1.0}])
def test_an_unknown_event_is_refused_rather_than_guessed(stranger: object) -> None:
    with pytest.raises(AccountingError, match="Cannot account for"):
        accountant.epsilon([(stranger, 1)], DELTA)  # type: ignore[list-item]


def test_the_dearest_part_composes_with_releases_that_touch_every_record() -> None:
    parts: list[tuple[Event, int]] = [(DisjointBatchRelease("a", 0, 0.3), 1), (DisjointBatchRelease("a", 1, 0.6), 1)]
    assert accountant.as_one_gaussian([*parts, (GaussianRelease(0.8), 1)]) == pytest.approx(1.0)
    sampled: tuple[Event, int] = (PoissonRelease(0.1, 1.0), 20)
    for part, shift in ((0, 0.3), (1, 0.6)):  # what a record of this part sees
        alone: list[tuple[Event, int]] = [sampled, (DisjointBatchRelease("a", part, shift), 1)]
        assert accountant.epsilon(alone, DELTA) <= accountant.epsilon([sampled, *parts], DELTA)
    dearest = accountant.epsilon([sampled, (GaussianRelease(0.6), 1)], DELTA)
    assert accountant.epsilon([sampled, *parts], DELTA) == dearest


partitioned = st.builds(
    DisjointBatchRelease, st.sampled_from(["spring", "autumn"]), st.integers(0, 2), st.floats(1e-3, 10.0)
)


@given(
    st.lists(st.tuples(st.one_of(partitioned, st.builds(GaussianRelease, st.floats(1e-3, 10.0))), st.integers(1, 9)))
)
def test_no_record_loses_more_than_is_reported(events: list[tuple[Event, int]]) -> None:
    reported = accountant.as_one_gaussian(events)
    assert reported is not None

    def seen(event: Event, membership: dict[str, int]) -> bool:
        return not isinstance(event, DisjointBatchRelease) or membership[event.partition] == event.part

    losses = []
    for spring, autumn in itertools.product(range(3), range(3)):  # every way in which a record can lie
        membership = {"spring": spring, "autumn": autumn}
        losses.append(sum(Fraction(shift_in(event)) ** 2 * count for event, count in events if seen(event, membership)))
    assert max(losses) <= Fraction(reported) ** 2 <= max(losses) * (1 + Fraction(1, 10**12))


def test_a_sampled_composition_is_no_single_gaussian_release() -> None:
    assert accountant.as_one_gaussian([(GaussianRelease(1.0), 1), (PoissonRelease(0.5, 1.0), 1)]) is None
    assert accountant.as_one_gaussian([(GaussianRelease(1.0), 1), (PoissonRelease(0.5, 1.0), 0)]) == pytest.approx(1.0)
    assert accountant.as_one_gaussian([]) == 0.0


@pytest.mark.parametrize(("left_out", "precision"), [(0, 0.0), (1, 1e-4)])
def test_sampling_everything_is_a_full_batch_and_almost_everything_almost_one(left_out: int, precision: float) -> None:
    expected = accountant.epsilon([(GaussianRelease(0.5), 3)], DELTA)
    for event in (FixedSizeRelease(10**9, 10**9 - left_out, 0.5), PoissonRelease(1 - left_out * 1e-9, 0.5)):
        assert accountant.epsilon([(event, 3)], DELTA) == pytest.approx(expected, rel=precision, abs=0)


def test_two_sampled_events_that_hardly_differ_cost_as_much_as_two_equal_ones() -> None:
    equal = accountant.epsilon([(PoissonRelease(0.1, 1.0), 20)], DELTA)
    split = accountant.epsilon([(PoissonRelease(0.1, 1.0), 10), (PoissonRelease(0.1, 1 + 1e-9), 10)], DELTA)
    assert split == pytest.approx(equal, rel=1e-4)


def test_a_negligible_gaussian_release_does_not_change_a_sampled_run() -> None:
    run = (FixedSizeRelease(1000, 50, 1.0), 20)
    alone = accountant.epsilon([run], DELTA)
    assert accountant.epsilon([run, (GaussianRelease(1e-12), 1)], DELTA) == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("shift", [1e-300, 1e-9, 1e-3, 1.0, 30.0, 1e3, 1e5])
def test_full_batch_epsilon_is_finite_and_exact_for_any_shift(shift: float) -> None:
    epsilon = accountant.epsilon([(GaussianRelease(shift), 1)], DELTA)
    assert 0 <= epsilon <= shift**2 / 2 + 5.3 * shift  # Φ(-√(2 ln 1e6)) < 1e-6
    assert epsilon == 0 or accountant.delta([(GaussianRelease(shift), 1)], epsilon) == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize("event", [GaussianRelease(1e200), FixedSizeRelease(10, 1, 1e200), PoissonRelease(0.5, 1e7)])
def test_an_epsilon_that_cannot_be_proved_is_infinite(event: Event) -> None:
    assert accountant.epsilon([(event, 1)], DELTA) == math.inf
    assert accountant.delta([(event, 1)], 1.0) == 1.0


def test_a_delta_below_the_sampled_grid_gives_infinity_not_a_wrong_number() -> None:
    assert accountant.epsilon([(FixedSizeRelease(10, 1, 1.0), 1)], 1e-30) == math.inf


@pytest.mark.parametrize(
    "event",
    [
        FixedSizeRelease(10**6, 1, 1000.0),
        FixedSizeRelease(10, 9, 1e-9),
        FixedSizeRelease(10**15, 1, 1.0),
        PoissonRelease(1e-300, 1.0),
        PoissonRelease(0.5, 1e-300),
        PoissonRelease(0.999, 100.0),
    ],
)
@pytest.mark.parametrize("count", [1, 1000])
def test_extreme_sampled_releases_have_a_cost_without_overflow(event: Event, count: int) -> None:
    epsilon = accountant.epsilon([(event, count)], 1e-5)
    assert 0 <= epsilon < math.inf
    assert 0 <= accountant.delta([(event, count)], epsilon + 1e-3) <= 1.001e-5


def test_a_record_hit_more_rarely_than_delta_costs_nothing_even_without_noise() -> None:
    assert accountant.epsilon([(FixedSizeRelease(10**6, 1, 1000.0), 1)], 1e-5) == 0.0


@settings(max_examples=15, deadline=None)
@given(rate=st.floats(1e-3, 0.99), shift=st.floats(1e-2, 20), count=st.integers(1, 200), delta=st.floats(1e-10, 0.1))
def test_any_poisson_run_costs_less_than_the_same_run_on_more_records_or_rounds(
    rate: float, shift: float, count: int, delta: float
) -> None:
    cost = accountant.epsilon([(PoissonRelease(rate, shift), count)], delta)
    assert cost <= accountant.epsilon([(PoissonRelease(min(1.0, 1.1 * rate), shift), count)], delta) * (1 + 1e-4)
    assert cost <= accountant.epsilon([(PoissonRelease(rate, 1.1 * shift), count)], delta) * (1 + 1e-4)
    assert cost <= accountant.epsilon([(PoissonRelease(rate, shift), 2 * count)], delta) * (1 + 1e-4)
    assert cost <= accountant.epsilon([(GaussianRelease(shift), count)], delta)


@settings(max_examples=10, deadline=None)
@given(
    records=st.integers(2, 10_000),
    share=st.floats(0, 1),
    shift=st.floats(1e-2, 20),
    count=st.integers(1, 200),
    delta=st.floats(1e-10, 0.1),
)
def test_any_fixed_size_run_costs_less_than_a_full_batch_run_of_the_same_shift(
    records: int, share: float, shift: float, count: int, delta: float
) -> None:
    batch = max(1, min(records - 1, round(share * records)))
    cost = accountant.epsilon([(FixedSizeRelease(records, batch, shift), count)], delta)
    assert cost <= accountant.epsilon([(GaussianRelease(shift), count)], delta) * (1 + 1e-4)


# -- counts from a shuffler --

SLACK = 1e-8


def counts(trials: int = 20_000, own: int | None = None, partition: str = "", part: int = 0) -> BinomialRelease:
    """Counts of three coordinates that a record moves by four levels."""
    return BinomialRelease(4.0, trials, trials // 2 if own is None else own, 3, SLACK, partition, part)


def shift_of_counts(trials: int) -> float:
    return binomial_shift(reach=4.0, trials=trials, dimension=3, slack=SLACK)


def test_counts_are_a_gaussian_release_and_a_share_of_delta() -> None:
    shift = shift_of_counts(20_000)
    one: list[tuple[Event, int]] = [(counts(), 1)]
    as_gaussian: list[tuple[Event, int]] = [(GaussianRelease(shift), 1)]
    assert accountant.epsilon(one, DELTA) == pytest.approx(accountant.epsilon(as_gaussian, DELTA - SLACK), rel=1e-9)
    assert accountant.delta(one, 0.5) == pytest.approx(accountant.delta(as_gaussian, 0.5) + SLACK, rel=1e-9)
    assert accountant.epsilon(one, DELTA) > accountant.epsilon(as_gaussian, DELTA)
    assert accountant.as_one_gaussian(one) is None, "not one: there is the share"


def test_counts_compose_with_each_other_and_with_gaussian_releases() -> None:
    together: list[tuple[Event, int]] = [(counts(), 5), (counts(30_000), 2), (GaussianRelease(0.2), 3)]
    shift = math.sqrt(5 * shift_of_counts(20_000) ** 2 + 2 * shift_of_counts(30_000) ** 2 + 3 * 0.2**2)
    expected = accountant.epsilon([(GaussianRelease(shift), 1)], DELTA - 7 * SLACK)
    assert accountant.epsilon(together, DELTA) == pytest.approx(expected, rel=1e-9)
    one_by_one = [(event, 1) for event, count in together for _ in range(count)]
    assert accountant.epsilon(one_by_one[::-1], DELTA) == accountant.epsilon(together, DELTA)


def test_counts_compose_with_sampled_batches_and_are_not_free() -> None:
    sampled: list[tuple[Event, int]] = [(FixedSizeRelease(1000, 50, 0.5), 10)]
    both = accountant.epsilon([*sampled, (counts(), 4)], DELTA)
    assert both > accountant.epsilon(sampled, DELTA)
    assert both > accountant.epsilon([(counts(), 4)], DELTA)
    expected = accountant.epsilon([*sampled, (GaussianRelease(2 * shift_of_counts(20_000)), 1)], DELTA - 4 * SLACK)
    assert both == pytest.approx(expected, rel=1e-6)


def test_counts_of_disjoint_parts_cost_as_much_as_the_dearest_part() -> None:
    parts: list[tuple[Event, int]] = [(counts(20_000 * (1 + part), None, "pass", part), 1) for part in range(4)]
    dearest: list[tuple[Event, int]] = [(counts(), 1)]
    assert accountant.epsilon(parts, DELTA) == accountant.epsilon(dearest, DELTA)
    assert accountant.delta(parts, 0.3) == accountant.delta(dearest, 0.3)
    twice: list[tuple[Event, int]] = [(counts(partition="pass", part=1), 2)]
    assert accountant.epsilon(twice, DELTA) == accountant.epsilon([(counts(), 2)], DELTA), "the same records again"
    two_passes: list[tuple[Event, int]] = [(counts(partition=name), 1) for name in ("one", "two")]
    assert accountant.epsilon(two_passes, DELTA) == accountant.epsilon([(counts(), 2)], DELTA)
    mixed_kinds: list[tuple[Event, int]] = [(counts(partition="pass"), 1), (DisjointBatchRelease("pass", 0, 0.3), 1)]
    shift = math.hypot(shift_of_counts(20_000), 0.3)
    assert accountant.epsilon(mixed_kinds, DELTA) == pytest.approx(
        accountant.epsilon([(GaussianRelease(shift), 1)], DELTA - SLACK), rel=1e-9
    )


def test_when_the_shares_of_delta_use_it_up_nothing_is_claimed() -> None:
    enough = int(DELTA / SLACK) - 1
    assert accountant.epsilon([(counts(), enough)], DELTA) < math.inf
    assert accountant.epsilon([(counts(), enough + 1)], DELTA) == math.inf
    assert accountant.epsilon([(counts(), 10**9)], DELTA) == math.inf
    assert accountant.delta([(counts(), 10**9)], 1.0) == 1.0


def test_where_nothing_is_proved_of_counts_nothing_is_claimed() -> None:
    few: list[tuple[Event, int]] = [(counts(8), 1)]
    assert accountant.epsilon(few, DELTA) == math.inf
    assert accountant.delta(few, 10.0) == 1.0
    sampled: tuple[Event, int] = (PoissonRelease(0.1, 0.5), 3)
    assert accountant.epsilon([*few, sampled], DELTA) == math.inf
    assert accountant.delta([*few, sampled], 10.0) == 1.0
    assert accountant.epsilon([(counts(8), 0)], DELTA) == 0.0, "nor charged where nothing was released"


def test_mixing_is_relied_on_up_to_an_epsilon_of_60_and_one_s_own_coins_beyond() -> None:
    many: list[tuple[Event, int]] = [(BinomialRelease(4.0, 20_000, 19_999, 3, 1e-12), 50_000)]
    assert accountant.epsilon(many, DELTA) == math.inf
    assert accountant.delta(many, 60.5) == 1.0
    assert 60 < accountant.epsilon(seen_by("anyone", many), DELTA) < math.inf


@settings(max_examples=50, deadline=None)
@given(own=st.integers(100, 10_000), times=st.integers(2, 10), rounds=st.integers(1, 20))
def test_as_many_coins_of_others_as_of_one_s_own_make_the_cost_smaller(own: int, times: int, rounds: int) -> None:
    events: list[tuple[Event, int]] = [(counts(times * own, own), rounds), (GaussianRelease(0.1), 1)]
    shuffled, alone = accountant.epsilon(events, DELTA), accountant.epsilon(seen_by("anyone", events), DELTA)
    assert shuffled < alone or alone == math.inf
