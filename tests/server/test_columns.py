"""From noisy histograms to the interval that a column's records occupy, to knots, and to the axes of curves."""

import numpy as np
import pytest

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Schema, parse_schema
from ringfence.server.algorithms.columns import ColumnDistribution, CurvePrior, column_distribution, first_axes

BINS = 32


def bell(centre: float, width: float) -> FloatArray:
    """Return the shares of bins over [0, 1] of a normal distribution."""
    middles = (np.arange(BINS) + 0.5) / BINS
    shares = np.exp(-0.5 * ((middles - centre) / width) ** 2)
    return np.asarray(shares / shares.sum())


def test_the_ends_hold_nearly_all_records_and_little_else() -> None:
    found = column_distribution(bell(0.3, 0.02), 0.0, 1.0, 1e-6)
    assert 0.2 < found.lower < 0.3 - 2 * 0.02
    assert 0.3 + 2 * 0.02 < found.upper < 0.4
    assert found.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03])
def test_tails_that_noise_hides_are_kept_as_those_of_a_normal_distribution(noise: float) -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        found = column_distribution(bell(0.5, 0.1) + noise * random.standard_normal(BINS), 0.0, 1.0, noise)
        assert found.lower <= 0.5 - 2 * 0.1
        assert found.upper >= 0.5 + 2 * 0.1


@pytest.mark.parametrize("noise", [0.1, 1.0, 100.0])
def test_noise_that_hides_everything_leaves_an_interval_within_the_bounds(noise: float) -> None:
    random = np.random.default_rng(2)
    for _ in range(20):
        found = column_distribution(noise * random.standard_normal(BINS), -3.0, 5.0, noise)
        assert -3.0 <= found.lower < found.upper <= 5.0
        knots = found.knots(9)
        assert np.all(np.diff(knots) > 0)
        assert (knots[0], knots[-1]) == (found.lower, found.upper)


def test_knots_are_closer_where_records_are_and_never_coincide() -> None:
    shares = np.full(BINS, 1e-9)
    shares[3] = 1.0
    knots = ColumnDistribution(shares / shares.sum(), 0.0, 32.0).knots(9)
    assert np.sum((knots > 3) & (knots < 4)) >= 3
    assert np.diff(knots).min() > 0.1


def test_a_curves_first_function_is_nearly_straight_and_each_further_one_varies_less() -> None:
    column = ColumnDistribution(np.full(BINS, 1 / BINS), 0.0, 1.0)
    prior = CurvePrior.of(column, column.knots(9))
    assert prior.variances[0] == 1.0
    assert np.all(np.diff(prior.variances) < 0)
    at_knots = prior.functions[0] - prior.functions[0] @ prior.means
    assert abs(np.corrcoef(at_knots, column.knots(9))[0, 1]) > 0.99


def schema(columns: int) -> Schema:
    own = {f"x{number}": {"type": "numeric", "lower": 0.0, "upper": 1.0} for number in range(columns)}
    return parse_schema({"columns": {**own, "y": {"type": "numeric", "lower": -1.0, "upper": 1.0}}}, target="y")


def test_more_functions_are_taken_the_less_noise_there_is_and_at_least_one_of_each_column() -> None:
    taken = []
    for records in (1_000, 3_000, 30_000):
        plan = make_plan(schema(3), [Member("a", records, 1.0, 1e-9)], PlanRequest(held_out=0.0))
        columns = [ColumnDistribution(np.full(BINS, 1 / BINS), 0.0, 1.0)] * 3
        knots = np.concatenate([column.knots(9) for column in columns])
        noise = plan.silos[0].stages[1].sigma
        axes = first_axes(plan, columns, knots, noise)
        taken.append(int(np.sum(np.any(axes != 0, axis=1))) - 1)  # but for the constant
    assert 3 <= taken[0] < taken[1] < taken[2] <= 24
