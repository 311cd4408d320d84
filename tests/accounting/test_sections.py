"""Releases of sections cost what the record in the dearest place pays, whoever chooses them, and never less."""

import itertools
import math

import pytest

from ringfence.accounting import accountant, filters
from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    Release,
    SectionRelease,
    event_from_dict,
    in_version,
    of_copies,
    of_group,
)
from ringfence.accounting.filters import Commitment
from ringfence.errors import AccountingError
from ringfence.protocol import Guarantee

DELTA = 1e-5
RELEASES: list[Release] = [
    GaussianRelease(0.3),
    PoissonRelease(0.1, 1.0),
    FixedSizeRelease(100, 10, 1.0),
    DisjointBatchRelease("pass", 0, 0.4),
    BinomialRelease(20.0, 100_000, 40_000, 5, 1e-8),
]


def trained(release: Release, division: str = "0.2") -> SectionRelease:
    return SectionRelease(division, "training", release)


def test_copies_pay_for_the_sections_that_they_lie_in_and_for_all_that_is_not_divided() -> None:
    events: list[tuple[Event, int]] = [
        (trained(GaussianRelease(0.3)), 2),
        (held_out(GaussianRelease(0.5)), 1),
        (GaussianRelease(0.2), 1),
    ]
    assert of_copies({"training": 3, "held-out": 1}, events) == [
        (GaussianRelease(0.3 * 3), 2),
        (GaussianRelease(0.5), 1),
        (GaussianRelease(0.2 * 4), 1),
    ]
    assert of_copies({"held-out": 2}, events) == [(GaussianRelease(1.0), 1), (GaussianRelease(0.4), 1)]
    assert of_copies({None: 1}, events) == events, "of a row that may lie in either, the dearer counts"
    assert of_copies({None: 2}, events) == of_group(2, events)


def held_out(release: Release, division: str = "0.2") -> SectionRelease:
    return SectionRelease(division, "held-out", release)


@pytest.mark.parametrize(("first", "second"), [*itertools.product(RELEASES, RELEASES)])
def test_training_and_evaluation_cost_what_the_dearer_of_them_costs(first: Release, second: Release) -> None:
    both = [(trained(first), 3), (held_out(second), 2)]
    costs = [accountant.epsilon([(first, 3)], DELTA), accountant.epsilon([(second, 2)], DELTA)]
    assert accountant.epsilon(both, DELTA) == max(costs)
    deltas = [accountant.delta([(first, 3)], 1.0), accountant.delta([(second, 2)], 1.0)]
    assert accountant.delta(both, 1.0) == max(deltas)


def test_what_is_asked_of_all_records_is_paid_for_in_every_section() -> None:
    everybody, dear, cheap = GaussianRelease(0.5), GaussianRelease(0.4), GaussianRelease(0.1)
    events: list[tuple[Event, int]] = [(everybody, 1), (trained(cheap), 1), (held_out(dear), 1)]
    assert accountant.epsilon(events, DELTA) == accountant.epsilon([(everybody, 1), (dear, 1)], DELTA)


def test_sections_of_two_divisions_overlap_and_add_up() -> None:
    """A record that trained under one share may be held out under another."""
    events = [(trained(GaussianRelease(0.5), "0.2"), 1), (held_out(GaussianRelease(0.4), "0.5"), 1)]
    alone = accountant.epsilon([(GaussianRelease(math.hypot(0.5, 0.4)), 1)], DELTA)
    assert accountant.epsilon(events, DELTA) == pytest.approx(alone, rel=1e-9)


def test_records_that_changed_places_with_their_data_pay_for_both_sections() -> None:
    before, after = (
        in_version(1, [(trained(GaussianRelease(0.5)), 1)]),
        in_version(2, [(held_out(GaussianRelease(0.4)), 1)]),
    )
    alone = accountant.epsilon([(GaussianRelease(math.hypot(0.5, 0.4)), 1)], DELTA)
    assert accountant.epsilon([*before, *after], DELTA) == pytest.approx(alone, rel=1e-9)
    assert accountant.epsilon([*before, *in_version(1, [(held_out(GaussianRelease(0.4)), 1)])], DELTA) < alone


def test_any_number_of_divisions_is_accounted_for_and_never_below_the_dearest_place() -> None:
    shifts = [(0.1 + 0.01 * number, 0.2) for number in range(12)]
    events = [
        (made(GaussianRelease(shift), f"version {number}"), 1)
        for number, own in enumerate(shifts)
        for made, shift in zip((trained, held_out), own, strict=True)
    ]
    dearest = math.hypot(*(max(own) for own in shifts))
    everything = math.hypot(*(shift for own in shifts for shift in own))
    found = accountant.epsilon(events, DELTA)
    assert accountant.epsilon([(GaussianRelease(dearest), 1)], DELTA) <= found
    assert found <= accountant.epsilon([(GaussianRelease(everything), 1)], DELTA)


def test_rows_of_one_person_may_lie_in_every_section() -> None:
    events = [(trained(GaussianRelease(0.3)), 1), (held_out(GaussianRelease(0.4)), 1)]
    assert accountant.epsilon(of_group(3, events), DELTA) == pytest.approx(
        accountant.epsilon([(GaussianRelease(1.5), 1)], DELTA), rel=1e-9
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_ledger_keeps_which_section_was_asked(release: Release) -> None:
    event = held_out(release)
    assert event_from_dict(event.to_dict()) == event
    with pytest.raises(AccountingError, match="section"):
        SectionRelease("", "held-out", release)
    with pytest.raises(AccountingError, match="cannot be the release"):
        event_from_dict({**event.to_dict(), "release": event.to_dict()})


def test_a_budget_that_training_has_used_up_still_admits_evaluation_and_no_training() -> None:
    limit = Guarantee(epsilon=1.0, delta=DELTA)
    full = GaussianRelease(0.26)
    assert accountant.epsilon([(full, 1)], DELTA) > 0.9
    history = [Commitment.of([(trained(full), 1)], [(trained(full), 1)], founding=True)]
    assert filters.used([*history, Commitment.of([(held_out(full), 1)])], limit) <= 1.0
    assert filters.used([*history, Commitment.of([(trained(full), 1)])], limit) > 1.0
    assert filters.used([*history, Commitment.of([(full, 1)])], limit) > 1.0


def test_every_place_has_a_filter_of_its_own() -> None:
    """A sampled plan takes its slack from its own section's reserve, and an odometer reads the dearest place."""
    limit = Guarantee(epsilon=2.0, delta=DELTA)
    training = [
        Commitment.of([(PoissonRelease(0.1, 1.0), 5)], founding=True),
        Commitment.of([(PoissonRelease(0.1, 1.0), 5)]),
    ]
    evaluation = Commitment.of([(GaussianRelease(0.1), 1)])
    wrapped = [
        *(Commitment.of([(trained(e), n) for e, n in each.planned], founding=each.founding) for each in training),  # type: ignore[arg-type]
        Commitment.of([(held_out(GaussianRelease(0.1)), 1)]),
    ]
    assert filters.used(wrapped, limit) == max(filters.used(training, limit), filters.used([evaluation], limit))
    reading = filters.odometer(wrapped, DELTA)
    assert reading.epsilon == max(
        filters.odometer(training, DELTA).epsilon, filters.odometer([evaluation], DELTA).epsilon
    )
    assert reading.delta == 2 * DELTA
