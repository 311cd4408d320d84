"""What stands before an estimator in a pipeline must not have learned from the records."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

from ringfence.errors import EstimatorError
from ringfence.estimators import FederatedLinearRegression, FederatedLogisticRegression
from ringfence.protocol import parse_schema

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, (60, 2))
Y = X[:, 0] > 0


def estimator(**settings: Any) -> FederatedLogisticRegression:
    given = {"epsilon": 1.0, "bounds": (-3, 3), "classes": [False, True], "max_rounds": 3, "held_out": 0}
    return FederatedLogisticRegression(**{**given, "anyway": True, **settings})


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        PCA(1),
        SimpleImputer(),
        make_pipeline(Normalizer(), StandardScaler()),
        FeatureUnion([("plain", Normalizer()), ("scaled", StandardScaler())]),
        ColumnTransformer([("scaled", StandardScaler(), [0])], remainder="passthrough"),
        ColumnTransformer([("plain", Normalizer(), [0])], remainder=StandardScaler()),
        TargetEncoder(categories=[[0, 1], [0, 1]]),
        OneHotEncoder(categories=[[0, 1], [0, 1]], max_categories=2, sparse_output=False),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_that_learns_is_refused_with_the_remedy(step: Any) -> None:
    rounded = (X > 0).astype(float)
    with pytest.raises(EstimatorError, match=r"learned from all records.*`bounds`, or a `schema`.*FrozenEstimator"):
        make_pipeline(step, estimator()).fit(rounded, Y)
    with pytest.raises(EstimatorError, match="learned from all records"):
        make_pipeline(FunctionTransformer(), make_pipeline(step, estimator())).fit(rounded, Y)
    with pytest.raises(EstimatorError, match="learned from all records"):
        cross_val_score(make_pipeline(step, estimator(cap=(9.0, 1e-5))), rounded, Y, cv=KFold(2), error_score="raise")


def test_targets_that_a_step_learned_to_change_are_refused_too() -> None:
    regression = FederatedLinearRegression(
        epsilon=1.0, bounds=(-3, 3), target_bounds=(-1, 1), max_rounds=3, held_out=0, anyway=True
    )
    scaled = TransformedTargetRegressor(make_pipeline(Normalizer(), regression), transformer=StandardScaler())
    with pytest.raises(EstimatorError, match=r"StandardScaler .* learned from all records"):
        scaled.fit(X, X[:, 0])
    TransformedTargetRegressor(regression, func=np.tanh, inverse_func=np.arctanh, check_inverse=False).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "step",
    [
        FunctionTransformer(np.tanh),
        Normalizer(),
        PolynomialFeatures(2),
        OneHotEncoder(categories=[[0, 1], [0, 1]], sparse_output=False),
        FrozenEstimator(StandardScaler().fit(RANDOM.normal(size=(9, 2)))),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_that_learns_nothing_from_these_records_is_let_through(step: Any) -> None:
    binary = (RANDOM.uniform(size=(60, 2)) > 0.5).astype(float)
    fitted = make_pipeline(step, estimator(equal_rows="records")).fit(binary, binary[:, 0] > 0)
    assert fitted.predict(binary).shape == (60,)


def test_missing_values_lead_to_the_schema_and_to_no_imputer() -> None:
    gap = X.copy()
    gap[3, 1] = np.nan
    with pytest.raises(EstimatorError, match=r"contains NaN.*`missing`, and if you like `indicator`") as caught:
        estimator().fit(gap, Y)
    assert "use an imputer" not in str(caught.value)


def test_a_bound_that_is_missing_is_named_and_not_all_the_others() -> None:
    wide = pd.DataFrame({f"x{place}": X[:, 0] for place in range(30)})
    bounds = {name: (-1, 1) for name in wide.columns if name != "x17"}
    with pytest.raises(EstimatorError, match=r"there is none for 'x17'\.$"):
        estimator(bounds=bounds).fit(wide, Y)
    with pytest.raises(EstimatorError, match=r"X has no column 'z'\.$"):
        estimator(bounds={**bounds, "x17": (-1, 1), "z": (0, 1)}).fit(wide, Y)


def test_tables_of_polars_and_pyarrow_and_columns_of_vectors_are_taken() -> None:
    columns = {
        "image": {"type": "vector", "length": 2, "norm": 2.0, "extractor": "none", "digest": "0" * 64},
        "smoker": {"type": "boolean"},
        "ill": {"type": "boolean"},
    }
    schema = parse_schema({"columns": columns}, target="ill")
    held = {"image": X.tolist(), "smoker": [bool(value) for value in X[:, 1] > 0]}
    model = estimator(bounds=None, classes=None, schema=schema, cap=(9.0, 1e-4))
    for table in (pd.DataFrame(held), pl.DataFrame(held), pa.table(held)):
        fitted = model.fit(table, np.where(Y, "yes", "no"))
        assert (fitted.coef_.shape, fitted.predict(table).shape) == ((1, 3), (60,))
