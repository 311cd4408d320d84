"""A record that a fit holds several times pays for every copy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier

from ringfence import FederatedLogisticRegression
from ringfence.accounting import accountant
from ringfence.accounting.calibrate import gaussian_shift
from ringfence.accounting.events import GaussianRelease
from ringfence.errors import EstimatorError

X = np.random.default_rng(3).uniform(-1, 1, (400, 3))
Y = (X[:, 0] > 0).astype(int)
DELTA = 1 / 400**2

FIVE_FITS = 2.43
"""What five fits with epsilon 1 cost a record that is in each of them once."""


def classifier(**more: Any) -> FederatedLogisticRegression:
    return FederatedLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=[0, 1], max_rounds=3, **more)


def test_fits_of_rows_drawn_with_repetition_say_what_the_record_with_the_most_copies_pays() -> None:
    samples = [np.random.default_rng(seed).integers(len(X), size=len(X)) for seed in range(5)]
    fitted = [classifier(held_out=0.0).fit(X[sample], Y[sample]) for sample in samples]  # all copies in one section
    copies = [np.bincount(sample, minlength=len(X)) for sample in samples]
    worst = max(float(np.sqrt(sum(count[row] ** 2 for count in copies))) for row in range(len(X)))
    owed = accountant.epsilon([(GaussianRelease(worst * gaussian_shift(1.0, DELTA)), 1)], DELTA)
    told = [own.privacy_.silos["all"].total.epsilon for own in fitted]
    assert max(told) == pytest.approx(owed, rel=1e-3)
    assert owed > 2 * FIVE_FITS
    assert "times in this fit" in str(fitted[0].privacy_)


def test_a_bagged_forest_counts_rows_by_weights_of_a_public_bound_and_pays_for_each_fit_once() -> None:
    """scikit-learn tells repetitions to whoever takes weights as such: a row of weight 3 is one record."""
    with pytest.raises(EstimatorError, match="without a positive `sample_weight_bound`"):
        BaggingClassifier(classifier(), n_estimators=5, random_state=0).fit(X, Y)
    bagged = BaggingClassifier(classifier(sample_weight_bound=8.0), n_estimators=5, random_state=0).fit(X, Y)
    told = [own.privacy_.silos["all"].total.epsilon for own in bagged.estimators_]
    assert max(told) == pytest.approx(FIVE_FITS, abs=0.005)


def test_a_ledger_refuses_copies_unless_equal_rows_are_different_records(tmp_path: Path) -> None:
    table, labels = np.concatenate([X, X[:1]]), np.concatenate([Y, Y[:1]])
    with pytest.raises(EstimatorError, match="Some rows of silo 'all' have equal features"):
        classifier(ledgers=tmp_path).fit(table, labels)
    assert not list(tmp_path.iterdir())
    fitted = classifier(ledgers=tmp_path, equal_rows="records").fit(table, labels)
    assert fitted.privacy_.silos["all"].total.epsilon == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(EstimatorError, match="`equal_rows` must be"):
        classifier(equal_rows="all").fit(X, Y)
