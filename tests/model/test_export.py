"""Plain coefficients say what the model says, in the table's own units."""

import csv
import io
import json
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from ringfence.errors import RecordsError
from ringfence.model.export import LinearFunction
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee
from ringfence.planning.defaults import loss_named
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Guarantee, parse_schema
from ringfence.protocol.schema.encoding import encode_features

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 120},
    "dose": {"type": "numeric", "lower": -5, "upper": 45, "center": 3, "scale": 0.5, "missing": 10},
    "pain": {"type": "categorical", "categories": ["none", "some", "much"], "ordered": True, "center": 0.2},
    "ward": {"type": "categorical", "categories": ["a", "b", "c"], "scale": 0.3},
    "cost": {"type": "numeric", "lower": 100, "upper": 900, "center": 300},
    "ill": {"type": "categorical", "categories": ["no", "yes"]},
    "kind": {"type": "categorical", "categories": ["x", "y", "z"]},
    "visits": {"type": "numeric", "lower": 0.5, "upper": 40},
    "years": {"type": "numeric", "lower": 0.1, "upper": 8},
    "died": {"type": "boolean"},
}
FEATURES = ("age", "dose", "pain", "ward=a", "ward=b", "ward=c")
OTHERS = {"cost", "ill", "kind", "visits", "years", "died"}
LOSSES = [
    ("logistic", "ill"), ("hinge", "ill"), ("softmax", "kind"), ("squared", "cost"), ("huber", "cost"),
    ("pinball", "cost"),
]  # fmt: skip


def at(epsilon: float) -> tuple[Guarantee, ...]:
    return (Guarantee(epsilon=epsilon, delta=1e-5),)


def model(
    loss: str,
    target: str,
    *,
    intercept: float = 1.0,
    guaranteed: bool = True,
    radius: float | None = None,
    maps: list[dict[str, Any]] | None = None,
    roles: dict[str, str] | None = None,
) -> Model:
    """A model with random weights."""
    roles = roles or {}
    columns = {name: column for name, column in COLUMNS.items() if name not in OTHERS - {target, *roles.values()}}
    if "event" in roles:
        columns[target] = {**columns[target], "lower": 0}
    content = {"columns": columns, "intercept": intercept, "maps": maps, **roles}
    schema = parse_schema(content, target=target).model_copy(update={"radius": radius})
    plan = make_plan(schema, [Member("north", 90, 1.0), Member("a", 50, 2.0)], PlanRequest(loss=loss, rounds=3))
    promised = {
        "north": SiloGuarantee(records=90, rounds=3, this_run=at(1.0), all_runs=at(1.5), used=at(1.0)),
        "a": SiloGuarantee(records=50, rounds=3, this_run=at(2.0), all_runs=at(2.0)),
    }
    weights = np.random.default_rng(1).normal(size=plan.dimension)
    return Model.of(plan, weights, {"north": 3, "a": 3}, guarantees=promised if guaranteed else {})


def table(rows: int = 40) -> dict[str, list[str]]:
    """Rows within the bounds, one of them with a gap."""
    random = np.random.default_rng(2)
    return {
        "ward": random.choice(["a", "b", "c"], rows).tolist(),
        "pain": random.choice(["none", "some", "much"], rows).tolist(),
        "age": [repr(float(value)) for value in random.uniform(0, 120, rows)],
        "dose": ["", *[repr(float(value)) for value in random.uniform(-5, 45, rows - 1)]],
    }


def scored_alike(trained: Model) -> FloatArray:
    """The scores of plain coefficients, which must be the model's own."""
    linear = trained.linear()
    scores: FloatArray = linear.matrix(table()) @ linear.coefficients.T + linear.intercepts
    encoded = encode_features(trained.plan.data, table(), source="the table")
    assert np.allclose(scores, trained.in_units(trained.scores(encoded)))
    return scores


@pytest.mark.parametrize("intercept", [1.0, 0.0, 2.5])
@pytest.mark.parametrize(("loss", "target"), LOSSES)
def test_plain_coefficients_score_rows_as_the_model_does(loss: str, target: str, intercept: float) -> None:
    trained = model(loss, target, intercept=intercept)
    assert trained.linear().features == FEATURES
    scored_alike(trained)


def test_the_matrix_holds_the_table_s_own_numbers_even_beyond_the_bounds() -> None:
    cells = {"age": ["30", "1000"], "dose": ["", "-7.5"], "pain": ["much", "none"], "ward": ["c", "a"]}
    assert model("logistic", "ill").linear().matrix(cells).tolist() == [
        [30.0, 10.0, pytest.approx(2.0), 0.0, 0.0, 1.0],
        [1000.0, -7.5, pytest.approx(0.0), 1.0, 0.0, 0.0],
    ]
    with pytest.raises(RecordsError, match="row 3, column 'age'"):
        model("logistic", "ill").linear().matrix({**cells, "age": ["1", "old"]})


