"""What a model predicts beside the target: probabilities and intervals, from released numbers alone."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from ringfence.errors import OutputError, PlanError
from ringfence.estimates.metrics import EvaluationReport, Metric, ModelMetrics
from ringfence.model.export import csv_text
from ringfence.model.model import Model, with_ids, write_predictions
from ringfence.protocol import FloatArray, Pinball, pack, unpack
from ringfence.sources import read_table
from tests.model.test_export import model, table
from tests.support import rebuilt


def evaluated(trained: Model, rmse: float | None) -> Model:
    """The model with a private evaluation that told this RMSE, or none."""
    metric = Metric(name="RMSE", value=rmse, low=None if rmse is None else 0.9 * rmse, high=rmse)
    report = EvaluationReport(unit="record", together=ModelMetrics(records=40, metrics=(metric,)), silos={})
    return trained.model_copy(update={"evaluation": report})


@pytest.mark.parametrize(("loss", "target"), [("logistic", "ill"), ("softmax", "kind")])
def test_probabilities_add_up_to_1_and_the_likeliest_class_is_predicted(loss: str, target: str) -> None:
    trained = model(loss, target)
    columns = trained.predict_columns(table(), probabilities=True)
    assert columns[target] == trained.predict(table())
    names = [name for name in columns if name != target]
    assert names == [f"{target}={category}" for category in trained.linear().classes]
    shares = np.array([columns[name] for name in names], dtype=float)
    assert np.allclose(shares.sum(axis=0), 1.0)
    likeliest = [names[place].partition("=")[2] for place in shares.argmax(axis=0)]
    assert likeliest == columns[target]


def test_a_probability_is_the_sigmoid_of_the_score_and_keeps_its_last_digits() -> None:
    trained = model("logistic", "ill")
    found = trained.plan.loss.probabilities(np.array([[-50.0], [0.0], [2.0]]))
    assert found[:, 1].tolist() == pytest.approx([math.exp(-50.0), 0.5, 1 / (1 + math.exp(-2.0))], rel=1e-12)


def test_an_interval_of_a_gaussian_model_reaches_as_far_as_its_private_rmse_says() -> None:
    trained = evaluated(model("squared", "cost"), 12.0)
    columns = trained.predict_columns(table(), coverage=0.8)
    middle, lower, upper = (np.array(columns[name], dtype=float) for name in ("cost", "lower", "upper"))
    assert np.allclose([upper - middle, middle - lower], norm.ppf(0.9) * 12.0)


@pytest.mark.parametrize(
    ("trained", "asked", "says"),
    [
        (model("squared", "cost"), {"coverage": 0.9}, "no private RMSE"),
        (evaluated(model("squared", "cost"), None), {"coverage": 0.9}, "no private RMSE"),
        (evaluated(model("squared", "cost"), 1.0), {"coverage": 1.0}, "between 0 and 1"),
        (evaluated(model("huber", "cost"), 1.0), {"coverage": 0.9}, "two models with --loss pinball"),
        (model("hinge", "ill"), {"probabilities": True}, "gives no probabilities"),
        (model("squared", "cost"), {"probabilities": True}, "gives no probabilities"),
        (model("squared", "cost"), {"upper": model("squared", "cost")}, "two with the pinball loss"),
        (model("pinball", "cost"), {"upper": model("pinball", "cost")}, "the lower quantile"),
        (model("pinball", "cost"), {"upper": model("logistic", "ill")}, "different schemas or targets"),
        (model("pinball", "cost"), {"upper": model("pinball", "cost"), "coverage": 0.9}, "remove --interval"),
    ],
)
def test_what_a_model_does_not_know_is_refused_with_the_remedy(
    trained: Model, asked: dict[str, object], says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        trained.predict_columns(table(), **asked)  # type: ignore[arg-type]


def at_quantile(quantile: float, weights: FloatArray) -> Model:
    """A model of that quantile, with these weights."""
    trained = model("pinball", "cost")
    training = trained.plan.training
    assert training is not None
    plan = rebuilt(trained.plan, training=training.model_copy(update={"loss": Pinball(quantile=quantile)}))
    return trained.model_copy(update={"plan": plan, "weights": pack(weights)})


def test_two_quantile_models_give_an_interval_and_where_they_cross_its_ends_are_swapped() -> None:
    weights = unpack(model("squared", "cost").weights)
    low, high = at_quantile(0.1, -weights), at_quantile(0.9, weights)
    columns = low.predict_columns(table(), upper=high)
    both = np.array([low.predict(table()), high.predict(table())], dtype=float)
    assert np.any(both[0] > both[1])
    assert np.array_equal([columns["lower"], columns["upper"]], np.sort(both, axis=0))


def test_an_id_column_goes_before_and_one_that_is_not_there_is_refused() -> None:
    columns = {"ill": ["yes", "no"]}
    cells = {"patient": ["7", "8"], "ill": ["no", "no"]}
    assert with_ids(columns, cells, "patient", source="new.csv") == {"patient": ["7", "8"], "ill": ["yes", "no"]}
    with pytest.raises(OutputError, match=r"new.csv has no column 'name' .* patient, ill"):
        with_ids(columns, cells, "name", source="new.csv")
    with pytest.raises(OutputError, match="name of a predicted column"):
        with_ids(columns, cells, "ill", source="new.csv")


WRITTEN: dict[str, list[Any]] = {"patient": ["7", "8"], "cost": [0.1, 1 / 3]}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_written_predictions_are_read_to_the_last_digit_and_a_missing_folder_is_refused(
    tmp_path: Path, name: str
) -> None:
    write_predictions(tmp_path / name, WRITTEN)
    found = read_table(tmp_path / name)
    assert found["patient"].texts() == WRITTEN["patient"]
    assert found["cost"].numbers().tolist() == WRITTEN["cost"]
    with pytest.raises(OutputError, match="could not be written"):
        write_predictions(tmp_path / "nowhere" / name, WRITTEN)


def test_a_cell_with_a_comma_is_quoted() -> None:
    assert csv_text({"name": ["a,b"], "ill": ["yes"]}) == 'name,ill\n"a,b",yes\n'
