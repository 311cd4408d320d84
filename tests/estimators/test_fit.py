"""What `fit` learns: in the units of X, from tables of any shape, with each silo's own budget."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import ringfence
from ringfence.errors import EstimatorError, RecordsError
from ringfence.model.model import Model
from ringfence.protocol import FloatArray, Huber, Schema, parse_schema

NAMES = ["pressure", "age"]
BOUNDS = {"age": (0.0, 120.0), "pressure": (50.0, 250.0)}

pytestmark = pytest.mark.usefixtures("repeated_noise")  # so that accuracy is the same in every run of the tests

Table = tuple[FloatArray, NDArray[Any], NDArray[Any]]


def patients(count: int = 600) -> Table:
    """Numbers within their bounds, whether somebody is ill, and in which silo the record is."""
    random = np.random.default_rng(3)
    X = np.column_stack([random.uniform(90, 170, count), random.uniform(20, 90, count)])
    ill = np.where((X[:, 0] - 130) / 20 + (X[:, 1] - 55) / 15 > 0, "yes", "no")
    return X, ill, random.permutation(np.arange(count) % 3)


def frame(X: FloatArray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def classifier(**changes: Any) -> ringfence.FederatedLogisticRegression:
    return ringfence.FederatedLogisticRegression(
        **{"epsilon": 8.0, "bounds": ([50, 0], [250, 120]), "classes": ["no", "yes"], "max_rounds": 40, **changes}
    )


def test_a_classifier_learns_and_its_decision_function_is_linear_in_the_units_of_x() -> None:
    X, y, silos = patients()
    fitted = classifier().fit(X, y, silos=silos)
    assert fitted.score(X, y) > 0.9
    assert fitted.coef_.shape == (1, 2)
    assert np.all(fitted.coef_ > 0)
    far_away = np.concatenate([X, [[1000.0, -50.0]]])  # beyond the bounds too
    assert np.allclose(fitted.decision_function(far_away), far_away @ fitted.coef_[0] + fitted.intercept_[0])
    assert np.array_equal(fitted.predict(X) == "yes", fitted.decision_function(X) > 0)
    assert np.allclose(fitted.predict_proba(X)[:, 1], 1 / (1 + np.exp(-fitted.decision_function(X))))
    assert (len(fitted.history_), fitted.n_features_in_) == (fitted.plan_.rounds, 2)


def test_columns_keep_their_places_or_names() -> None:
    X, y, _ = patients()
    by_name = classifier(bounds=BOUNDS).fit(frame(X), pd.Series(y, name="ill"))
    assert by_name.feature_names_in_.tolist() == NAMES
    assert by_name.coef_[0, 1] > 1.2 * by_name.coef_[0, 0] > 0  # the second is 'age', though it is the first by name
    table = {name: [repr(value) for value in X[:, place].tolist()] for place, name in enumerate(NAMES)}
    assert by_name.model_.predict(table) == by_name.predict(frame(X)).tolist()
    assert by_name.model_.plan.data.target == "ill"
    X = np.random.default_rng(4).uniform(-1, 1, (2000, 12))  # "x10" sorts before "x2"
    settings: dict[str, Any] = {"epsilon": 200.0, "bounds": (-1, 1), "target_bounds": (-30, 30), "clip": 3.0}
    by_place = ringfence.FederatedLinearRegression(unusual_budget=True, **settings).fit(X, X @ np.arange(12.0))
    assert not hasattr(by_place, "feature_names_in_")
    assert np.allclose(by_place.coef_, np.arange(12.0), atol=1.0)


def test_three_classes_are_told_apart_by_softmax() -> None:
    X, _, silos = patients(900)
    y = np.digitize(X[:, 1], [45, 65])
    fitted = classifier(classes=[2, 0, 1], epsilon=20.0).fit(X, y, silos=silos)
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.coef_.shape == (3, 2)
    assert np.allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
    assert np.array_equal(fitted.predict(X), np.argmax(fitted.decision_function(X), axis=1))
    assert fitted.score(X, y) > 0.6


@pytest.mark.parametrize(
    "regressor",
    [
        ringfence.FederatedLinearRegression(),
        ringfence.FederatedHuberRegressor(threshold=20.0),
        ringfence.FederatedQuantileRegressor(),
    ],
    ids=lambda regressor: type(regressor).__name__,
)
def test_a_regressor_learns_in_the_units_of_x_and_y(regressor: Any) -> None:
    X, _, silos = patients(1500)
    y = 2.0 * X[:, 0] - 3.0 * X[:, 1] + 40.0
    settings: dict[str, Any] = {"epsilon": 50.0, "unusual_budget": True, "clip": 1.0}
    settings |= {"bounds": ([50, 0], [250, 120]), "target_bounds": (-100, 500)}
    fitted = regressor.set_params(**settings).fit(X, y, silos=silos)
    assert fitted.coef_.shape == (2,)
    assert isinstance(fitted.intercept_, float)
    assert np.allclose(fitted.predict(X), X @ fitted.coef_.T + fitted.intercept_)
    assert fitted.score(X, y) > 0.9
    assert fitted.coef_ == pytest.approx([2.0, -3.0], abs=0.6)


def test_the_huber_threshold_is_in_the_target_s_units() -> None:
    X, y = np.linspace(-1, 1, 50)[:, None], np.linspace(0, 1000, 50)
    settings: dict[str, Any] = {"epsilon": 8.0, "bounds": (-1, 1), "target_bounds": (0, 1000)}
    fitted = ringfence.FederatedHuberRegressor(threshold=100.0, **settings).fit(X, y)
    assert isinstance(fitted.plan_.loss, Huber)
    assert fitted.plan_.loss.threshold == pytest.approx(0.2)  # of a target scaled to ±1, which is ±500


def test_a_support_vector_machine_refuses_three_classes_and_names_the_one_that_takes_them() -> None:
    X, y, _ = patients(60)
    machine = ringfence.FederatedLinearSVC(bounds=(0, 300), classes=["no", "yes", "maybe"])
    with pytest.raises(EstimatorError, match="FederatedLogisticRegression"):
        machine.fit(X, y)


def test_silos_may_be_labels_a_list_of_tables_or_a_mapping() -> None:
    X, y, _ = patients(90)
    sizes = {"b": 20, "a": 30, "c": 40}
    parts = [slice(0, 20), slice(20, 50), slice(50, 90)]
    frames, targets = [frame(X[part]) for part in parts], [y[part] for part in parts]
    arrays = [X[part] for part in parts]
    for given, silos, expected in [
        ((X, y), np.repeat(list("bac"), [20, 30, 40]), {"a": 30, "b": 20, "c": 40}),
        ((X, y), np.repeat([10, 9, 2], [20, 30, 40]), {"2": 40, "9": 30, "10": 20}),
        ((X, y), None, {"all": 90}),
        ((arrays, targets), ["b", "a", "c"], sizes),
        ((frames, targets), None, {"silo-1": 20, "silo-2": 30, "silo-3": 40}),
        ((dict(zip("bac", frames, strict=True)), dict(zip("bac", targets, strict=True))), None, sizes),
    ]:
        plan = classifier().fit(*given, silos=silos).plan_
        assert [(terms.name, terms.records) for terms in plan.silos] == list(expected.items())


def test_labels_and_tables_that_do_not_fit_together_are_refused() -> None:
    X, y, _ = patients(30)
    for tables, targets, silos, says in [
        (X, y, ["a"] * 29, "one label for each of the 30 rows"),
        (X, y, [None] + ["a"] * 29, "without a label"),
        (X, y, [float("nan")] + ["a"] * 29, "without a label"),
        (X, y, [1] * 15 + ["1"] * 15, "same text but different types"),
        ([X, X[:, :1]], [y, y], None, "different numbers of columns"),
        ([frame(X), frame(X)[["age", "pressure"]]], [y, y], None, "same columns in the same order"),
        ([X, X], [y], None, "y must be a list of 2 arrays"),
        ([X, X], [y, y[:5]], None, "30 rows in X but 5 in y"),
        ([X, X], [y, y], ["a", "a"], "the same silo"),
        ({"a": X}, {"b": y}, None, "the same keys"),
        ({"a": X}, {"a": y}, ["a"], "leave `silos` out"),
        ({}, {}, None, "no table"),
    ]:
        with pytest.raises(EstimatorError, match=says):
            classifier().fit(tables, targets, silos=silos)


@pytest.mark.parametrize("epsilon", [{"0": 1.0, "1": 2.0, "2": 0.5}, [1.0, 2.0, 0.5]])
def test_every_silo_has_its_own_budget(epsilon: Any) -> None:
    X, y, _ = patients(90)
    asked_for = classifier(epsilon=epsilon, delta=[1e-6, 1e-7, 1e-8], anyway=True)
    fitted = asked_for.fit(X, y, silos=np.repeat([0, 1, 2], 30))
    asked = {terms.name: (terms.guarantee.epsilon, terms.guarantee.delta) for terms in fitted.plan_.silos}
    assert asked == {"0": (1.0, 1e-6), "1": (2.0, 1e-7), "2": (0.5, 1e-8)}
    for name, guarantee in fitted.privacy_.silos.items():
        assert guarantee.run.epsilon == pytest.approx(asked[name][0], rel=1e-4)
        assert guarantee.run.epsilon <= asked[name][0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epsilon": {"0": 1.0}}, "has no number for 1, 2"),
        ({"epsilon": [1.0, 2.0]}, "2 numbers, but there are 3 silos"),
        ({"delta": "small"}, "must be one number for all silos"),
        ({"epsilon": -1.0}, "positive number"),
        ({"epsilon": None}, "positive number"),
        ({"bounds": (0, 1, 2)}, "two sequences of 2 numbers"),
        ({"bounds": ([0, 0, 0], [1, 1, 1])}, "two sequences of 2 numbers"),
        ({"bounds": (5, 5)}, "lower must be smaller than upper"),
        ({"bounds": {"age": (0, 1)}}, "one entry for each column"),
        ({"cap": 3.0}, "`cap` must be"),
        ({"ledgers": "no such folder"}, "must be an existing folder"),
        ({"classes": ["no"]}, "at least two"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changes: dict[str, Any], says: str) -> None:
    X, y, silos = patients(30)
    with pytest.raises(EstimatorError, match=says):
        classifier(**changes).fit(X, y, silos=silos)


@pytest.mark.parametrize(
    ("estimator", "X", "y"),
    [
        (classifier(), np.array([[1.0, 2.0], ["sEcReT", 3.0]] * 20, dtype=object), ["no", "yes"] * 20),
        (ringfence.FederatedLinearRegression(bounds=(0, 1), target_bounds=(0, 1)), np.zeros((40, 1)), ["sEcReT"] * 40),
        (ringfence.FederatedPoissonRegressor(bounds=(0, 1), target_bounds=(0, 1)), np.zeros((40, 1)), ["sEcReT"] * 40),
        (ringfence.FederatedSurvivalRegressor(bounds=(0, 1), time_bound=1), np.zeros((40, 1)), [["sEcReT"] * 2] * 40),
    ],
)
def test_text_that_is_no_number_is_refused_without_quoting_it(estimator: Any, X: Any, y: Any) -> None:
    with pytest.raises(EstimatorError, match="number") as refused:
        estimator.fit(X, np.array(y))
    assert "sEcReT" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.fixture(scope="module")
def schema() -> Schema:
    columns = {
        "age": {"type": "numeric", "lower": 0, "upper": 120, "center": 50, "scale": 20, "missing": 40},
        "ward": {"type": "categorical", "categories": ["a", "b", "c"]},
        "pain": {"type": "categorical", "categories": ["0", "1", "2", "3"], "ordered": True},
        "name": {"type": "ignore"},
        "ill": {"type": "categorical", "categories": ["no", "yes"]},
    }
    return parse_schema({"columns": columns}, target="ill")


def hospital(count: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    random = np.random.default_rng(6)
    table = pd.DataFrame(
        {
            "pain": random.integers(0, 4, count),
            "name": ["somebody"] * count,
            "ward": random.choice(["a", "b", "c"], count),
            "age": random.uniform(0, 100, count),
        }
    )
    score = (table["age"] - 50) / 20 + table["pain"] - 1.5 + (table["ward"] == "b")
    table.loc[0, "age"] = np.nan
    return table, np.where(score > 0, "yes", "no")


def test_a_schema_takes_categories_ordered_ones_and_missing_cells_and_prediction_its_columns_in_any_order(
    schema: Schema,
) -> None:
    table, y = hospital(1500)
    fitted = classifier(bounds=None, classes=None, schema=schema, epsilon=20.0).fit(table, y)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.feature_names_in_.tolist() == list(table.columns)
    linear = fitted.model_.linear()
    assert linear.features == ("age", "pain", "ward=a", "ward=b", "ward=c")
    by_hand = np.column_stack(
        [table["age"].fillna(40.0), table["pain"], *[(table["ward"] == ward) for ward in "abc"]]
    ).astype(float)
    assert np.allclose(fitted.decision_function(table), by_hand @ fitted.coef_[0] + fitted.intercept_)
    assert fitted.score(table, y) > 0.85
    assert (fitted.predict(table[["ward", "age", "pain"]]) == fitted.predict(table)).all(), "new rows have no 'name'"
    with pytest.raises(RecordsError, match="has no column 'age', which the schema names"):
        fitted.predict(table[["ward", "pain"]])


def test_a_schema_s_maps_let_an_estimator_fit_a_curve() -> None:
    """The noise in scores is about 10⁻⁴ of the target's variance (`noise_warnings`): R² is off by less than 0.1."""
    random = np.random.default_rng(7)
    table = pd.DataFrame({"age": random.uniform(0, 100, 3000)})
    y = np.cos(table["age"] / 100 * 2 * np.pi)  # no straight line tells anything of it
    number = {"type": "numeric", "lower": 0, "upper": 100}
    content: dict[str, Any] = {"columns": {"age": number, "cost": {"type": "numeric", "lower": -1, "upper": 1}}}
    found = {}
    for name, maps in (("plain", None), ("curve", [{"type": "spline", "columns": ["age"]}])):
        schema = parse_schema({**content, "maps": maps}, target="cost")
        fitted = ringfence.FederatedLinearRegression(schema=schema, epsilon=6.0, cap=(20.0, 1e-4)).fit(table, y)
        found[name] = fitted.score(table, y)
        assert np.size(fitted.coef_) == schema.width - 1
    assert found["plain"] < 0.1
    assert found["curve"] > 0.85


