"""Counts, amounts, ordered classes and times: what other software finds, up to little noise; and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import ringfence
from ringfence.errors import OutputError
from ringfence.protocol import parse_schema

LITTLE_NOISE: dict[str, Any] = {"epsilon": 1e9, "unusual_budget": True, "cap": (1e12, 1e-5), "held_out": 0}
LITTLE_NOISE |= {"max_rounds": 1000, "bounds": (-1, 1)}
RANDOM = np.random.default_rng(1)
X = RANDOM.uniform(-1, 1, size=(600, 2))
MEANS = np.exp(X @ [0.6, -0.8] + 0.2)
COUNTS = RANDOM.poisson(MEANS).astype(np.float64)
TIMES = np.minimum(RANDOM.exponential(1 / MEANS), 2.0)
EVENTS = (TIMES < 2.0) * 1.0
PAIRS = np.column_stack([TIMES, EVENTS])
NUMBER = {"type": "numeric", "lower": -1.0, "upper": 1.0}


def test_counts_have_the_coefficients_of_statsmodels_and_an_export_predicts_alike() -> None:
    model = ringfence.FederatedPoissonRegressor(target_bounds=(0, 20), clip=4.0, **LITTLE_NOISE).fit(X, COUNTS)
    exact = sm.GLM(COUNTS, sm.add_constant(X), family=sm.families.Poisson()).fit().params
    # No gradient is longer than the clip. What 1000 rounds leave of the start, 1/R², and the noise are less than this.
    np.testing.assert_allclose([model.intercept_, *model.coef_], exact, atol=0.02)
    exported = model.model_.linear().to_scikit_learn()
    np.testing.assert_allclose(exported.predict(pd.DataFrame(X, columns=exported.feature_names_in_)), model.predict(X))


def test_with_an_exposure_a_rate_is_learned_and_a_count_predicted() -> None:
    years = RANDOM.uniform(0.5, 3.0, len(X))
    counts = RANDOM.poisson(years * MEANS)
    years_column = {"type": "numeric", "lower": 0.5, "upper": 3.0}
    columns = {"a": NUMBER, "b": NUMBER, "years": years_column, "n": {"type": "numeric", "lower": 0.0, "upper": 40.0}}
    schema = parse_schema({"columns": columns, "exposure": "years"}, target="n")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "years": years})
    settings = LITTLE_NOISE | {"bounds": None, "clip": 4.0}
    model = ringfence.FederatedPoissonRegressor(schema=schema, **settings).fit(frame, counts)
    family = sm.families.Poisson()
    exact = sm.GLM(counts, sm.add_constant(X), family=family, offset=np.log(years)).fit().params
    np.testing.assert_allclose([model.intercept_, *model.coef_], exact, atol=0.02)
    twice = model.predict(frame.assign(years=1.5)) / model.predict(frame.assign(years=0.75))
    np.testing.assert_allclose(twice, 2.0)
    cells = {name: [str(cell) for cell in frame[name]] for name in frame}
    np.testing.assert_allclose(np.array(model.model_.predict(cells), dtype=np.float64), model.predict(frame))
    with pytest.raises(ringfence.errors.RecordsError, match="'years': this exposure is outside"):
        model.fit(frame.assign(years=5.0), counts)


def test_times_have_hazard_ratios_of_the_intervals_regression_and_a_falling_survival() -> None:
    model = ringfence.FederatedSurvivalRegressor(time_bound=2.0, cuts=(0.5, 1.0), clip=8.0, **LITTLE_NOISE)
    model.fit(X, PAIRS)
    cox = sm.PHReg(TIMES, X, status=EVENTS).fit(disp=False).params
    # The hazard is constant here: both estimate the same ratios, and differ by less than their deviation of 0.08.
    np.testing.assert_allclose(model.coef_, cox, atol=0.08)
    survival = model.predict_survival(X[:5], [0.0, 0.3, 0.9, 1.7])
    np.testing.assert_allclose(survival[:, 0], 1.0)
    assert (np.diff(survival, axis=1) < 0).all()
    assert model.score(X, PAIRS) > 0.6
    with pytest.raises(OutputError, match="scikit-learn has no model with the survival loss"):
        model.model_.linear().to_scikit_learn()
    assert "log hazard from target 0.5" in model.model_.linear().to_csv()


def test_ordered_classes_are_predicted_with_probabilities_that_add_up_to_one() -> None:
    places = np.searchsorted([-1.0, 0.0, 1.0], 2 * X[:, 0] - 2 * X[:, 1] + RANDOM.logistic(size=len(X)))
    model = ringfence.FederatedOrdinalClassifier(classes=[0, 1, 2, 3], clip=50.0, **LITTLE_NOISE).fit(X, places)
    assert model.coef_.shape == (1, 2)
    assert list(model.intercept_) == sorted(model.intercept_, reverse=True)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert set(model.predict(X)) <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("estimator", "y", "refusal"),
    [
        (ringfence.FederatedPoissonRegressor(target_bounds=(-1, 9)), COUNTS, "targets 0 or more"),
        (ringfence.FederatedPoissonRegressor(target_bounds=(0, 9)), COUNTS - 1, "is not 0 or more"),
        (ringfence.FederatedGammaRegressor(target_bounds=(0.1, 9)), COUNTS, "is not above 0"),
        (ringfence.FederatedSurvivalRegressor(time_bound=2.0), PAIRS - [1.0, 0.0], "a negative time"),
        (ringfence.FederatedSurvivalRegressor(time_bound=2.0), PAIRS * [1.0, 0.0], "All times are censored"),
        (ringfence.FederatedSurvivalRegressor(), PAIRS, "`time_bound` is missing"),
        (ringfence.FederatedSurvivalRegressor(time_bound=2.0), PAIRS * 3.0, "two columns"),
    ],
)
def test_targets_that_the_model_is_not_of_are_refused(estimator: Any, y: Any, refusal: str) -> None:
    with pytest.raises(ringfence.RingfenceError, match=refusal):
        estimator.set_params(bounds=(-1, 1)).fit(X, y)
