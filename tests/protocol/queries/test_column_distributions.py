"""The column distributions: no record moves them by more than √(2K)/n, between any ends that the gate accepts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.errors import PlanError
from ringfence.protocol import ColumnDistributions, FloatArray, Plan
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from tests.protocol.plan_document import COUNTED, CURVATURE, numeric, plan_of

QUERY = ColumnDistributions(bins=8)
PLAN = plan_of(
    COUNTED
    | {
        "data.columns.age": numeric(0.0, 100.0, 40.0, 20.0, indicator=True),
        "data.columns.dose": numeric(-1.0, 3.0),
        "data.maps": [{"type": "spline", "columns": ["age", "dose"], "knots": 5, "degree": 1, "surveyed": True}],
        "stages": [CURVATURE | {"query": {"name": "column-distributions", "bins": 8}}],
    }
)
BOUNDS = np.array([0.0, 100.0, -1.0, 3.0])


def ends(plan: Plan, random: np.random.Generator) -> FloatArray:
    drawn = np.sort(random.random((2, 2)), axis=1)
    drawn[:, 1] += 1e-9
    low, high = BOUNDS.reshape(2, 2).T[..., None]
    return np.asarray(np.clip(low + (high - low) * drawn, low, high).reshape(-1))


def rows(plan: Plan, random: np.random.Generator) -> list[Any]:
    """Draw ages and doses, on bounds and edges too, and whether the age is empty."""
    ages, doses = random.choice([0.0, 12.5, 50.0, 99.9, 100.0], 40), random.choice([-1.0, 0.0, 0.1, 3.0], 40)
    return list(zip(ages, doses, random.random(40) < 0.2, strict=True))


def build(plan: Plan, rows: Sequence[Any], of_row: NDArray[np.int64] | None) -> Records:
    ages, doses, empty = (np.array(column) for column in zip(*rows, strict=True))
    cells = {
        "age": Reading((ages - 40.0) / 20.0, empty.astype(bool)),
        "dose": Reading((doses - 1.0) / 2.0, None),
    }
    return Records(plan.data, np.ones((len(rows), plan.data.width)), np.zeros(len(rows)), None, of_row, cells)


def counted(asked: FloatArray, *given: tuple[float, float, bool]) -> FloatArray:
    answer = compute(QUERY, PLAN, asked, build(PLAN, given, None), np.ones(len(given)), len(given))
    return len(given) * answer.reshape(2, 8)


def test_a_record_is_in_one_bin_of_each_column_and_an_empty_cell_in_none() -> None:
    found = counted(BOUNDS, (0.0, -1.0, False), (100.0, 3.0, False), (50.0, 1.0, False), (50.0, 2.9, True))
    assert found[0].tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    assert found[1].tolist() == [1, 0, 0, 0, 1, 0, 0, 2]


def test_numbers_beyond_the_ends_are_in_the_outermost_bins() -> None:
    found = counted(np.array([40.0, 48.0, 0.0, 1.0]), (0.0, -1.0, False), (44.0, 0.5, False), (100.0, 3.0, False))
    assert found[0].tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    assert found[1].tolist() == [1, 0, 0, 0, 1, 0, 0, 1]


def test_two_records_in_different_bins_of_every_column_move_it_as_far_as_is_charged() -> None:
    moved = np.linalg.norm(counted(BOUNDS, (0.0, -1.0, False)) - counted(BOUNDS, (100.0, 3.0, False)))
    assert moved == math.sqrt(4.0) == QUERY.diameter(PLAN)


@pytest.mark.parametrize(
    "bad",
    [
        [-1.0, 100.0, -1.0, 3.0],
        [0.0, 100.5, -1.0, 3.0],
        [50.0, 50.0, -1.0, 3.0],
        [60.0, 50.0, -1.0, 3.0],
        [math.nan, 100.0, -1.0, 3.0],
        [0.0, math.inf, -1.0, 3.0],
        [50.0, 50.0 + 1e-12, -1.0, 3.0],
    ],
)
def test_ends_outside_the_bounds_or_too_close_are_refused(bad: list[float]) -> None:
    assert QUERY.argument_length(PLAN) == len(bad)
    assert QUERY.accepts(PLAN, BOUNDS)
    assert not QUERY.accepts(PLAN, np.array(bad))


def test_it_is_not_asked_where_no_curve_needs_knots() -> None:
    with pytest.raises(PlanError, match="surveyed knots, and the schema has none"):
        plan_of(COUNTED | {"stages": [CURVATURE | {"query": {"name": "column-distributions", "bins": 8}}]})