def test_a_schema_s_categories_may_go_by_other_labels(schema: Schema) -> None:
    table, y = hospital(60)
    fitted = classifier(bounds=None, classes=[0, 1], schema=schema).fit(table, (y == "yes").astype(int))
    assert fitted.classes_.tolist() == [0, 1]
    assert set(fitted.predict(table)) <= {0, 1}


def test_what_a_schema_does_not_describe_is_refused_without_a_value(schema: Schema) -> None:
    table, y = hospital(30)
    strange = table.assign(ward=["hospice" if row == 7 else ward for row, ward in enumerate(table["ward"])])
    regression, by_schema = ringfence.FederatedLinearRegression(schema=schema), {"bounds": None, "schema": schema}
    for model, X, says in [
        (classifier(**by_schema, classes=None), strange, "row 9, column 'ward'"),
        (classifier(**by_schema, classes=[0, 1]), table, "Row 0 of y"),
        (classifier(**by_schema, classes=[0, 1, 2]), table, "must list 2 different labels"),
        (classifier(**by_schema, classes=None), table.to_numpy(), "X has no column names"),
        (classifier(schema=schema, classes=None), table, "Both `bounds` and `schema`"),
        (regression, table, "use one of the classifiers"),
    ]:
        with pytest.raises(ringfence.RingfenceError, match=says) as refused:
            model.fit(X, y)
        assert "hospice" not in str(refused.value)


