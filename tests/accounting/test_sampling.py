"""Each sampling rule has its event: how far a round moves, rounding included, and how often a record is in it."""

import math
from typing import Any, get_args

import pytest

from ringfence.accounting import accountant
from ringfence.accounting.events import (
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
)
from ringfence.accounting.sampling import event, per_round_event, run_events
from ringfence.accounting.shifts import exact_rounding
from ringfence.errors import AccountingError
from ringfence.protocol.sampling import (
    FixedSize,
    Full,
    OnePass,
    Part,
    Phased,
    Poisson,
    Sampling,
    SamplingName,
)
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


@pytest.mark.parametrize(
    ("sampling", "event"),
    [
        ("fixed", FixedSizeRelease),
        ("poisson", PoissonRelease),
        ("one-pass", DisjointBatchRelease),
        ("phased", DisjointBatchRelease),
    ],
)
def test_a_round_moves_by_two_clips_over_the_batch_in_units_of_the_noise(sampling: str, event: type[Event]) -> None:
    release = per_round_event(sampling, **ROUND, partition="pass")
    assert isinstance(release, event)
    assert shift_in(release) == pytest.approx(2 * 2.0 / (10 * 0.5), rel=1e-8)


def test_every_sampling_that_a_plan_may_name_has_its_own_event() -> None:
    kinds = {
        name: type(per_round_event(name, **{**ROUND, "batch": 100 if name == "full" else 10}, partition="p"))
        for name in get_args(SamplingName)
    }
    assert kinds == {
        "full": GaussianRelease,
        "fixed": FixedSizeRelease,
        "poisson": PoissonRelease,
        "one-pass": DisjointBatchRelease,
        "phased": DisjointBatchRelease,
    }


@pytest.mark.parametrize("sampling", ["one-pass", "phased"])
def test_a_round_on_a_part_says_which_part(sampling: str) -> None:
    release = per_round_event(sampling, **ROUND, partition="run", part=4)
    assert isinstance(release, DisjointBatchRelease)
    assert (release.partition, release.part) == ("run", 4)


def test_a_full_batch_round_is_a_gaussian_release() -> None:
    for sampling in ("full", "fixed", "poisson"):
        release = per_round_event(sampling, records=100, batch=100, clip=2.0, sigma=0.5)
        assert isinstance(release, GaussianRelease)
        assert shift_in(release) == pytest.approx(2 * 2.0 / (100 * 0.5), rel=1e-6)


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


def test_one_pass_has_no_more_batches_than_the_records_allow() -> None:
    with pytest.raises(AccountingError, match="One pass of 11 disjoint batches of 10"):
        run_events("one-pass", 11, **ROUND, partition="pass")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sampling": "sometimes"}, "Unknown sampling"),
        ({"records": 0}, "records must be"),
        ({"batch": 0}, "batch must be"),
        ({"batch": 101}, "larger than the 100 records"),
        ({"batch": 10.0}, "batch must be"),
        ({"sampling": "full"}, "make them equal"),
        ({"clip": 0.0}, "clip must be"),
        ({"clip": math.nan}, "clip must be"),
        ({"sigma": 0.0}, "sigma must be"),
        ({"sigma": -1.0}, "sigma must be"),
        ({"sigma": math.inf}, "sigma must be"),
        ({"sigma": 1e-320}, "too small to account for"),
        ({"dimension": 0}, "dimension must be"),
        ({"sampling": "one-pass"}, "partition must name"),
        ({"sampling": "Poisson"}, "Unknown sampling"),
        ({"rounds": 0}, "rounds must be"),
        ({"rounds": 2.0}, "rounds must be"),
    ],
)
def test_bad_numbers_are_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    arguments: dict[str, Any] = {"sampling": "fixed", "rounds": 3, **ROUND, **change}
    with pytest.raises(AccountingError, match=reason):
        run_events(**arguments)
