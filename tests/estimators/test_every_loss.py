"""Every loss, one's own too, trains in an estimator."""

from typing import Any

import pytest

import ringfence
from ringfence.errors import EstimatorError
from ringfence.protocol import Gamma, unpack
from tests.every_loss import CASES, DELTA, EPSILON, ROUNDS, SILOS, Case, table

ESTIMATORS: dict[str, Any] = {
    "squared": ringfence.FederatedLinearRegression(),
    "multi-squared": ringfence.FederatedLinearRegression(),
    "huber": ringfence.FederatedHuberRegressor(),
    "absolute": ringfence.FederatedLinearRegression(loss="absolute"),
    "pinball": ringfence.FederatedQuantileRegressor(quantile=0.7),
    "epsilon-insensitive": ringfence.FederatedLinearRegression(loss="epsilon-insensitive"),
    "custom": ringfence.FederatedLinearRegression(),
    "logistic": ringfence.FederatedLogisticRegression(),
    "hinge": ringfence.FederatedLinearSVC(),
    "softmax": ringfence.FederatedLogisticRegression(),
    "ordinal": ringfence.FederatedOrdinalClassifier(),
    "poisson": ringfence.FederatedPoissonRegressor(),
    "negative-binomial": ringfence.FederatedNegativeBinomialRegressor(dispersion=0.5),
    "gamma": ringfence.FederatedGammaRegressor(),
    "survival": ringfence.FederatedSurvivalRegressor(cuts=(0.5, 1.5)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_trains_in_an_estimator(case: Case) -> None:
    tables = {name: table(seed)[case.columns] for seed, name in enumerate(SILOS)}
    settings: dict[str, Any] = {
        "epsilon": EPSILON,
        "delta": DELTA,
        "cap": (10 * EPSILON, 1e-5),
        "unusual_budget": True,
        "held_out": 0,
    }
    settings["anyway"] = True  # twelve plain rounds learn something, and need not beat the best constant
    model = ESTIMATORS[case.loss].set_params(schema=case.schema, algorithm="accelerated", max_rounds=ROUNDS, **settings)
    if case.loss == "custom":
        model.set_params(loss=case.asked)
    X = {name: own.drop(columns=case.targets) for name, own in tables.items()}
    text: Any = case.targets if case.more_targets else case.target
    model.fit(X, {name: own[text] for name, own in tables.items()})
    case.require_learned(model.plan_, unpack(model.model_.weights))
    assert len(model.predict(X["north"])) == len(X["north"])


@pytest.mark.parametrize("loss", ["poisson", Gamma(), None, 3], ids=str)
def test_a_linear_regression_takes_no_loss_of_anything_else(loss: Any) -> None:
    model = ringfence.FederatedLinearRegression(bounds=(-1, 1), target_bounds=(0, 9), loss=loss)
    with pytest.raises(EstimatorError, match="`loss` must be one of squared, absolute, epsilon-insensitive"):
        model.fit([[0.5], [0.1]] * 20, [1.0, 2.0] * 20)
