"""Estimators with ledgers: rows that have a ledger get no second one."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence import FederatedLinearRegression, FederatedLogisticRegression
from ringfence.accounting import gaussian_shift
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.errors import ApprovalError, RegistryError
from ringfence.silo.ledger.summary import summarise
from tests.estimators import test_privacy

RANDOM = np.random.default_rng(1)
X = RANDOM.uniform(-1, 1, (200, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def classifier(ledgers: Path | None, **more: Any) -> FederatedLogisticRegression:
    return test_privacy.classifier(delta=None, max_rounds=3, ledgers=ledgers, cap=(20, 1e-5), **more)


def test_rows_that_have_a_ledger_are_refused_one_elsewhere_whatever_is_to_be_predicted(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    classifier(tmp_path / "one").fit(X, Y)
    ledger = str(tmp_path / "one" / "all.ledger")
    with pytest.raises(RegistryError, match=ledger):
        classifier(tmp_path / "two").fit(X[::-1], Y[::-1])
    other = FederatedLinearRegression(bounds=(-1, 1), target_bounds=(-3, 3), ledgers=tmp_path / "two", cap=(20, 1e-5))
    with pytest.raises(RegistryError, match=ledger):
        other.fit(X, X[:, 1])
    with pytest.raises(RegistryError, match=ledger):
        classifier(tmp_path / "two").fit(X, Y, silos=["renamed"] * 200)
    assert not list((tmp_path / "two").iterdir())


def test_folds_and_further_fits_go_on_in_the_ledger_that_the_rows_have(tmp_path: Path) -> None:
    together = gaussian_epsilon(math.sqrt(2) * gaussian_shift(1.0, 1e-5), 1e-5)
    used = []
    for part in (slice(0, 150), slice(50, 200)):
        classifier(tmp_path).fit(X[part], Y[part])
        used.append(summarise(tmp_path / "all.ledger")["costs"][0]["used"])
    assert used == pytest.approx([1.0, together], rel=1e-6)


def test_without_ledgers_there_is_no_registry(own_state: Path) -> None:
    classifier(None).fit(X, Y)
    assert not list(own_state.rglob("registry.sqlite"))


def test_a_new_beginning_gives_rows_a_second_ledger_that_says_why(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    classifier(tmp_path / "one").fit(X, Y)
    for _ in range(2):
        fitted = classifier(tmp_path / "two", new_beginning="the first was a rehearsal").fit(X, Y)
    assert str(fitted.privacy_).count("the first was a rehearsal") == 1
    with pytest.raises(RegistryError, match="new_beginning"):
        classifier(tmp_path / "one").fit(X, Y)


@pytest.mark.parametrize("large", [{"epsilon": 21.0}, {"delta": 0.01}, {"cap": (21.0, 1e-6)}])
def test_an_unusual_budget_takes_a_word(large: dict[str, Any]) -> None:
    asked = classifier(None).set_params(**{"cap": None, **large})
    with pytest.raises(ApprovalError, match="unusual_budget=True"):
        asked.fit(X, Y)
    asked.set_params(unusual_budget=True).fit(X, Y)