def test_a_model_with_maps_is_exported_with_all_that_its_coefficients_are_of() -> None:
    maps: list[dict[str, Any]] = [
        {"type": "spline", "columns": ["age"], "degree": 2},
        {"type": "cyclic", "columns": ["dose"], "period": 10, "keep": True},
        {"type": "interaction", "columns": ["pain", "ward"]},
        {"type": "fourier", "columns": ["age", "dose"], "features": 4, "seed": 5},
    ]
    trained = model("logistic", "ill", maps=maps)
    linear, scores = trained.linear(), scored_alike(trained)
    matrix = dict(zip(linear.features, linear.matrix(table()).T, strict=True))
    assert matrix["dose"][1:].tolist() == [float(cell) for cell in table()["dose"][1:]]
    assert sum(matrix[name] for name in matrix if name.startswith("age spline")) == pytest.approx(1.0)
    assert json.loads(linear.to_json())["maps"] == [
        each.model_dump(mode="json") for each in trained.plan.data.maps or ()
    ]
    assert np.allclose(linear.to_scikit_learn().decision_function(pd.DataFrame(matrix)), scores[:, 0])


@pytest.mark.parametrize(("loss", "target"), LOSSES)
def test_a_scikit_learn_estimator_predicts_as_the_model_does(loss: str, target: str) -> None:
    trained = model(loss, target)
    linear = trained.linear()
    estimator = linear.to_scikit_learn()
    predicted = estimator.predict(pd.DataFrame(linear.matrix(table()), columns=FEATURES))
    expected = trained.predict(table())
    if target == "cost":
        assert np.allclose(predicted, np.array(expected, dtype=float))
    else:
        assert predicted.tolist() == expected
    assert hasattr(estimator, "predict_proba") == (loss in ("logistic", "softmax"))
    if loss == "logistic":
        assert linear.to_scikit_learn(classes=[0, 1]).classes_.tolist() == [0, 1]


@pytest.mark.parametrize(("loss", "target"), [("logistic", "ill"), ("softmax", "kind")])
def test_labels_in_another_order_are_sorted_for_scikit_learn_and_predicted_alike(loss: str, target: str) -> None:
    trained = model(loss, target)
    linear = trained.linear()
    labels = dict(zip(linear.classes, range(len(linear.classes), 0, -1), strict=True))
    estimator = linear.to_scikit_learn(classes=list(labels.values()))
    matrix = pd.DataFrame(linear.matrix(table()), columns=FEATURES)
    assert estimator.classes_.tolist() == sorted(labels.values())
    assert estimator.predict(matrix).tolist() == [labels[str(label)] for label in trained.predict(table())]
    assert estimator.classes_[estimator.predict_proba(matrix).argmax(axis=1)].tolist() == [
        labels[str(label)] for label in trained.predict(table())
    ]


