"""Each sampling rule has its event: how far a round moves, rounding included, and how often a record is in it."""

import math
from typing import Any, get_args

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.events import DisjointBatchRelease, Event, FixedSizeRelease, GaussianRelease, PoissonRelease
from ringfence.accounting.runs import per_round_event, run_events
from ringfence.accounting.sampling import event, exact_rounding
from ringfence.errors import AccountingError
from ringfence.protocol import FixedSize, Full, OnePass, Phased, Poisson, Sampling, SamplingName
from ringfence.protocol.plan.sampling import Part
from tests.support import shift_in

ROUND: dict[str, Any] = {"records": 100, "batch": 10, "clip": 2.0, "sigma": 0.5}


# One round of a rule


def release_of(rule: Sampling, *, batch: int = 10, part: Part | None = None) -> Event:
    """Return the event of a round of 100 records that moves by 0.3 in all, and by 0.2 where a record is left out."""
    moves = {1.0: 0.3, 0.5: 0.2}
    return event(rule, records=100, batch=batch, partition="plan", part=part, shift=moves.__getitem__)


def test_every_rule_has_its_event() -> None:
    assert release_of(Full(), batch=100) == GaussianRelease(0.3)
    assert release_of(FixedSize()) == FixedSizeRelease(100, 10, 0.3)
    assert release_of(OnePass(), part=Part(4, 40)) == DisjointBatchRelease("plan", 4, 0.3)
    assert release_of(Phased(phase=2), part=Part(2, 75)) == DisjointBatchRelease("plan", 2, 0.3)


def test_a_record_that_comes_by_chance_moves_the_sum_from_out_to_in_on_either_side() -> None:
    """The event counts half of its shift for each neighbour: twice what leaving the record out moves."""
    assert release_of(Poisson()) == PoissonRelease(0.1, 0.4)
    assert release_of(Poisson(), batch=100) == GaussianRelease(0.4)


def test_a_secret_draw_of_all_records_is_no_draw() -> None:
    assert release_of(FixedSize(), batch=100) == GaussianRelease(0.3)


@pytest.mark.parametrize("rule", [OnePass(), Phased()], ids=str)
def test_a_rule_of_parts_without_a_part_has_no_cost_that_is_known(rule: Sampling) -> None:
    with pytest.raises(AccountingError, match="This version cannot account"):
        release_of(rule)


# Rounds and runs by a rule's name


EVENTS: dict[str, type[Event]] = {
    "full": GaussianRelease,
    "fixed": FixedSizeRelease,
    "poisson": PoissonRelease,
    "one-pass": DisjointBatchRelease,
    "phased": DisjointBatchRelease,
}


@pytest.mark.parametrize("sampling", get_args(SamplingName))
def test_a_round_of_every_sampling_has_its_event_and_a_shift_of_two_clips_over_batch_and_noise(sampling: str) -> None:
    batch = 100 if sampling == "full" else 10
    release = per_round_event(sampling, **{**ROUND, "batch": batch}, partition="pass")
    assert isinstance(release, EVENTS[sampling])
    assert shift_in(release) == pytest.approx(2 * 2.0 / (batch * 0.5), rel=1e-6)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_the_shift_covers_grid_rounding_and_summation(sampling: str) -> None:
    n, d = 4000, 250
    batch = n if sampling == "full" else 40
    event = per_round_event(sampling, records=n, batch=batch, clip=1.0, sigma=1.0, dimension=d)
    widths = 2 if sampling == "poisson" else 1  # each neighbour's own half of the shift covers two roundings
    expected = 2 / batch * exact_rounding(n) + widths * math.sqrt(d) * 2.0**-30
    assert shift_in(event) == pytest.approx(expected, rel=1e-15)


def test_a_run_holds_one_event_per_round() -> None:
    event = per_round_event("fixed", **ROUND)
    assert run_events("fixed", 7, **ROUND) == [(event, 7)]


def test_one_part_stands_for_a_pass_however_many_rounds_it_has() -> None:
    parts = [per_round_event("one-pass", **ROUND, partition="pass", part=part) for part in range(10)]
    run = run_events("one-pass", 10, **ROUND, partition="pass")
    assert run == [(parts[0], 1)]
    assert accountant.epsilon(run, 1e-6) == accountant.epsilon([(part, 1) for part in parts], 1e-6)


def test_a_phased_run_must_be_described_phase_by_phase() -> None:
    with pytest.raises(AccountingError, match="each with its own event"):
        run_events("phased", 3, **ROUND, partition="run")


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("sampling", ["sometimes", "Poisson"], "Unknown sampling"),
        ("sampling", ["full"], "make them equal"),
        ("sampling", ["one-pass"], "partition must name"),
        ("records", [0], "records must be"),
        ("batch", [0, 10.0], "batch must be"),
        ("batch", [101], "larger than the 100 records"),
        ("clip", [0.0, -1.0, math.nan], "clip must be"),
        ("sigma", [0.0, -1.0, math.inf], "sigma must be"),
        ("sigma", [1e-320], "too small to account for"),
        ("dimension", [0], "dimension must be"),
        ("rounds", [0, 2.0], "rounds must be"),
    ],
)
def test_bad_numbers_are_refused_with_the_reason(name: str, values: list[object], reason: str) -> None:
    for value in values:
        with pytest.raises(AccountingError, match=reason):
            run_events(**{"sampling": "fixed", "rounds": 3, **ROUND, name: value})
