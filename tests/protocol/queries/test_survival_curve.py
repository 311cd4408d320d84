"""The survival curve: no record moves the shares by more than √2/n, and some do."""

import math

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.protocol import Plan, SurvivalCurve
from ringfence.protocol.schema.columns.base import Reading
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records
from tests.protocol.plan_document import CURVED, plan_of

PLAN = plan_of(CURVED)
QUERY = PLAN.stages[0].query


def answer(times: list[float], events: list[int], plan: Plan = PLAN) -> np.ndarray:
    query = plan.stages[0].query
    assert isinstance(query, SurvivalCurve)
    column = plan.data.used["age"]
    offset, unit = column.scaling[0]
    cells = {"age": Reading((np.array(times) - offset) / unit, None), "ill": Reading(np.array(events), None)}
    records = Records(PLAN.data, np.ones((len(times), PLAN.data.width)), np.zeros(len(times)), cells=cells)
    return compute(query, plan, np.zeros(0), records, np.ones(len(times)), len(times))


def test_shares_are_counted_by_the_part_in_which_a_time_ends_cuts_included() -> None:
    shares = answer([5.0, 20.0, 20.5, 50.0, 90.0], [1, 0, 1, 1, 0])
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.0, 0.4, 0.2, 0.0])


def test_a_record_that_reaches_the_longest_time_had_no_event_by_then() -> None:
    longest = PLAN.data.used["age"].limits[0][1]
    at_the_end = plan_of(CURVED, {"stages.0.query.cuts": [20.0, longest]})
    shares = answer([5.0, 30.0, longest, longest], [1, 1, 1, 0], at_the_end)
    np.testing.assert_allclose(shares, [0.0, 0.25, 0.0, 0.25, 0.5, 0.0])


def test_replacing_a_record_moves_the_shares_by_no_more_than_claimed_and_some_move_them_as_far() -> None:
    before, moved = answer([5.0, 30.0, 90.0], [1, 0, 1]), []
    for time in (0.0, 20.0, 20.1, 50.0, 100.0):
        moved += [float(np.linalg.norm(answer([time, 30.0, 90.0], [event, 0, 1]) - before)) for event in (0, 1)]
    assert max(moved) <= QUERY.sensitivity(PLAN, 3)
    assert max(moved) == pytest.approx(math.sqrt(2) / 3)


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        ("time", "town", "needs a numeric column 'town'"),
        ("event", "age", "a column 'age' of two categories"),
        ("cuts", [20.0, 200.0], "at or above the last cut"),
        ("cuts", [20.0, 20.0], "increase"),
    ],
)
def test_what_is_no_time_or_no_event_is_refused(field: str, value: object, refusal: str) -> None:
    with pytest.raises(PlanError, match=refusal):
        plan_of(CURVED, {f"stages.0.query.{field}": value})


@pytest.mark.parametrize("column", ["age", "ill"])
def test_times_and_events_that_may_be_unknown_are_refused(column: str) -> None:
    with pytest.raises(PlanError, match=f"the column '{column}' has an indicator for empty cells"):
        plan_of(CURVED, {f"data.columns.{column}.indicator": True})
