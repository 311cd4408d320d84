"""Events are strict plain data, each observer sees its own side of them, and a shift covers the silo's rounding."""

import json
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringfence.accounting.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    FixedSizeRelease,
    GaussianRelease,
    PoissonRelease,
    event_from_dict,
    seen_by,
)
from ringfence.accounting.shifts import rounding_of, shift_of
from ringfence.errors import AccountingError
from ringfence.protocol.guarantee import Observer

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
        *({name: value for name, value in COUNTS.items() if name != missing} for missing in list(COUNTS)[:6]),
        COUNTS | {"format": 2},
        {"kind": "gaussian", "shift": 1.0, "format": 2},
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


def test_an_event_of_a_later_format_is_refused_with_what_to_do() -> None:
    assert event_from_dict({"kind": "gaussian", "shift": 1.0, "format": 1}) == GaussianRelease(1.0)
    with pytest.raises(AccountingError, match="has format 2, and this version of Ringfence reads formats up to 1"):
        event_from_dict({"kind": "gaussian", "shift": 1.0, "scale": 3, "format": 2})


def test_a_field_that_was_added_later_may_be_missing_and_then_means_what_was_true_before() -> None:
    early = {name: value for name, value in COUNTS.items() if name not in ("partition", "part")}
    assert event_from_dict(early) == event_from_dict(COUNTS | {"partition": "", "part": 0})


# Who sees what


def test_anyone_may_see_the_silo_s_own_coins_and_the_server_sees_those_of_all() -> None:
    counts = event_from_dict(COUNTS)
    assert isinstance(counts, BinomialRelease)
    assert counts.is_mixed
    [(alone, count)] = seen_by("anyone", [(counts, 5)])
    assert (alone, count) == (BinomialRelease(4.0, 40, 40, 3, 1e-9), 5)
    assert isinstance(alone, BinomialRelease)
    assert not alone.is_mixed
    assert seen_by("anyone", [(alone, 1)]) == [(alone, 1)]
    assert seen_by("server", [(counts, 5)]) == [(counts, 5)]


@given(events, st.integers(0, 10))
def test_all_but_counts_look_the_same_to_every_observer(event: Event, count: int) -> None:
    for observer in get_args(Observer):
        [(seen, times)] = seen_by(observer, [(event, count)])
        assert times == count
        if not isinstance(event, BinomialRelease):
            assert seen is event


def test_every_kind_of_event_has_its_own_name() -> None:
    assert len({event.kind for event in get_args(Event)}) == len(get_args(Event))


def clipped_sum(terms: Floats) -> Floats:
    """Add up the terms one after the other, in double precision: the worst order there is."""
    total = np.zeros(terms.shape[1])
    for term in terms:
        total += term
    return total


def test_what_earlier_plans_charge_covers_the_errors_of_a_sum_in_double_precision() -> None:
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
    bound = 2 / n * (rounding_of(n, d) - 1)
    assert 0 < math.sqrt(d) * sum(errors) <= bound


@pytest.mark.parametrize("rows", [2, 25, 100])
def test_noise_on_several_rows_covers_one_rounding_to_the_grid_in_each(rows: int) -> None:
    one = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9)
    several = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9, rows=rows)
    assert several - one == pytest.approx((math.sqrt(rows) - 1) * 3 * 2.0**-30, rel=1e-2)


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
