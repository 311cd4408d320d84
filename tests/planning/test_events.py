"""Events are strict plain data, and a round's event covers the silo's own rounding."""

import json
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.errors import AccountingError
from ringfence.planning import accountant
from ringfence.planning.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    as_seen_alone,
    event_from_dict,
    per_round_event,
    run_events,
    shift_of,
)
from ringfence.protocol.plan import Sampling
from tests.support import shift_in

Floats = NDArray[np.float64]

shifts = st.floats(0, exclude_min=True, allow_infinity=False)
sizes = st.integers(1, 10**12)
events = st.one_of(
    st.builds(GaussianRelease, shifts),
    st.builds(lambda a, b, shift: FixedSizeRelease(max(a, b), min(a, b), shift), sizes, sizes, shifts),
    st.builds(PoissonRelease, st.floats(0, 1, exclude_min=True), shifts),
    st.builds(DisjointBatchRelease, st.text(min_size=1), st.integers(0, 10**12), shifts),
    st.builds(
        lambda reach, own, others, dimension, slack, partition, part: BinomialRelease(
            reach, own + others, own, dimension, slack, partition, part
        ),
        shifts,
        sizes,
        st.integers(0, 10**12),
        sizes,
        st.floats(0, 1, exclude_min=True, exclude_max=True),
        st.text(),
        st.integers(0, 10**12),
    ),
)
COUNTS = {
    "kind": "binomial", "reach": 4.0, "trials": 100, "own": 40, "dimension": 3, "slack": 1e-9, "partition": "",
    "part": 0,
}  # fmt: skip
ROUND = {"records": 100, "batch": 10, "clip": 2.0, "sigma": 0.5}


@given(events)
def test_an_event_survives_a_ledger_row(event: Event) -> None:
    again = event_from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert hash(again) == hash(event)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"shift": 1.0},
        {"kind": "laplace", "shift": 1.0},
        {"kind": ["gaussian"], "shift": 1.0},
        {"kind": "gaussian"},
        {"kind": "gaussian", "shift": 1.0, "discount": 0.5},
        {"kind": "gaussian", "shift": math.nan},
        {"kind": "gaussian", "shift": math.inf},
        {"kind": "gaussian", "shift": -1.0},
        {"kind": "gaussian", "shift": 0.0},
        {"kind": "gaussian", "shift": "1.0"},
        {"kind": "gaussian", "shift": True},
        {"kind": "gaussian", "shift": 10**400},
        {"kind": "fixed-size", "records": 10, "batch": 11, "shift": 1.0},
        {"kind": "fixed-size", "records": 10, "batch": 0, "shift": 1.0},
        {"kind": "fixed-size", "records": 10.5, "batch": 1, "shift": 1.0},
        {"kind": "poisson", "rate": 1.5, "shift": 1.0},
        {"kind": "poisson", "rate": 0.0, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "", "part": 0, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": 7, "part": 0, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "part": -1, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "part": 0.0, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "part": True, "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "part": "0", "shift": 1.0},
        {"kind": "disjoint-batch", "partition": "pass", "part": 0, "shift": 0.0},
        {"kind": "binomial"},
        {name: value for name, value in COUNTS.items() if name != "part"},
        COUNTS | {"reach": 0.0},
        COUNTS | {"reach": math.inf},
        COUNTS | {"trials": 0},
        COUNTS | {"trials": 30},
        COUNTS | {"trials": 100.0},
        COUNTS | {"own": 0},
        COUNTS | {"own": 101},
        COUNTS | {"own": True},
        COUNTS | {"dimension": 0},
        COUNTS | {"slack": 0.0},
        COUNTS | {"slack": 1.0},
        COUNTS | {"slack": 1},
        COUNTS | {"partition": None},
        COUNTS | {"partition": 7},
        COUNTS | {"part": -1},
        COUNTS | {"part": 0.5},
        COUNTS | {"shift": 1.0},
        {1: 2, "kind": "gaussian"},
        "gaussian",
        None,
    ],
)
def test_a_damaged_row_is_refused(data: object) -> None:
    with pytest.raises(AccountingError):
        event_from_dict(data)


def test_counts_seen_alone_have_the_silo_s_own_coins_and_everything_else_looks_the_same_to_all() -> None:
    counts = event_from_dict(COUNTS)
    assert isinstance(counts, BinomialRelease)
    assert counts.is_mixed
    others: list[tuple[Event, int]] = [(GaussianRelease(1.0), 2), (DisjointBatchRelease("pass", 1, 0.5), 1)]
    [(alone, count), *unchanged] = as_seen_alone([(counts, 5), *others])
    assert (alone, count) == (BinomialRelease(4.0, 40, 40, 3, 1e-9), 5)
    assert isinstance(alone, BinomialRelease)
    assert not alone.is_mixed
    assert unchanged == others
    assert as_seen_alone([(alone, 1)]) == [(alone, 1)]