def run_onnx(graph: bytes, matrix: FloatArray, **inputs: FloatArray) -> dict[str, Any]:
    """What onnxruntime makes of a graph."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"features": matrix, **inputs}), strict=True))


EXPORTED = [*LOSSES, *((name, "visits") for name in ("poisson", "gamma", "negative-binomial")), ("ordinal", "kind")]


@pytest.mark.parametrize("radius", [None, 1.0])
@pytest.mark.parametrize(("loss", "target"), EXPORTED)
def test_an_onnx_graph_predicts_as_the_model_does_beyond_the_bounds_too(
    loss: str, target: str, radius: float | None
) -> None:
    trained = model(loss, target, radius=radius)
    cells = {**table(), "age": ["1000", "-3", *table()["age"][2:]]}
    found = run_onnx(trained.linear().to_onnx(), trained.linear().matrix(cells))
    tells = loss in ("logistic", "softmax", "ordinal")
    expected = trained.predict_columns(cells, probabilities=tells)
    if target in ("cost", "visits"):
        assert np.allclose(found["prediction"], np.array(expected[target], dtype=float), rtol=1e-12)
    else:
        assert found["prediction"].tolist() == expected[target]
    if tells:
        shares = np.array([values for name, values in expected.items() if name != target], dtype=float).T
        assert np.allclose(found["probabilities"], shares, rtol=1e-9, atol=1e-15)
    assert ("probabilities" in found) == tells


KNOTS = {"type": "spline", "columns": ["age"], "knots": [18, 65.5]}
YEARS = {"type": "cyclic", "columns": ["seen"], "period": 365.2425, "harmonics": 3}
MAPS: list[list[dict[str, Any]]] = [
    *([{"type": "spline", "columns": ["age", "dose", "seen"], "degree": degree}] for degree in (1, 2, 3, 5)),
    [KNOTS, YEARS | {"keep": True}],
    [KNOTS, YEARS, {"type": "cyclic", "columns": ["dose"], "period": 7}],
    [KNOTS, {"type": "interaction", "columns": ["age", "ward", "dose", "seen"]}],
    [{"type": "fourier", "columns": ["age", "ward", "seen"], "features": 20, "scale": 0.7, "seed": 3}],
    [KNOTS, YEARS, {"type": "fourier", "columns": ["age", "seen"], "features": 6, "seed": 1}],
]


@pytest.mark.parametrize("indicator", [False, True])
@pytest.mark.parametrize("radius", [None, 1.0])
@pytest.mark.parametrize("maps", MAPS)
def test_an_onnx_graph_makes_what_maps_make_at_and_beyond_the_bounds_and_of_missing_cells(
    maps: list[dict[str, Any]], radius: float | None, indicator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = {"missing": 10, "indicator": True} if indicator else {"missing": 10}
    monkeypatch.setitem(COLUMNS, "dose", {"type": "numeric", "lower": -5, "upper": 45, "center": 3, **marked})
    monkeypatch.setitem(
        COLUMNS, "seen", {"type": "date", "lower": "2020-02-29", "upper": "2024-12-31", "missing": "2022-01-01"}
    )
    trained = model("squared", "cost", radius=radius, maps=maps)
    cells = table()
    cells["age"][:6] = ["1000", "-3", "0", "120", "18", "65.5"]
    cells["seen"] = ["", "2020-02-29", "2030-01-01", *(f"20{20 + row // 12}-{row % 12 + 1:02}-07" for row in range(37))]
    linear = trained.linear()
    graph, matrix = linear.to_onnx(), linear.matrix(cells, mapped=False)
    expected = np.array(trained.predict(cells), dtype=float)
    found = run_onnx(graph, matrix)["prediction"]
    assert np.allclose(found, expected, rtol=1e-11)
    blank = np.where(matrix == 10.0, np.nan, matrix)  # the missing dose
    blank[0, -1 - 3] = np.nan
    if indicator:
        blank[0, 2] = 0.0
    assert np.array_equal(run_onnx(graph, blank)["prediction"], found)


@pytest.mark.parametrize(("loss", "role"), [("poisson", "exposure"), ("gamma", "offset"), ("squared", "offset")])
def test_an_onnx_graph_takes_the_offset_that_a_schema_names(loss: str, role: str) -> None:
    trained = model(loss, "visits", roles={role: "years"})
    cells = {**table(), "years": ["0.01", "99", *(repr(0.5 + row / 10) for row in range(38))]}  # two beyond the bounds
    years = np.array(cells["years"], dtype=float)
    found = run_onnx(trained.linear().to_onnx(), trained.linear().matrix(cells), offset=years)
    assert np.allclose(found["prediction"], np.array(trained.predict(cells), dtype=float), rtol=1e-12)


@pytest.mark.parametrize("slower", [0.0, 30.0])
def test_an_onnx_graph_predicts_times_without_an_event(slower: float) -> None:
    trained = model("survival", "visits", roles={"event": "died"})
    weights = np.random.default_rng(3).normal(size=trained.plan.dimension)
    weights[-trained.plan.loss.outputs :] -= slower  # hazards too small for 1 - e^-x
    slow = Model.of(trained.plan, weights, {"north": 3, "a": 3})
    found = run_onnx(slow.linear().to_onnx(), slow.linear().matrix(table()))
    assert np.allclose(found["prediction"], np.array(slow.predict(table()), dtype=float), rtol=1e-7)


def test_nan_stands_for_a_missing_cell_in_an_onnx_graph() -> None:
    linear = model("squared", "cost").linear()
    matrix = linear.matrix(table())
    blank = matrix.copy()
    blank[0, FEATURES.index("dose")] = np.nan  # the cell that is empty in the table
    graph = linear.to_onnx()
    assert np.array_equal(run_onnx(graph, matrix)["prediction"], run_onnx(graph, blank)["prediction"])


@pytest.mark.parametrize(("loss", "target"), LOSSES)
def test_json_and_csv_hold_every_coefficient_to_the_last_digit(loss: str, target: str) -> None:
    linear = model(loss, target).linear()
    content = json.loads(linear.to_json())
    assert content["features"] == list(FEATURES)
    assert np.array_equal(content["coefficients"], linear.coefficients)
    assert np.array_equal(content["intercepts"], linear.intercepts)
    assert (content["target"], content["classes"]) == (target, list(linear.classes))
    header, *lines, last = csv.reader(io.StringIO(linear.to_csv()))
    outputs = {"ill": ["yes"], "kind": ["x", "y", "z"], "cost": ["cost"]}[target]
    assert header == ["feature", *outputs]
    assert [line[0] for line in lines] == list(FEATURES)
    assert np.array_equal(np.array([line[1:] for line in lines], dtype=float), linear.coefficients.T)
    assert last == ["(intercept)", *map(repr, linear.intercepts.tolist())]


def test_a_linear_function_of_a_scaled_schema_is_computed_by_hand_for_one_feature() -> None:
    columns = {"age": {"type": "numeric", "lower": 0, "upper": 100}, "cost": COLUMNS["cost"]}
    schema = parse_schema({"columns": columns}, target="cost")
    linear = LinearFunction.of(schema, loss_named("squared", schema, PlanRequest()), np.array([[0.5], [0.25]]))
    # cost = 300 + 400·(0.5·(age − 50)/50 + 0.25): half the width of cost's bounds is its unit, its center its offset.
    assert linear.coefficients.tolist() == [[pytest.approx(4.0)]]
    assert linear.intercepts.tolist() == [pytest.approx(300 + 400 * (-0.5 + 0.25))]
