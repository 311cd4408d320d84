"""The survival race: both sides are what they are said to be."""

import numpy as np
import pytest
import statsmodels.api as sm

from ringfence.research.experiments import survival
from ringfence.research.experiments.survival import Cohort


def drawn(patients: int = 300) -> Cohort:
    random = np.random.default_rng(1)
    covariates = random.integers(0, 2, size=(patients, 6)).astype(np.float64)
    times = np.ceil(1000 * random.exponential(1 / np.exp(covariates @ [0.1, 0.2, 0.3, 0.4, 0.5, 1.0])))
    return Cohort(covariates, np.minimum(times, 900.0), (times <= 900.0).astype(np.float64))


def test_the_cox_model_without_privacy_is_that_of_statsmodels_with_ties() -> None:
    data = drawn()
    exact = sm.PHReg(data.times, data.covariates, status=data.events, ties="efron").fit(disp=False).params
    np.testing.assert_allclose(survival.cox(data), exact, atol=1e-4)


def test_the_published_method_tends_to_the_cox_model_as_its_noise_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = drawn(900)
    monkeypatch.setattr(survival, "THEIR_ROUNDS", 3000)  # so that gradient ascent has arrived
    found = survival.published(data, [np.arange(900)], 1e9, np.random.default_rng(2))
    exact = sm.PHReg(data.times, data.covariates, status=data.events, ties="breslow").fit(disp=False).params
    # Its way with ties is by order in the table, between Breslow's and Efron's: fewer than one event in ten is tied.
    assert np.linalg.norm(found - exact) < 0.1 * np.linalg.norm(exact)


def test_our_plan_keeps_its_promise_and_is_of_one_record_per_patient() -> None:
    plan = survival.our_plan(1.0, None)
    assert plan.unit == "record"
    assert plan.loss.target_kind == "time"
    assert {terms.guarantees[0].epsilon for terms in plan.silos} == {1.0}
    assert plan.dimension == len(survival.COVARIATES) + 5
