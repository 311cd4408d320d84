"""A summary's coefficients: in the table's own units, of categories the differences from the first."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.estimates.coefficients import CoefficientInterval
from ringfence.model.curves import Curve, curve_points
from ringfence.model.statement import Statement
from ringfence.model.summary import Summary, coefficients_in_table_units, require_level
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Schema, parse_schema
from ringfence.protocol.schema.encoding import encode_features

NUMBER = {"type": "numeric", "lower": 10.0, "upper": 30.0}
COLUMNS = {
    "age": NUMBER,
    "town": {"type": "categorical", "categories": ["p", "q", "r"], "scale": 0.5},
    "ward": {"type": "categorical", "categories": ["a", "b"], "scale": 2.0},
    "cost": {"type": "numeric", "lower": 0.0, "upper": 8.0},
}


def found_in(data: Schema) -> tuple[dict[str, float], Callable[[float, str, str], float]]:
    """Coefficients of random weights, and the weights' own predictions for an age, a town and a ward."""
    plan = make_plan(data, [Member("one", 100, 1.0)], PlanRequest(rounds=2))
    names, functions, offsets = coefficients_in_table_units(plan)
    weights = np.random.default_rng(1).normal(size=data.width)

    def predicted(age: float, town: str, ward: str) -> float:
        row = encode_features(data, {"age": [str(age)], "town": [town], "ward": [ward]}, source="row")
        return float(row[0] @ weights) * 4.0 + 4.0

    return dict(zip(names, functions @ weights + offsets, strict=True)), predicted


@pytest.mark.parametrize("intercept", [1.0, 0.5, 0.0])
def test_the_functions_predict_what_the_weights_do(intercept: float) -> None:
    """Without an intercept the first column with categories keeps all of them."""
    found, predicted = found_in(parse_schema({"columns": COLUMNS, "intercept": intercept}, target="cost"))
    assert ("town=p" in found) == (intercept == 0.0)
    assert "ward=a" not in found
    for age, town, ward in ((12.0, "p", "a"), (25.0, "q", "b"), (30.0, "r", "a")):
        read = found["(intercept)"] + found["age"] * age
        read += found.get(f"town={town}", 0.0) + found.get(f"ward={ward}", 0.0)
        assert read == pytest.approx(predicted(age, town, ward))


SPLINE = {"type": "spline", "columns": ["age"], "knots": [15.0, 20.0], "degree": 1}


@pytest.mark.parametrize("intercept", [1.0, 0.0])
def test_columns_that_maps_read_have_curves_instead_of_coefficients(intercept: float) -> None:
    found, predicted = found_in(
        parse_schema({"columns": COLUMNS, "intercept": intercept, "maps": [SPLINE]}, target="cost")
    )
    assert list(found) == (["town=q", "town=r", "ward=b"] if intercept else [])
    for name, coefficient in found.items():
        town, ward = ("p", name[-1]) if name.startswith("ward") else (name[-1], "a")
        assert coefficient == pytest.approx(predicted(20.0, town, ward) - predicted(20.0, "p", "a"))


def test_a_product_of_two_numbers_keeps_its_coefficient_and_one_with_categories_has_none() -> None:
    columns = {**COLUMNS, "dose": NUMBER}
    two = parse_schema(
        {"columns": columns, "maps": [{"type": "interaction", "columns": ["age", "dose"]}]}, target="cost"
    )
    plan = make_plan(two, [Member("one", 100, 1.0)], PlanRequest(rounds=2))
    assert coefficients_in_table_units(plan)[0] == ["town=q", "town=r", "ward=b", "age × dose"]
    joined, _ = found_in(
        parse_schema({"columns": COLUMNS, "maps": [{"type": "interaction", "columns": ["age", "ward"]}]}, target="cost")
    )
    assert list(joined) == ["town=q", "town=r"]


def test_what_cannot_be_told_is_said_so_and_no_number_stands_for_it() -> None:
    plan = make_plan(parse_schema({"columns": COLUMNS}, target="cost"), [Member("one", 9, 1.0)], PlanRequest(rounds=2))
    lost = CoefficientInterval(3.0, math.inf, -math.inf, math.inf, 1.0)
    summary = Summary(
        {"age": CoefficientInterval(2.0, 0.5, 1.0, 3.0, 1e-4), "town=q": lost}, 0.95, False, Statement(plan, {})
    )
    assert summary.rows()[1] == ["town=q", "unknown", "", "", "", ""]
    assert "unknown" in str(summary)
    assert "larger epsilon" in summary.remark
    assert str(summary).endswith(summary.remark)
    assert summary.report()["coefficients"]["age"]["interval"] == [1.0, 3.0]


def test_the_intervals_of_a_curve_are_listed_where_they_are_known() -> None:
    plan = make_plan(
        parse_schema({"columns": COLUMNS, "maps": [SPLINE]}, target="cost"),
        [Member("one", 9, 1.0)],
        PlanRequest(rounds=2),
    )
    points = next(iter(curve_points(plan.data, ["age"])))
    line = np.linspace(-1.0, 1.0, len(points.labels))
    band = [CoefficientInterval(float(line[mark]), 0.1, float(line[mark]) - 1, 5.0, 0.1) for mark in points.marks]
    band[1] = CoefficientInterval(0.0, math.inf, -math.inf, math.inf, 1.0)
    summary = Summary({}, 0.95, False, Statement(plan, {}), [Curve(points, {"cost": line}, band=band)])
    header, rows = summary.curves[0].table()
    assert header == ["age", "cost", "from", "to"]
    assert rows[:2] == [["10", -1.0, -2.0, 5.0], ["12.5", "unknown", "", ""]]
    assert "larger epsilon" in summary.remark
    assert "12.5\tunknown" in str(summary)
    found = summary.report()["curves"]["age"]
    assert [point["value"] for point in found] == [row[0] for row in rows]
    assert found[0]["interval"] == [-2.0, 5.0]


def test_intervals_by_silo_need_two() -> None:
    with pytest.raises(PlanError, match="two silos or more"):
        require_level(0.95, 1)
