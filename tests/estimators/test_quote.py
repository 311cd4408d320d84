"""An estimator says what to expect before it charges, and refuses what is not expected to beat guessing."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import ringfence
from ringfence.accounting import gaussian_shift
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.errors import PlanError
from ringfence.estimators import FederatedSearch
from ringfence.model.statement import Statement

X = np.random.default_rng(1).uniform(-1, 1, (1200, 2))
Y = np.where(X @ [2.0, 1.0] > 0, "yes", "no")
SMALL: dict[str, Any] = {"epsilon": 0.01}
"""A budget that buys nothing: the noise is a hundred times that of a fit that learns."""

REFUSED = r"nothing was charged: the model is not expected to beat guessing.*larger epsilon.*add anyway=True\.$"


def classifier(**changes: Any) -> ringfence.FederatedLogisticRegression:
    settings = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "classes": ["no", "yes"]}
    return ringfence.FederatedLogisticRegression(**{**settings, **changes})


def total(statement: Statement) -> float:
    return statement.silos["all"].total.epsilon


def test_a_hopeless_fit_is_refused_before_anything_is_charged_or_remembered(tmp_path: Path) -> None:
    model = classifier(**SMALL, ledgers=tmp_path)
    with pytest.raises(PlanError, match=REFUSED) as refused:
        model.fit(X, Y)
    assert "--" not in str(refused.value), "an estimator has no options of a command"
    assert not list(tmp_path.iterdir())
    fitted = classifier().fit(X, Y)  # other settings, which a fit that was remembered would rule out without a cap
    assert total(fitted.privacy_) == pytest.approx(1.0, rel=1e-4)


def test_an_estimator_whose_fit_was_refused_is_not_fitted_and_shows_the_quote() -> None:
    model = classifier(**SMALL)
    with pytest.raises(PlanError):
        model.fit(X, Y)
    assert "The model is not expected to beat guessing" in str(model.quote_)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.summary(X, Y, epsilon=1.0)


def test_anyway_fits_for_the_whole_price() -> None:
    fitted = classifier(**SMALL, anyway=True).fit(X, Y)
    assert not fitted.quote_.is_worth_it
    assert total(fitted.privacy_) == pytest.approx(0.01, rel=1e-3)
    assert total(classifier(**SMALL, anyway=True).fit(X, Y).privacy_) > 0.012, "the same settings again"


def test_a_fit_keeps_the_quote_and_a_summary_leaves_it() -> None:
    fitted = classifier().fit(X, Y)
    quote = fitted.quote_
    assert quote.plan == fitted.plan_
    assert quote.is_worth_it
    assert "accuracy to about ±0." in str(quote)
    assert "fewer errors than guessing" in str(quote)
    assert "Nothing has been charged" not in str(quote), "it has been by now"
    fitted.set_params(anyway=True).summary(X, Y, epsilon=1.0)
    assert fitted.quote_ is quote


def test_a_search_whose_candidates_are_hopeless_is_refused_and_anyway_runs_it() -> None:
    grid = {"ridge": [0.0, 0.1]}
    with pytest.raises(PlanError, match=REFUSED):
        FederatedSearch(classifier(**SMALL), grid).fit(X, Y)
    found = FederatedSearch(classifier(epsilon=0.02, anyway=True), grid).fit(X, Y)  # other settings, and no cap
    assert total(found.privacy_) == pytest.approx(0.02, rel=1e-3)
    assert not found.best_estimator_.quote_.is_worth_it


@pytest.mark.usefixtures("repeated_noise")
def test_a_summary_that_would_tell_nothing_is_refused_and_anyway_asks_for_it() -> None:
    model = ringfence.FederatedLinearRegression(epsilon=1.0, delta=1e-6, bounds=(-1, 1), target_bounds=(-3, 3))
    fitted = model.fit(X, X @ [2.0, 1.0])
    asked: dict[str, Any] = {"epsilon": 0.15, "delta": 1e-6}
    with pytest.raises(PlanError, match=r"nothing was charged: no figure would be precise enough.*anyway=True\.$"):
        fitted.summary(X, X @ [2.0, 1.0], **asked)
    summary = fitted.set_params(anyway=True).summary(X, X @ [2.0, 1.0], **asked)
    both = gaussian_epsilon(math.hypot(gaussian_shift(1.0, 1e-6), gaussian_shift(0.15, 1e-6)), 1e-6)
    assert total(summary.statement) == pytest.approx(both, rel=1e-3), "the refused one cost nothing"
