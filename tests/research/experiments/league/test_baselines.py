"""What the league compares with is private for a replaced record, and finds the best model where noise is small."""

import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import chi2

from ringfence.accounting.account import answer_query
from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray, Logistic, Squared, parse_schema
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league import apart, dp_ebm, flower, opacus
from ringfence.research.experiments.league.central import not_private, private_fit, symmetric_noise
from ringfence.research.experiments.league.methods import DP_EBM, METHODS
from ringfence.research.experiments.league.tables import load_table
from tests.research.experiments.league.made_up import write_league

GEOMETRY = Geometry(3, 1.0, 1.0)
PLENTY = 1e6


def rows(records: int) -> tuple[FloatArray, np.random.Generator]:
    random = np.random.default_rng(3)
    features = random.normal(size=(records, 3))
    return features / np.linalg.norm(features, axis=1, keepdims=True), random


def test_replacing_a_record_moves_second_moments_by_no_more_than_root_two() -> None:
    features, _ = rows(400)
    moved = [
        np.linalg.norm(np.outer(x, x) - np.outer(z, z)) for x, z in zip(features[::2], features[1::2], strict=True)
    ]
    assert 1.3 < max(moved) <= math.sqrt(2)


def test_symmetric_noise_is_standard_normal_along_every_symmetric_matrix_of_norm_one() -> None:
    # A false alarm in two of ten million runs, by the exact distribution; noise of twice the variance, or of half, is
    # missed in fewer than one of a million (chi2.cdf(chi2.isf(1e-7, n) / 2, n), chi2.sf(2 * chi2.ppf(1e-7, n), n)).
    random, count = np.random.default_rng(1), 4000
    along = np.array([[1.0, 2.0], [2.0, -1.0]])
    along /= np.linalg.norm(along)
    total = sum(float(np.sum(symmetric_noise(2, random) * along)) ** 2 for _ in range(count))
    assert chi2.ppf(1e-7, count) < total < chi2.isf(1e-7, count)


def test_with_plenty_of_budget_the_curator_finds_least_squares() -> None:
    features, random = rows(500)
    targets = np.clip(features @ [0.3, -0.2, 0.1] + random.normal(0, 0.05, 500), -1, 1)
    found = private_fit(Squared(), GEOMETRY)(features, targets, PLENTY, 1e-6, np.random.default_rng(0))
    # Noise has shift √(2ε), so in Σxy 2√3/√(2e6) = 0.0024, and the least eigenvalue is above 100.
    np.testing.assert_allclose(found, not_private(Squared(), features, targets), atol=1e-3)


def test_with_plenty_of_budget_the_curator_finds_the_best_logistic_model() -> None:
    features, random = rows(500)
    targets = np.where(features @ [1.0, -1.0, 0.5] + random.logistic(size=500) > 0, 1.0, -1.0)
    found = private_fit(Logistic(), GEOMETRY)(features, targets, PLENTY, 1e-6, np.random.default_rng(0))
    best = not_private(Logistic(), features, targets)  # which has a ridge of 0.1 in 500 records
    np.testing.assert_allclose(found, best, atol=0.05)


def test_silos_apart_find_the_best_model_with_plenty_of_budget(tmp_path: Path) -> None:
    table = load_table(write_league(tmp_path), "cost")
    best = table.error(not_private(table.loss, *table.pooled))
    for fit in (apart.noisy_statistics, apart.averaged):
        assert table.error(fit(table, PLENTY, np.random.default_rng(0))) < 1.05 * best


def test_the_sensitivity_given_to_localdpmod_makes_all_rounds_cost_what_they_may() -> None:
    sensitivity = flower.sensitivity_for(0.3, rounds=10, epsilon=1.0, delta=1e-5)
    sigma = sensitivity * math.sqrt(2 * math.log(1.25 / 1e-5))  # its formula, at ε = 1
    cost = answer_query(
        records=1, rounds=10, sampling="full", batch=None, clip=0.3, delta=1e-5, sigma=sigma, epsilon=None
    )
    assert cost["epsilon"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_opacus_gets_the_noise_that_a_second_accountant_finds_for_a_replaced_record(epsilon: float) -> None:
    records, delta = 1000, 1e-6
    batch = records // opacus.BATCHES
    theirs = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    noise = dp_accounting.GaussianDpEvent(opacus.noise_multiplier(records, epsilon, delta))
    theirs.compose(dp_accounting.PoissonSampledDpEvent(batch / records, noise), opacus.STEPS)
    # Both round up, theirs by at most its grid of 1e-4 in each of 100 steps.
    assert theirs.get_epsilon(delta) == pytest.approx(epsilon, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_dp_ebm_is_asked_for_the_epsilon_whose_noise_hides_a_replaced_record(epsilon: float) -> None:
    delta = 1e-6
    asked = dp_ebm.package_epsilon(epsilon, delta)
    parts = [gaussian_shift(share * asked, delta / 2) for share in (dp_ebm.BINNING, 1 - dp_ebm.BINNING)]
    theirs = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    for shift in parts:  # of records that are added or removed: for a replaced one it is at most twice that
        theirs.compose(dp_accounting.GaussianDpEvent(1 / shift))
    assert epsilon < theirs.get_epsilon(delta) < 1.02 * epsilon, "counts move by the root of two only"
    assert 0.5 < asked / epsilon < 0.6


@pytest.mark.parametrize(("classes", "suits"), [(["a", "b"], True), (["a", "b", "c"], False)])
def test_dp_ebm_is_for_two_classes(classes: list[str], suits: bool) -> None:
    columns = {
        "x": {"type": "numeric", "lower": 0, "upper": 1},
        "y": {"type": "categorical", "categories": classes},
    }
    assert METHODS[DP_EBM].suits(parse_schema({"columns": columns}, target="y"), silos=1) is suits
