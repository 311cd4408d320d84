"""`estimator.summary`: every coefficient with its interval, in X's own units, and the rows pay for it too."""

from typing import Any

import numpy as np
import pytest

import ringfence
from ringfence.errors import ApprovalError, EstimatorError, PlanError

COEFFICIENTS = np.array([0.5, -3.0])
X = np.random.default_rng(1).uniform([50, 0], [150, 10], (3000, 2))
Y = 20 + X @ COEFFICIENTS + np.random.default_rng(2).normal(0, 6, 3000)
SILOS = np.arange(3000) % 3


def fitted(**changes: Any) -> ringfence.FederatedLinearRegression:
    settings: dict[str, Any] = {
        "epsilon": 1.0,
        "bounds": ([50, 0], [150, 10]),
        "target_bounds": (0, 120),
        "max_rounds": 5,
        **changes,
    }
    return ringfence.FederatedLinearRegression(**settings).fit(X, Y, silos=SILOS)


def test_a_fitted_model_s_coefficients_get_intervals_in_the_units_of_x() -> None:
    """False alarm: one of three estimates is 6 of its standard errors off, 6e-9."""
    model = fitted()
    before = model.coef_.copy()
    summary = model.summary(X, Y, silos=SILOS, epsilon=4.0)
    for name, exact in {"x0": 0.5, "x1": -3.0, "(intercept)": 20.0}.items():
        found = summary.coefficients[name]
        assert abs(found.estimate - exact) < 6 * found.error
        assert found.error < 20 * 6 / np.sqrt(3000)
    assert list(summary.coefficients) == ["x1", "x0", "(intercept)"]
    assert "x1" in str(summary)
    assert np.array_equal(model.coef_, before)
    for silo in summary.statement.silos.values():
        assert silo.run.epsilon == 4.0
        assert silo.total.epsilon > 4.0  # the fit counts too


def test_a_cap_covers_fit_and_summary_together() -> None:
    model = fitted(cap=(1.5, 1e-5))
    with pytest.raises(ApprovalError, match="more than the cap"):
        model.summary(X, Y, silos=SILOS, epsilon=2.0)


def test_other_columns_other_levels_and_single_silos_are_refused_before_anything_is_released() -> None:
    model = fitted()
    with pytest.raises(EstimatorError, match="give the same columns and the same classes"):
        model.set_params(target_bounds=(0, 60)).summary(X, Y, silos=SILOS, epsilon=1.0)
    with pytest.raises(PlanError, match="must be between 0 and 1"):
        fitted().summary(X, Y, silos=SILOS, epsilon=1.0, level=95)
    with pytest.raises(PlanError, match="two silos or more"):
        fitted().summary(X, Y, epsilon=1.0, by_silo=True)
