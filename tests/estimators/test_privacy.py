"""What fits cost together, with every copy of a record, and the mistakes that are refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_validate

import ringfence
from ringfence.accounting import accountant
from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.events import GaussianRelease
from ringfence.errors import ApprovalError, EstimatorError
from ringfence.estimators import base
from ringfence.estimators.fit_memory import Memory
from ringfence.silo.ledger.ledger import Ledger

DELTA = 1e-6
X = np.random.default_rng(8).uniform(-1, 1, (90, 3))
Y = np.where(X @ [1.0, -1.0, 0.5] > 0, "yes", "no")
SILOS = np.repeat(["a", "b"], [40, 50])


def classifier(**changes: Any) -> ringfence.FederatedLogisticRegression:
    """Few rows at a small epsilon: what is tested is not what they teach."""
    settings = {"epsilon": 1.0, "delta": DELTA, "bounds": (-1, 1), "classes": ["no", "yes"], "max_rounds": 5}
    return ringfence.FederatedLogisticRegression(**{**settings, "anyway": True, **changes})


def together(fits: int, epsilon: float = 1.0) -> float:
    """The epsilon of that many fits: a Gaussian mechanism of μ, k times, is one of √k·μ."""
    return accountant.epsilon([(GaussianRelease(gaussian_shift(epsilon, DELTA) * np.sqrt(fits)), 1)], DELTA)


def total(fitted: Any, silo: str = "all") -> float:
    epsilon: float = fitted.privacy_.silos[silo].total.epsilon
    return epsilon


def test_a_second_fit_on_the_same_rows_says_what_both_cost() -> None:
    first = classifier().fit(X, Y, silos=SILOS)
    assert total(first, "a") == pytest.approx(1.0, rel=1e-4)
    assert "all runs" not in str(first.privacy_)
    second = classifier().fit(X, Y, silos=SILOS)
    for silo in "ab":
        assert total(second, silo) == pytest.approx(together(2), rel=1e-3)
        assert second.privacy_.silos[silo].run.epsilon == pytest.approx(1.0, rel=1e-4)
    said = " ".join(str(second.privacy_).split())
    assert f"all runs on this data, used so far, not a guarantee: epsilon = {total(second, 'a'):.4g}" in said
    assert "over all runs on this data so far, if none was chosen by the results of another" in said
    assert second.model_.guarantees["a"].total.epsilon == pytest.approx(1.0, rel=1e-4)  # of its ledger, not the memory


def test_other_rows_another_silo_or_another_process_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier().fit(X, Y)
    assert total(classifier().fit(X / 2, Y)) == pytest.approx(1.0, rel=1e-4)
    assert total(classifier().fit(X, Y, silos=["other"] * 90), "other") == pytest.approx(1.0, rel=1e-4)
    other_target = np.where(X[:, 0] > 0, "yes", "no")  # the same people, in another order
    assert total(classifier().fit(X[::-1], other_target)) == pytest.approx(together(2), rel=1e-3)
    monkeypatch.setattr(base, "MEMORY", Memory())
    assert total(classifier().fit(X, Y)) == pytest.approx(1.0, rel=1e-4)


def test_folds_cost_every_record_as_many_fits_as_it_was_in() -> None:
    found = cross_validate(classifier(cap=(9.0, DELTA)), X, Y, cv=KFold(3), return_estimator=True, error_score="raise")
    totals = [total(fitted) for fitted in found["estimator"]]
    # Every record of the second fold's training rows is in at most one earlier fit; likewise of the third's.
    assert totals == pytest.approx([together(1), together(2), together(2)], rel=1e-3)
    assert total(classifier().fit(X, Y)) == pytest.approx(together(3), rel=1e-3)


def test_a_cap_refuses_the_fit_that_would_exceed_it_and_counts_nothing() -> None:
    capped = classifier(cap=(together(2) * 1.01, DELTA))
    capped.fit(X, Y)
    capped.fit(X, Y)
    for _ in range(2):
        with pytest.raises(ApprovalError, match="more than the cap"):
            capped.fit(X, Y)
    assert total(classifier(cap=(20.0, DELTA)).fit(X, Y)) == pytest.approx(together(3), rel=1e-3)


def test_trying_other_settings_on_the_same_records_needs_a_cap() -> None:
    classifier().fit(X, Y)
    with pytest.raises(ApprovalError, match=r"cap=\(epsilon, delta\)"):
        classifier(ridge=0.1).fit(X, Y)
    with pytest.raises(ApprovalError, match="other settings"):
        classifier(ridge=0.1).fit(X[20:], Y[20:])
    classifier(ridge=0.1).fit(np.concatenate([X[:5], X[5:] / 3]), Y)  # a few rows that are equal by chance
    assert total(classifier(ridge=0.1, cap=(9.0, DELTA)).fit(X, Y)) > together(2)


@pytest.mark.parametrize(
    ("cap", "says"), [(None, "several times"), ((1.3, DELTA), "more than the cap"), ((5.0, DELTA), None)]
)
def test_a_grid_search_on_private_records_stays_within_its_cap_or_is_refused(cap: Any, says: str | None) -> None:
    search = GridSearchCV(classifier(cap=cap), {"ridge": [0.0, 0.1]}, cv=KFold(2), error_score="raise")
    if says is None:
        search.fit(X, Y)
        assert total(search.best_estimator_) == pytest.approx(together(3), rel=1e-3)  # two candidates, and the refit
    else:
        with pytest.raises(ApprovalError, match=says):
            search.fit(X, Y)


def test_named_ledgers_are_charged_and_outlive_the_process(tmp_path: Path) -> None:
    for runs in (1, 2):
        fitted = classifier(ledgers=tmp_path).fit(X, Y, silos=SILOS)
        assert together(runs) * (1 - 1e-6) < total(fitted, "b") < 1.1 * together(runs)
    with Ledger.open(tmp_path / "b.ledger") as ledger:
        assert len(ledger.account().plans) == 2
        assert ledger.account().guarantees() == fitted.privacy_.silos["b"].all_runs
        assert ledger.account().spent()[0].epsilon == pytest.approx(together(2), rel=1e-3)
    with pytest.raises(ApprovalError, match="more than its budget"):
        classifier(ledgers=str(tmp_path), cap=(1.5, DELTA)).fit(X / 2, Y, silos=SILOS)  # rows do not matter to it


@pytest.mark.parametrize(
    ("estimator", "says"),
    [
        (classifier(bounds=None), "`bounds` is missing.*not taken from X"),
        (classifier(classes=None), "`classes` is missing.*not taken from y"),
        (ringfence.FederatedLinearRegression(bounds=(-1, 1)), "`target_bounds` is missing.*not taken from y"),
    ],
)
def test_what_would_have_to_be_read_from_the_records_is_refused(estimator: Any, says: str) -> None:
    with pytest.raises(EstimatorError, match=says):
        estimator.fit(X, Y if hasattr(estimator, "classes") else X[:, 0])


def test_a_label_that_is_not_public_is_refused_by_row_and_not_by_value_and_nothing_is_charged() -> None:
    with pytest.raises(EstimatorError, match="Row 7 of y") as refused:
        classifier().fit(X, np.where(np.arange(90) == 7, "rare disease", Y))
    assert "rare" not in str(refused.value)
    assert total(classifier().fit(X, Y)) == pytest.approx(1.0, rel=1e-4)


def test_a_public_class_that_does_not_occur_is_learned_all_the_same() -> None:
    fitted = classifier(classes=["no", "yes", "maybe"]).fit(X, Y)
    assert fitted.classes_.tolist() == ["maybe", "no", "yes"]
    assert fitted.coef_.shape == (3, 3)


def test_a_fitted_estimator_holds_no_record_and_no_person() -> None:
    marked = X.copy()
    marked[11] = [0.123456789, 0.987654321, -0.555555555]
    fitted = classifier().fit(marked, Y, persons=[f"MRN-{row}" for row in range(90)])
    content = pickle.dumps(fitted) + fitted.model_.canonical()
    assert all(value.tobytes() not in content for value in marked[11])
    assert b"0.123456789" not in content
    assert b"MRN" not in content
    assert "MRN" not in f"{fitted!r} {fitted.privacy_}"


MANY = np.random.default_rng(3).uniform(-1, 1, (400, 3))
LABELS = (MANY[:, 0] > 0).astype(int)
FIVE_FITS = 2.43
"""What five fits with epsilon 1 cost a record that is in each of them once."""


def copied(**more: Any) -> ringfence.FederatedLogisticRegression:
    return classifier(delta=None, max_rounds=3, classes=[0, 1], **more)


def test_fits_of_rows_drawn_with_repetition_say_what_the_record_with_the_most_copies_pays() -> None:
    samples = [np.random.default_rng(seed).integers(len(MANY), size=len(MANY)) for seed in range(5)]
    fitted = [copied(held_out=0.0).fit(MANY[sample], LABELS[sample]) for sample in samples]  # all copies in one section
    copies = [np.bincount(sample, minlength=len(MANY)) for sample in samples]
    worst = max(float(np.sqrt(sum(count[row] ** 2 for count in copies))) for row in range(len(MANY)))
    owed = accountant.epsilon([(GaussianRelease(worst * gaussian_shift(1.0, 1 / 400**2)), 1)], 1 / 400**2)
    text = [own.privacy_.silos["all"].total.epsilon for own in fitted]
    assert max(text) == pytest.approx(owed, rel=1e-3)
    assert owed > 2 * FIVE_FITS
    assert "times in this fit" in str(fitted[0].privacy_)


def test_a_bagged_forest_counts_rows_by_weights_of_a_public_bound_and_pays_for_each_fit_once() -> None:
    """scikit-learn tells repetitions to whoever takes weights as such: a row of weight 3 is one record."""
    with pytest.raises(EstimatorError, match="without a positive `sample_weight_bound`"):
        BaggingClassifier(copied(), n_estimators=5, random_state=0).fit(MANY, LABELS)
    bagged = BaggingClassifier(copied(sample_weight_bound=8.0), n_estimators=5, random_state=0).fit(MANY, LABELS)
    text = [own.privacy_.silos["all"].total.epsilon for own in bagged.estimators_]
    assert max(text) == pytest.approx(FIVE_FITS, abs=0.005)


def test_a_ledger_refuses_copies_unless_equal_rows_are_different_records(tmp_path: Path) -> None:
    table, labels = np.concatenate([MANY, MANY[:1]]), np.concatenate([LABELS, LABELS[:1]])
    with pytest.raises(EstimatorError, match="Some rows of silo 'all' have equal features"):
        copied(ledgers=tmp_path).fit(table, labels)
    assert not list(tmp_path.iterdir())
    fitted = copied(ledgers=tmp_path, equal_rows="records").fit(table, labels)
    assert fitted.privacy_.silos["all"].total.epsilon == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(EstimatorError, match="`equal_rows` must be"):
        copied(equal_rows="all").fit(MANY, LABELS)
