"""Events are strict plain data, each observer sees its own side of them, and a shift covers the silo's rounding."""

import json
import math
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
from ringfence.accounting.sampling import shift_of
from ringfence.errors import AccountingError
from ringfence.protocol import Observer

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
COUNTS: dict[str, object] = {
    "kind": "binomial", "reach": 4.0, "trials": 100, "own": 40, "dimension": 3, "slack": 1e-9, "partition": "",
    "part": 0,
}  # fmt: skip


@given(events)
def test_an_event_survives_a_ledger_row(event: Event) -> None:
    again = event_from_dict(json.loads(json.dumps(event.to_dict())))
    assert again == event
    assert hash(again) == hash(event)


GAUSSIAN = {"kind": "gaussian", "shift": 1.0}
FIXED = {"kind": "fixed-size", "records": 10, "batch": 1, "shift": 1.0}
CHANCE = {"kind": "poisson", "rate": 0.5, "shift": 1.0}
PART = {"kind": "disjoint-batch", "partition": "pass", "part": 0, "shift": 1.0}
DAMAGE: list[tuple[dict[str, object], str, list[object]]] = [
    (GAUSSIAN, "kind", ["laplace", ["gaussian"]]),
    (GAUSSIAN, "shift", [math.nan, math.inf, -1.0, 0.0, "1.0", True, 10**400]),
    (GAUSSIAN, "discount", [0.5]),
    (GAUSSIAN, "format", [2]),
    (FIXED, "batch", [11, 0]),
    (FIXED, "records", [10.5]),
    (CHANCE, "rate", [1.5, 0.0]),
    (PART, "partition", ["", 7]),
    (PART, "part", [-1, 0.0, True, "0"]),
    (PART, "shift", [0.0]),
    (COUNTS, "format", [2]),
    (COUNTS, "reach", [0.0, math.inf]),
    (COUNTS, "trials", [0, 30, 100.0]),
    (COUNTS, "own", [0, 101, True]),
    (COUNTS, "dimension", [0]),
    (COUNTS, "slack", [0.0, 1.0, 1]),
    (COUNTS, "partition", [None, 7]),
    (COUNTS, "part", [-1, 0.5]),
    (COUNTS, "shift", [1.0]),
]
NEEDED = [(GAUSSIAN, "kind"), (GAUSSIAN, "shift"), (PART, "part"), *((COUNTS, name) for name in list(COUNTS)[:6])]


@pytest.mark.parametrize(
    "data",
    [
        *(event | {name: value} for event, name, values in DAMAGE for value in values),
        *({name: value for name, value in event.items() if name != missing} for event, missing in NEEDED),
        *({}, {"kind": "binomial"}, {1: 2, "kind": "gaussian"}, "gaussian", None),
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


@pytest.mark.parametrize("rows", [2, 25, 100])
def test_noise_on_several_rows_covers_one_rounding_to_the_grid_in_each(rows: int) -> None:
    one = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9)
    several = shift_of(sensitivity=0.5, sigma=2.0, summed=1000, dimension=9, rows=rows)
    assert several - one == pytest.approx((math.sqrt(rows) - 1) * 3 * 2.0**-30, rel=1e-2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sensitivity": math.nan}, "sensitivity must be"),
        ({"summed": 0}, "summed must be"),
        ({"rows": 0}, "rows must be"),
        ({"rows": 11}, "lower the rows"),
    ],
)
def test_a_shift_of_bad_numbers_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    arguments: dict[str, object] = {"sensitivity": 1.0, "sigma": 1.0, "summed": 10, **change}
    with pytest.raises(AccountingError, match=reason):
        shift_of(**arguments)  # type: ignore[arg-type]
