"""Curves are differences of the model's own scores, and centred."""

from typing import Any

import numpy as np
import pytest

from ringfence.model.curves import MISSING, Curve, column_curves, curve_points, pair_curves
from ringfence.model.model import Model
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.protocol.schema.encoding import encode_features

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 20, "upper": 84, "center": 30, "indicator": True},
    "ward": {"type": "categorical", "categories": ["a", "b", "c"], "scale": 0.5, "indicator": True},
    "pain": {"type": "categorical", "categories": ["none", "some", "much"], "ordered": True, "missing": "some"},
    "seen": {"type": "date", "lower": "2020-01-01", "upper": "2023-12-31"},
    "smoker": {"type": "boolean"},
    "words": {"type": "text", "words": 4},
    "cost": {"type": "numeric", "lower": 100, "upper": 900},
    "kind": {"type": "categorical", "categories": ["x", "y", "z"]},
    "ill": {"type": "boolean"},
}
SPLINE = {"type": "spline", "columns": ["age"], "knots": [30, 65]}
YEAR = {"type": "cyclic", "columns": ["seen"], "period": 365.2425, "harmonics": 2}
ROW = {"age": "50", "ward": "a", "pain": "none", "seen": "2021-06-01", "smoker": "no", "words": "ill and tired"}


def model(target: str, *maps: dict[str, Any], loss: str | None = None, **others: Any) -> Model:
    """A model with random weights."""
    left_out = {"cost", "kind", "ill"} - {target}
    columns = {name: column for name, column in COLUMNS.items() if name not in left_out}
    schema = parse_schema({"columns": columns, "maps": list(maps) or None, **others}, target=target)
    plan = make_plan(schema, [Member("north", 90, 1.0)], PlanRequest(loss=loss, rounds=2))
    return Model.of(plan, np.random.default_rng(1).normal(size=plan.dimension), {"north": 2})


def scores(trained: Model, column: str, cells: list[str]) -> np.ndarray[Any, Any]:
    """The model's own scores, in the target's units, of rows that differ in one column."""
    table = {name: [cell] * len(cells) for name, cell in ROW.items()} | {column: cells}
    encoded = trained.scores(encode_features(trained.plan.data, table, source="rows"))
    unit, _ = trained.plan.loss.score_units(*trained.plan.data.target_scaling)
    return np.asarray(encoded * unit)


def cells(curve: Curve) -> list[str]:
    numbers = [repr(number) for number in curve.points.numbers.tolist()]
    return [*(numbers or curve.points.labels), ""][: len(curve.points.labels)]


@pytest.mark.parametrize(
    ("target", "loss"),
    [("cost", None), ("ill", None), ("kind", None), ("kind", "ordinal"), ("cost", "poisson"), ("ill", "hinge")],
)
def test_a_curve_differs_between_any_two_points_as_the_models_own_scores_do(target: str, loss: str | None) -> None:
    trained = model(target, SPLINE, YEAR | {"keep": True}, loss=loss)
    curves = {curve.points.column: curve for curve in column_curves(trained.plan, trained.coefficients)}
    assert set(curves) == {"age", "ward", "pain", "seen", "smoker"}
    for name in ("age", "ward", "pain", "smoker"):
        curve, own = curves[name], cells(curves[name])
        own[-1] = "" if curve.points.labels[-1] == MISSING else own[-1]
        for line, expected in zip(curve.lines.values(), scores(trained, name, own).T, strict=False):
            assert np.diff(line) == pytest.approx(np.diff(expected))
            known = line[: len(line) - (name in ("age", "ward"))]
            assert known.mean() == pytest.approx(0.0, abs=1e-9 * max(1.0, np.abs(line).max()))
    spans = [curve.span for curve in column_curves(trained.plan, trained.coefficients)]
    assert spans == sorted(spans, reverse=True)


def test_a_date_that_only_cyclic_maps_read_is_drawn_over_one_period_and_others_over_their_range() -> None:
    trained = model("cost", YEAR)
    curves = {curve.points.column: curve for curve in column_curves(trained.plan, trained.coefficients)}
    year = curves["seen"]
    assert year.points.axis == "seen, of each 365.243 days"
    assert year.points.numbers[[0, -1]] == pytest.approx([0.0, 365.2425])
    (line,) = year.lines.values()
    assert line[0] == pytest.approx(line[-1])
    day = int(np.argmin(np.abs(year.points.numbers - 151)))  # 1970-06-01, as in every year
    found = scores(trained, "seen", ["1972-01-01", "2021-06-01"])[1, 0] - scores(trained, "seen", ["2022-01-01"])[0, 0]
    assert line[day] - line[0] == pytest.approx(found, abs=0.02 * year.span)
    kept = model("cost", YEAR | {"keep": True})
    (dates,) = (points for points in curve_points(kept.plan.data, ["seen"]))
    assert [dates.labels[0], dates.labels[-1]] == ["2020-01-01", "2023-12-31"]
    assert len(dates.numbers) > 12 * 2 * 4  # enough for every wave
    assert len(dates.marks) < 12


def test_curves_of_columns_that_a_map_joins_are_averages_and_pairs_show_both() -> None:
    joint = {"type": "interaction", "columns": ["age", "ward"]}
    trained = model("cost", SPLINE, joint)
    curves = {curve.points.column: curve for curve in column_curves(trained.plan, trained.coefficients)}
    (pair,) = pair_curves(trained.plan, trained.coefficients)
    assert (pair.points.column, pair.by) == ("age", "ward")
    assert list(pair.lines) == ["ward a", "ward b", "ward c", f"ward {MISSING}"]
    own = cells(curves["age"])
    expected = [scores(trained, "age", own)[:, 0]]
    assert np.diff(pair.lines["ward a"]) == pytest.approx(np.diff(expected[0]))
    (line,) = curves["age"].lines.values()
    average = np.mean([pair.lines[f"ward {ward}"] for ward in "abc"], axis=0)
    assert np.diff(line) == pytest.approx(np.diff(average))


def test_fourier_features_give_every_column_an_average_and_no_pairs() -> None:
    trained = model("ill", {"type": "fourier", "columns": ["age", "ward", "words"], "features": 6, "seed": 1})
    curves = {curve.points.column: curve for curve in column_curves(trained.plan, trained.coefficients)}
    assert set(curves) == {"age", "ward", "pain", "seen", "smoker"}
    assert pair_curves(trained.plan, trained.coefficients) == []


def test_a_table_of_a_curve_has_a_handful_of_rows_in_the_tables_units() -> None:
    trained = model("ill", SPLINE)
    curves = {curve.points.column: curve for curve in column_curves(trained.plan, trained.coefficients)}
    header, rows = curves["age"].table()
    assert header == ["age", "log odds of 'yes'"]
    assert [row[0] for row in rows] == ["20", "28", "36", "44", "52", "60", "68", "76", "84", MISSING]
    assert [row[0] for row in curves["ward"].table()[1]] == ["a", "b", "c", MISSING]


def test_no_curve_is_made_of_more_columns_than_can_be_drawn() -> None:
    columns: dict[str, Any] = {f"gene {place}": COLUMNS["cost"] for place in range(300)}
    schema = parse_schema({"columns": {**columns, "ill": COLUMNS["ill"]}}, target="ill")
    plan = make_plan(schema, [Member("north", 90, 1.0)], PlanRequest(rounds=2))
    assert column_curves(plan, np.zeros((schema.width, 1))) == []
