"""Several targets at once: shapes as in scikit-learn, what it finds up to little noise, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import ringfence
from ringfence.protocol import FloatArray, Schema, parse_schema
from tests.estimators.test_generalised import LITTLE_NOISE

FEW_ROUNDS = LITTLE_NOISE | {"max_rounds": 250}

RANDOM = np.random.default_rng(4)
X = RANDOM.uniform(-1, 1, size=(300, 2))
SLOPES = np.array([[1.0, -20.0, 0.1], [0.5, 30.0, 0.0]])


def targets(features: FloatArray) -> FloatArray:
    errors = RANDOM.normal(size=(len(features), 3)) * [0.1, 2, 0.1]
    return np.asarray(features @ SLOPES + [2.0, 10.0, 0.0] + errors)


Y = targets(X)
BOUNDS = ([-1, -80, -1], [5, 80, 1])
RANGES = np.subtract(BOUNDS[1], BOUNDS[0])
EXACT = LinearRegression().fit(X, Y)


def schema() -> Schema:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    targets = {
        name: {"type": "numeric", "lower": float(low), "upper": float(high)}
        for name, low, high in zip("pqr", *BOUNDS, strict=True)
    }
    return parse_schema({"columns": {"a": number, "b": number, **targets}}, target=["p", "q", "r"])


def test_all_targets_have_the_coefficients_of_least_squares_in_scikit_learn_s_shapes() -> None:
    model = ringfence.FederatedLinearRegression(target_bounds=BOUNDS, clip=5.0, **FEW_ROUNDS)
    model.fit(X, Y)
    assert model.coef_.shape == EXACT.coef_.shape == (3, 2)
    assert model.intercept_.shape == EXACT.intercept_.shape == (3,)
    assert model.plan_.loss.name == "multi-squared"
    # What 250 rounds leave of the start, 1/R², and the noise are less than this part of each target's range.
    np.testing.assert_allclose(model.coef_.T / RANGES, EXACT.coef_.T / RANGES, atol=1e-3)
    np.testing.assert_allclose(model.predict(X) / RANGES, EXACT.predict(X) / RANGES, atol=1e-3)
    assert model.score(X, Y) == pytest.approx(EXACT.score(X, Y), abs=1e-2)
    exported = model.model_.linear().to_scikit_learn()
    np.testing.assert_allclose(exported.predict(pd.DataFrame(X, columns=exported.feature_names_in_)), model.predict(X))


def test_one_target_that_stands_upright_keeps_its_column() -> None:
    model = ringfence.FederatedLinearRegression(target_bounds=(-1, 5), clip=5.0, **FEW_ROUNDS)
    model.fit(X, Y[:, :1])
    assert model.coef_.shape == (1, 2)
    assert model.predict(X).shape == (300, 1)
    assert model.plan_.loss.name == "squared"
    assert model.fit(X, Y[:, 0]).predict(X).shape == (300,)


@pytest.mark.parametrize("y", [Y, pd.DataFrame(Y[:, ::-1], columns=list("rqp"))], ids=["array", "frame"])
def test_a_schema_names_the_targets(y: Any) -> None:
    model = ringfence.FederatedLinearRegression(schema=schema(), clip=5.0, **FEW_ROUNDS | {"bounds": None})
    model.fit(pd.DataFrame(X, columns=["a", "b"]), y)
    np.testing.assert_allclose(model.coef_.T / RANGES, EXACT.coef_.T / RANGES, atol=1e-3)


def test_held_out_rows_tell_every_target_s_error_and_the_mean_of_what_is_explained() -> None:
    settings = FEW_ROUNDS | {"held_out": 0.3, "epsilon": 1e6}
    model = ringfence.FederatedLinearRegression(target_bounds=BOUNDS, clip=5.0, **settings)
    many = RANDOM.uniform(-1, 1, size=(3000, 2))
    model.fit(many, pd.DataFrame(targets(many), columns=list("pqr")))
    figures = {figure.name: figure for figure in model.evaluation_.together.metrics}
    # Of 900 records whose errors have these deviations, a mean error is nowhere near beyond twice its interval.
    for name, deviation in (("p", 0.1), ("q", 2.0), ("r", 0.1)):
        low, high = np.array([figures[f"{name}: MAE"].low, figures[f"{name}: MAE"].high], dtype=np.float64)
        assert 1.5 * low - 0.5 * high < deviation * np.sqrt(2 / np.pi) < 1.5 * high - 0.5 * low
    for end in ("low", "high"):
        explained = np.array([getattr(figures[f"{name}: R²"], end) for name in "pqr"], dtype=np.float64)
        assert getattr(figures["R²"], end) == pytest.approx(np.mean(explained))
    assert model.score_ == figures["R²"].value


@pytest.mark.parametrize(
    ("model", "columns", "says"),
    [
        (ringfence.FederatedLinearRegression(target_bounds=([0, 1], [2, 3])), 3, "3 numbers, one per column of y"),
        (ringfence.FederatedHuberRegressor(target_bounds=(-80, 80)), 3, "y should be a 1d array"),
        (ringfence.FederatedHuberRegressor(schema=schema()), 3, "several targets, .* use FederatedLinearRegression"),
        (ringfence.FederatedLinearRegression(schema=schema()), 2, "y must have these columns in this order: p, q, r"),
    ],
)
def test_targets_that_do_not_fit_are_refused_before_anything_is_released(model: Any, columns: int, says: str) -> None:
    if model.schema is None:
        model.set_params(bounds=(-1, 1))
    with pytest.raises(ValueError, match=says):
        model.fit(pd.DataFrame(X, columns=["a", "b"]), Y[:, :columns])
