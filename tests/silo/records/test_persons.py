"""The unit is a person: whatever all of somebody's rows are, an answer moves no further than is charged for."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from ringfence.protocol import (
    Curvature,
    FeatureMeans,
    FeatureMoments,
    FloatArray,
    Gradient,
    Plan,
    PreconditionedGradient,
    Query,
    SecondMoments,
    pack,
)
from ringfence.protocol.queries.feature_moments import FeatureMomentsArgument
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.silo.queries import compute
from ringfence.silo.records.persons import MOST_ROWS, Persons
from ringfence.silo.records.records import Records
from tests.silo.records.people import PLANS, SCHEMA, every_rule, records_of

SECOND_MOMENTS = SecondMoments(start=pack(np.zeros(3)))
QUERIES: list[Query] = [
    Gradient(clip=0.3),
    Curvature(),
    SECOND_MOMENTS,
    FeatureMeans(),
    FeatureMoments(),
    PreconditionedGradient(),
]
AXES = np.array([[3.0, 1.0, 0.5], [-0.2, 2.0, 0.0], [0.0, 0.7, 4.0]])
every_query = pytest.mark.parametrize("query", QUERIES, ids=[query.name for query in QUERIES])

CELLS = st.floats(-1, 1) | st.sampled_from([-1.0, 1.0, 0.0, 1e-9, -1e300, 1e300, math.sin(math.pi / 12)])
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=7)
"""All rows of one person: two features, the constant's place, and the target."""


def argument(query: Query, weights: FloatArray) -> FloatArray:
    of_query = {
        "second-moments": MomentsArgument(weights, 0.5, 1.0, np.eye(3)).packed(),
        "feature-means": np.array([-0.4, 0.9]),
        "feature-moments": FeatureMomentsArgument(AXES, -0.4, 0.9).packed(),
        "preconditioned-gradient": np.concatenate([weights, AXES.reshape(-1)]),
    }
    return of_query.get(query.name, weights)


def answer(query: Query, plan: Plan, people: list[list[Any]], chosen: FloatArray | None = None) -> FloatArray:
    taking_part = np.ones(len(people)) if chosen is None else chosen
    at = argument(query, np.array([0.7, -2.0, 0.1]))
    return compute(query, plan, at, records_of(people), taking_part, len(people))


@every_rule
@every_query
def test_a_silo_that_took_rows_for_persons_would_break_the_claim(rule: str, query: Query) -> None:
    plan, near, far = PLANS[rule], math.sin(math.pi / 12), math.cos(math.pi / 12)
    ends = [[(far, near, 0.0, 1.0)] * 6, [(-near, -far, 0.0, 0.0)] * 6]
    if query.name == "curvature":
        ends[1] = [(0.0, 0.0, 0.0, 0.0)] * 6
    silent = [[(0.0, 0.0, 0.0, 0.0)]] * 2

    def ignoring(person: list[Any]) -> FloatArray:
        rows = np.array([*person, *(row for one in silent for row in one)], dtype=np.float64)
        rows[:, :3] *= SCHEMA.feature_norm
        records = Records(SCHEMA, rows[:, :3], rows[:, 3])
        return compute(query, plan, argument(query, np.zeros(3)), records, np.ones(len(rows)), 3)

    assert np.linalg.norm(ignoring(ends[0]) - ignoring(ends[1])) > 1.5 * query.sensitivity(plan, 3)


def test_the_rules_make_of_a_person_s_rows_what_they_say() -> None:
    people = [[(0.1, 0.0, 0.0, 0.1)] * 5, [(0.0, 0.2, 0.0, 0.2)]]
    query = Gradient(clip=1.0)
    row = {place: answer(query, PLANS["mean"], [people[place][:1]]) for place in (0, 1)}
    expected = {"mean": row[0] + row[1], "rows": row[0] + row[1] / 3, "sum": 5 * row[0] + row[1]}
    for rule, sum_of_both in expected.items():
        assert answer(query, PLANS[rule], people) == pytest.approx(sum_of_both / 2, abs=1e-8)


def test_a_person_with_one_row_counts_as_a_record_does() -> None:
    random = np.random.default_rng(2)
    people = [[tuple(random.uniform(-1, 1, 4))] for _ in range(9)]
    rows = np.array([person[0] for person in people])
    record = Records(SCHEMA, rows[:, :3], rows[:, 3])
    for query in QUERIES:
        weights = argument(query, np.array([0.7, -2.0, 0.1]))
        plain = compute(query, PLANS["mean"], weights, record, np.ones(9), 9)
        for rule, plan in PLANS.items():
            if rule != "rows":
                assert answer(query, plan, people) == pytest.approx(plain, abs=1e-8)


def test_a_person_may_have_as_many_rows_as_64_bits_can_add_up() -> None:
    """The rule `sum` adds up rows of up to 2¹⁰ clips, in units of 2⁻³¹."""
    most = Persons(np.zeros(MOST_ROWS, dtype=np.int64))
    assert most.sums(np.full((MOST_ROWS, 1), 2**41)).tolist() == [[2**41 * MOST_ROWS]]
    assert 2 * 2**41 * MOST_ROWS <= 2**62


def test_a_part_of_the_persons_is_added_up_as_all_of_them_are() -> None:
    persons, counts = Persons(np.array([0, 0, 1, 2, 2, 2, 2, 3])), np.arange(16).reshape(8, 2) ** 2
    parts = list(persons.parts(3))
    assert parts == [(slice(0, 2), slice(0, 3)), (slice(2, 3), slice(3, 7)), (slice(3, 4), slice(7, 8))]
    by_part = [persons.sums(counts[rows], part) for part, rows in parts]
    assert np.concatenate(by_part).tolist() == persons.sums(counts).tolist()
    assert persons.sums(counts)[0].tolist() == (counts[0] + counts[1]).tolist()
    assert "hidden" in repr(persons)


def test_a_row_whose_gradient_is_no_number_adds_nothing_to_its_person_s_sum() -> None:
    query, usual, broken = Gradient(clip=1.0), (0.1, 0.2, 0.0, 0.3), (math.nan, 0.2, 0.0, 0.3)
    without, beside = (answer(query, PLANS["sum"], [rows, [usual]]) for rows in ([usual], [usual, broken]))
    assert beside.tolist() == without.tolist()
