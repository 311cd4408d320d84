"""Private linear models with scikit-learn's interface: a whole federation of silos behind `fit`.

>>> from ringfence.estimators import FederatedLogisticRegression
>>> FederatedLogisticRegression(epsilon=1.0, bounds=(0.0, 1.0)).get_params()["epsilon"]
1.0
"""

try:
    from ringfence.estimators.generalised import (
        FederatedGammaRegressor,
        FederatedNegativeBinomialRegressor,
        FederatedOrdinalClassifier,
        FederatedPoissonRegressor,
        FederatedSurvivalRegressor,
    )
    from ringfence.estimators.linear import (
        FederatedHuberRegressor,
        FederatedLinearRegression,
        FederatedLinearSVC,
        FederatedLogisticRegression,
        FederatedQuantileRegressor,
    )
    from ringfence.estimators.search import FederatedSearch
except ModuleNotFoundError as missing:
    if (missing.name or "").split(".", maxsplit=1)[0] != "sklearn":
        raise
    raise ModuleNotFoundError(
        'The estimators need scikit-learn, which is not installed: pip install "ringfence[estimators]".', name="sklearn"
    ) from None

__all__ = [
    "FederatedGammaRegressor",
    "FederatedHuberRegressor",
    "FederatedLinearRegression",
    "FederatedLinearSVC",
    "FederatedLogisticRegression",
    "FederatedNegativeBinomialRegressor",
    "FederatedOrdinalClassifier",
    "FederatedPoissonRegressor",
    "FederatedQuantileRegressor",
    "FederatedSearch",
    "FederatedSurvivalRegressor",
]