def test_every_kind_of_event_has_its_own_name() -> None:
    assert len({event.kind for event in get_args(Event)}) == len(get_args(Event))


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
    release = per_round_event(sampling, **ROUND, partition="pass")  # type: ignore[arg-type]
    assert isinstance(release, event)
    assert shift_in(release) == pytest.approx(2 * 2.0 / (10 * 0.5), rel=1e-8)


def test_every_sampling_that_a_plan_may_name_has_its_own_event() -> None:
    kinds = {
        name: type(per_round_event(name, **{**ROUND, "batch": 100 if name == "full" else 10}, partition="p"))  # type: ignore[arg-type]
        for name in get_args(Sampling)
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
    release = per_round_event(sampling, **ROUND, partition="run", part=4)  # type: ignore[arg-type]
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
    expected = 2 / batch * (1 + (n + d) * n * 2.0**-51) + widths * math.sqrt(d) * 2.0**-30
    assert shift_in(event) == pytest.approx(expected, rel=1e-15)


def clipped_sum(terms: Floats) -> Floats:
    """Add up the terms one after the other, in double precision: the worst order there is."""
    total = np.zeros(terms.shape[1])
    for term in terms:
        total += term
    return total


def test_the_shift_covers_the_errors_of_a_sum_in_double_precision() -> None:
    generator, (n, d) = np.random.default_rng(5), (3000, 3)
    terms = generator.normal(size=(n, d)) + 2.0  # all point the same way, so that errors grow with the sum
    terms /= np.linalg.norm(terms, axis=1, keepdims=True) * n
    replaced = terms.copy()
    replaced[7] *= -1
    exact = [[sum(map(Fraction, column)) for column in data.T] for data in (terms, replaced)]
    computed = [clipped_sum(data) for data in (terms, replaced)]
    errors = [
        max(abs(Fraction(x) - y) for x, y in zip(*pair, strict=True)) for pair in zip(computed, exact, strict=True)
    ]
    bound = shift_of(sensitivity=2 / n, sigma=1.0, summed=n, dimension=d) - 2 / n - math.sqrt(d) * 2.0**-30
    assert 0 < math.sqrt(d) * sum(errors) <= bound


@pytest.mark.parametrize("rows", [2, 25, 100])
def test_noise_on_several_rows_covers_one_rounding_to_the_grid_in_each(rows: int) -> None:
    one = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9)
    several = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9, rows=rows)
    assert several - one == pytest.approx((math.sqrt(rows) - 1) * 3 * 2.0**-30, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sensitivity": 0.0}, "sensitivity must be"),
        ({"sensitivity": math.nan}, "sensitivity must be"),
        ({"sigma": 0.0}, "sigma must be"),
        ({"summed": 0}, "summed must be"),
        ({"dimension": 0}, "dimension must be"),
        ({"rows": 0}, "rows must be"),
        ({"rows": 11}, "lower the rows"),
        ({"sensitivity": 1e200, "sigma": 1e-200}, "too small to account for"),
    ],
)
def test_a_shift_of_bad_numbers_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    arguments: dict[str, object] = {"sensitivity": 1.0, "sigma": 1.0, "summed": 10, **change}
    with pytest.raises(AccountingError, match=reason):
        shift_of(**arguments)  # type: ignore[arg-type]


def test_a_run_holds_one_event_per_round() -> None:
    event = per_round_event("fixed", **ROUND)  # type: ignore[arg-type]
    assert run_events("fixed", 7, **ROUND) == [(event, 7)]  # type: ignore[arg-type]


def test_one_part_stands_for_a_pass_however_many_rounds_it_has() -> None:
    parts = [per_round_event("one-pass", **ROUND, partition="pass", part=part) for part in range(10)]  # type: ignore[arg-type]
    run = run_events("one-pass", 10, **ROUND, partition="pass")  # type: ignore[arg-type]
    assert run == [(parts[0], 1)]
    assert accountant.epsilon(run, 1e-6) == accountant.epsilon([(part, 1) for part in parts], 1e-6)


def test_a_phased_run_must_be_described_phase_by_phase() -> None:
    with pytest.raises(AccountingError, match="each with its own event"):
        run_events("phased", 3, **ROUND, partition="run")  # type: ignore[arg-type]


def test_one_pass_has_no_more_batches_than_the_records_allow() -> None:
    with pytest.raises(AccountingError, match="One pass has no 11 disjoint batches of 10"):
        run_events("one-pass", 11, **ROUND, partition="pass")  # type: ignore[arg-type]


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
    arguments: dict[str, object] = {"sampling": "fixed", "rounds": 3, **ROUND, **change}
    with pytest.raises(AccountingError, match=reason):
        run_events(**arguments)  # type: ignore[arg-type]
