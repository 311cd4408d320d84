"""Settings of an estimator are tried for the price of one fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import ringfence
from ringfence.accounting import accountant
from ringfence.errors import ApprovalError, EstimatorError
from ringfence.estimators import FederatedSearch
from ringfence.silo.ledger.ledger import Ledger
from tests.estimators.test_privacy import DELTA, classifier, together, total

RANDOM = np.random.default_rng(4)
X = RANDOM.uniform(-1, 1, (1200, 3))
Y = np.where(X @ [1.0, -1.0, 0.5] > 0, "yes", "no")
SILOS = np.repeat(["a", "b", "c"], 400)
GRID: dict[str, list[Any]] = {"clip": [0.001, 1.0]}
"""A candidate whose gradients are cut to next to nothing, which learns next to nothing, and a good one."""


def search(grid: Any = GRID, **changes: Any) -> FederatedSearch:
    return FederatedSearch(classifier(**{"epsilon": 15.0, "max_rounds": 20, **changes}), grid)


def test_the_best_settings_are_found_told_and_used() -> None:
    """At this epsilon the candidates' losses differ by over ten deviations of the noise, and so does the score."""
    found = search().fit(X, Y, silos=SILOS)
    assert (found.best_params_, found.best_index_, found.best_estimator_.clip) == ({"clip": 1.0}, 1, 1.0)
    assert found.results_["params"] == [{"clip": 0.001}, {"clip": 1.0}]
    assert list(found.results_["rank"]) == [2, 1]
    assert found.results_["low"][0] > 0
    assert found.results_["loss_above_best"][1] == 0.0
    low, high = found.best_score_interval_
    assert low < found.best_score_ <= high  # which is 1 where noise puts the score there or beyond
    assert abs(found.best_score_ - found.score(X, Y)) < 0.15
    assert np.array_equal(found.predict(X), found.best_estimator_.predict(X))
    assert found.predict_proba(X[:2]).shape == (2, 2)
    assert (list(found.classes_), found.n_features_in_) == (["no", "yes"], 3)
    assert found.evaluation_.together.records == 240


def test_all_of_it_costs_one_epsilon_and_later_fits_come_on_top() -> None:
    found = search({"clip": [0.5, 1.0], "ridge": [0.0, 0.1]}, epsilon=1.0, max_rounds=5).fit(X, Y, silos=SILOS)
    for silo in "abc":
        assert found.privacy_.silos[silo].run.epsilon == 1.0
        assert total(found, silo) == pytest.approx(1.0, rel=1e-4)
    assert "This run trained 4 candidates" in str(found.privacy_)
    again = search({"clip": [0.5, 1.0], "ridge": [0.0, 0.1]}, epsilon=1.0, max_rounds=5).fit(X, Y, silos=SILOS)
    assert total(again, "a") == pytest.approx(together(2), rel=1e-3)
    with pytest.raises(ApprovalError, match=r"ringfence\.estimators\.FederatedSearch"):
        classifier().fit(X, Y, silos=SILOS)


def test_a_row_that_changes_its_place_between_two_searches_pays_for_the_dearer_parts_of_both() -> None:
    """Where a row stands decides whether it trains: what it paid in one place must not be forgotten in another."""
    search(epsilon=1.0, max_rounds=5).fit(X, Y)
    moved = np.roll(np.arange(len(X)), 1)
    assert total(search(epsilon=1.0, max_rounds=5).fit(X[moved], Y[moved])) == pytest.approx(together(2), rel=1e-3)


def test_a_cap_refuses_the_whole_search_before_anything_is_released() -> None:
    with pytest.raises(ApprovalError, match="more than the cap"):
        search(epsilon=1.0, cap=(0.9, DELTA)).fit(X, Y)
    assert total(search(epsilon=1.0, cap=(1.0, DELTA), max_rounds=5).fit(X, Y)) <= 1.0


def test_named_ledgers_hold_every_plan_of_the_search(tmp_path: Path) -> None:
    found = search(epsilon=1.0, max_rounds=5, ledgers=tmp_path).fit(X, Y, silos=SILOS)
    with Ledger.open(tmp_path / "b.ledger") as ledger:
        account = ledger.account()
    assert len(account.plans) == 3
    assert account.guarantees()[0].epsilon == 1.0
    assert accountant.epsilon(account.charged(), DELTA) == pytest.approx(1.0, rel=1e-4)
    assert found.privacy_.silos["b"].total.epsilon == 1.0


def test_persons_and_numbers_are_searched_for_too() -> None:
    """Of so many rows that the candidates' losses differ by eight deviations of the noise, wherever it puts the cut."""
    persons = np.repeat(np.arange(600), 2)
    found = search({"person_rule": ["mean", "sum"]}, epsilon=1.0, max_rounds=5).fit(X, Y, persons=persons)
    assert found.choice_.unit == "person"
    assert found.evaluation_.together.records == 120
    settings: dict[str, Any] = {"epsilon": 15.0, "delta": DELTA, "max_rounds": 20}
    regression = ringfence.FederatedLinearRegression(bounds=(-1, 1), target_bounds=(-3, 3), **settings)
    many = np.random.default_rng(5).uniform(-0.5, 0.5, (24_000, 3))
    labels = np.repeat(["a", "b", "c"], 8_000)
    fitted = FederatedSearch(regression, GRID).fit(many, many @ [2.0, -2.0, 1.0], silos=labels)
    assert fitted.best_params_ == {"clip": 1.0}
    assert not hasattr(fitted, "predict_proba")


def test_it_is_cloned_and_shown_as_scikit_learn_does_it() -> None:
    made = search()
    assert clone(made).get_params()["estimator__epsilon"] == 15.0
    assert "FederatedSearch" in repr(made)
    assert made.set_params(estimator__ridge=0.5).estimator.ridge == 0.5


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (search({"clip": [1.0]}), "one candidate, so there is nothing to choose from"),
        (search({"clip": []}), r"must list the values of 'clip' to try, like \[0.5, 1, 2\]"),
        (search({"clip": 1.0}), "must list the values of 'clip'"),
        (search({"algorithm": "accelerated"}), "must list the values of 'algorithm'"),
        (search({"ridge": [0.0, 0.1, 0]}), "A value of 'ridge' is listed twice"),
        (search({"epsilon": [1.0, 2.0]}), "cannot try 'epsilon': candidates may differ only in how they are trained"),
        (search({"classes": [1, 2]}), "cannot try 'classes'"),
        (search([{"clip": [1.0, 2.0]}]), "must be one mapping"),
        (search({"ridge": list(range(65))}), "65 candidates, more than the 64 allowed"),
        (FederatedSearch(LogisticRegression(), {"C": [1, 2]}), "must be one of Ringfence's"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_is_released(made: FederatedSearch, says: str) -> None:
    with pytest.raises(EstimatorError, match=says):
        made.fit(X, Y)
    assert total(classifier().fit(X, Y)) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(("held_out", "says"), [(0.0, "holds none out"), (0.995, "between 0 and 0.99")])
def test_some_records_must_be_held_out_and_some_must_train(held_out: float, says: str) -> None:
    with pytest.raises(ringfence.RingfenceError, match=says):
        FederatedSearch(classifier(held_out=held_out), GRID).fit(X, Y)
    with pytest.raises(ringfence.RingfenceError, match="too few to hold some out"):
        FederatedSearch(classifier(), GRID).fit(X[:2], ["no", "yes"])