def test_without_an_intercept_zero_scores_zero() -> None:
    X, y, _ = patients(60)
    fitted = classifier(bounds=([-250, -120], [250, 120]), fit_intercept=False).fit(X, y)
    assert fitted.decision_function([[0.0, 0.0]])[0] == 0.0


def test_pipelines_clones_and_cross_validation_route_the_silos() -> None:
    X, y, silos = patients(900)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = classifier(bounds=([0.5, 0], [2.5, 1.2]), cap=(200.0, 1e-5), unusual_budget=True).set_fit_request(
            silos=True
        )
        pipeline = make_pipeline(FunctionTransformer(lambda table: table / 100.0), clone(estimator))
        fitted = pipeline.fit(X, y, silos=silos)
        assert [terms.records for terms in fitted[-1].plan_.silos] == [300, 300, 300]
        scores = cross_val_score(pipeline, X, y, cv=KFold(3), params={"silos": silos}, error_score="raise")
    assert scores.shape == (3,)
    assert np.all(scores > 0.7)


def test_a_fitted_estimator_s_model_can_be_saved_and_says_what_was_promised(tmp_path: Path) -> None:
    X, y, silos = patients(90)
    fitted = classifier(epsilon=2.0, anyway=True).fit(X, y, silos=silos)
    fitted.model_.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert str(loaded.statement) == str(fitted.privacy_)
    assert "epsilon = 2," in str(loaded.statement)


def test_without_scikit_learn_the_message_names_the_extra_and_the_rest_works() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import ringfence; ringfence.Plan\n"
        "try: ringfence.FederatedLogisticRegression\n"
        "except ModuleNotFoundError as missing: print(missing)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert "ringfence[estimators]" in printed
