"""A summary's coefficients: in the table's own units, of categories the differences from the first."""

import math

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.estimates.coefficients import CoefficientInterval
from ringfence.model.statement import Statement
from ringfence.model.summary import Summary, coefficients_in_table_units, require_level
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.protocol.schema.encoding import encode_features

NUMBER = {"type": "numeric", "lower": 10.0, "upper": 30.0}
COLUMNS = {
    "age": NUMBER,
    "town": {"type": "categorical", "categories": ["p", "q", "r"], "scale": 0.5},
    "ward": {"type": "categorical", "categories": ["a", "b"], "scale": 2.0},
    "cost": {"type": "numeric", "lower": 0.0, "upper": 8.0},
}


@pytest.mark.parametrize("intercept", [1.0, 0.5, 0.0])
def test_the_functions_predict_what_the_weights_do(intercept: float) -> None:
    """Without an intercept the first column with categories keeps all of them."""
    data = parse_schema({"columns": COLUMNS, "intercept": intercept}, target="cost")
    plan = make_plan(data, [Member("one", 100, 1.0)], PlanRequest(rounds=2))
    names, functions, offsets = coefficients_in_table_units(plan)
    assert ("town=p" in names) == (intercept == 0.0)
    assert "ward=a" not in names
    weights = np.random.default_rng(1).normal(size=data.width)
    found = dict(zip(names, functions @ weights + offsets, strict=True))
    for age, town, ward in ((12.0, "p", "a"), (25.0, "q", "b"), (30.0, "r", "a")):
        row = encode_features(data, {"age": [str(age)], "town": [town], "ward": [ward]}, source="row")
        predicted = float(row[0] @ weights) * 4.0 + 4.0
        read = found["(intercept)"] + found["age"] * age
        read += found.get(f"town={town}", 0.0) + found.get(f"ward={ward}", 0.0)
        assert read == pytest.approx(predicted)


def test_of_a_spline_the_first_function_is_left_out_as_of_categories() -> None:
    maps = [{"type": "spline", "columns": ["age"], "knots": [15.0, 20.0], "degree": 1}]
    data = parse_schema({"columns": COLUMNS, "maps": maps}, target="cost")
    plan = make_plan(data, [Member("one", 100, 1.0)], PlanRequest(rounds=2))
    names, functions, offsets = coefficients_in_table_units(plan)
    weights = np.random.default_rng(1).normal(size=data.width)
    found = dict(zip(names, functions @ weights + offsets, strict=True))
    assert [name for name in names if name.startswith("age")] == [
        "age spline 2 (near 15)", "age spline 3 (near 20)", "age spline 4 (near 30)",
    ]  # fmt: skip
    row = encode_features(data, {"age": ["20"], "town": ["q"], "ward": ["b"]}, source="row")
    read = found["(intercept)"] + found["age spline 3 (near 20)"] + found["town=q"] + found["ward=b"]
    assert read == pytest.approx(float(row[0] @ weights) * 4.0 + 4.0)


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


def test_intervals_by_silo_need_two() -> None:
    with pytest.raises(PlanError, match="two silos or more"):
        require_level(0.95, 1)
