"""The paper's bounds: printed values, agreement between theorems, and a refusal for each precondition."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.research.theory import bounds, conversions, lower_bounds, population, prescriptions
from ringfence.research.theory.prescriptions import Unbalanced
from ringfence.research.theory.problem import Problem
from tests.research.theory.worked import STRONG, WORKED

SOME = {"available": 12.0}
CROWD = replace(WORKED, silos=100, delta=1e-9)
ELL = math.log(1238**2)
Bound = Callable[[Problem], float]


def test_theorem_2_1() -> None:
    assert bounds.homogeneous(WORKED) == pytest.approx(10 / 5 * (1 / math.sqrt(1238) + math.sqrt(50 * ELL) / 1238))
    assert bounds.homogeneous(STRONG) == pytest.approx(1 / 0.1 / 25 * (1 / 1238 + 50 * ELL / 1238**2))


def test_theorem_3_1() -> None:
    private = (0.25**0.25 * 10**1.5 * math.sqrt(50 * ELL) / (1238 * 5)) ** 0.8
    assert bounds.heterogeneous(WORKED) == pytest.approx(10 / math.sqrt(25 * 1238) + private)
    assert bounds.heterogeneous(STRONG) == pytest.approx(
        1 / (0.1 * 1238 * 25) + math.sqrt(2.5) / 0.1 * 50 * ELL / (1238**2 * 25)
    )
    absent = bounds.absent_silos(replace(WORKED, **SOME))  # type: ignore[arg-type]
    printed = math.sqrt(13 / 24) * 10**0.8 / 0.25**0.2 * (math.sqrt(50 * ELL) / (1238 * 12**3)) ** 0.2
    assert absent == pytest.approx(printed)
    strong = bounds.absent_silos(replace(STRONG, **SOME))  # type: ignore[arg-type]
    assert strong == pytest.approx(1 / (0.1 * math.sqrt(2.5) * 12) * (1 - 11 / 24))


def test_theorem_3_1_is_its_batch_formula_at_the_prescribed_batch() -> None:
    """Up to the two equal terms: βD²K²/n² and the noise balance at that batch, and the theorem counts them once."""
    large = replace(WORKED, records=10**8, available=12.0, delta=1e-18)
    batch = prescriptions.one_pass(large).batch
    stepwise = bounds.one_pass_with_batch(large, batch=batch)
    noise = (0.25**0.25 * 10**1.5 * math.sqrt(50 * math.log(1e18)) / (1e8 * math.sqrt(12))) ** 0.8
    assert stepwise == pytest.approx(bounds.heterogeneous(large) + noise, rel=1e-4)


@pytest.mark.parametrize("problem", [replace(WORKED, available=12.0), replace(STRONG, available=12.0)])
def test_heterogeneity_is_absorbed_up_to_where_the_remark_says(problem: Problem) -> None:
    n, d, M, beta, D = 1238, 50, 12, 0.25, 10.0
    away = 24 / 13
    if problem.strong_convexity > 0:
        printed = math.sqrt(away * math.sqrt(2.5) * (1 / n + math.sqrt(2.5) * d * ELL / n**2))
    else:
        printed = math.sqrt(away) * (
            (D**2 * beta**2) ** 0.2 * M**0.2 * (d * ELL) ** 0.3 / n**0.6
            + (beta * D) ** 0.2 * (M / (n**3 * d * ELL)) ** 0.1
        )
    assert bounds.absorbed_heterogeneity(problem) == pytest.approx(printed)
    at_limit = replace(problem, heterogeneity=printed**2)
    assert bounds.absent_silos(at_limit) == pytest.approx(bounds.heterogeneous(at_limit) / 2)
    assert bounds.absorbed_heterogeneity(replace(problem, available=None)) == math.inf


def test_strongly_convex_one_pass_with_a_batch() -> None:
    batch = 20
    decay = math.exp(-math.log(2) / (4 * math.sqrt(2)) * 1238 / (20 * math.sqrt(2.5)))
    rest = 1 / (0.1 * 1238 * 25) + 50 * ELL / (0.1 * 20 * 1238 * 25)
    assert bounds.one_pass_with_batch(STRONG, batch=batch) == pytest.approx(5.0 * decay + rest)
    with pytest.raises(PlanError, match="from 1 to 1238"):
        bounds.one_pass_with_batch(STRONG, batch=0)


def test_theorem_4_1_with_the_term_for_absent_silos() -> None:
    assert bounds.empirical(WORKED) == pytest.approx(10 * math.sqrt(50 * ELL) / (1238 * 5))
    assert bounds.empirical(replace(WORKED, smoothness=None)) == bounds.empirical(WORKED)
    assert bounds.empirical(STRONG) == pytest.approx(10 * 50 * ELL / (1238**2 * 25))
    some = replace(WORKED, available=12.0)
    with pytest.raises(PlanError, match="give the rounds"):
        bounds.empirical(some)
    assert bounds.empirical(some, rounds=100) == pytest.approx(
        10 * math.sqrt(50 * ELL) / (1238 * math.sqrt(12)) + 10 * math.sqrt(13 / (24 * 12 * 100))
    )
    strong = replace(STRONG, available=12.0)
    assert bounds.empirical(strong, rounds=100) == pytest.approx(
        10 * 50 * ELL / (1238**2 * 12) + 13 / (24 * 12 * 0.1 * 100)
    )


def test_empirical_risk_with_a_batch() -> None:
    log = math.log(40 * 1238**2)
    assert bounds.empirical_with_batch(WORKED, batch=1238, rounds=40) == pytest.approx(
        0.25 * 100 / 1600 + 10 * math.sqrt(50) * log / (5 * 1238)
    )
    sampled = bounds.empirical_with_batch(WORKED, batch=100, rounds=40)
    assert sampled - bounds.empirical_with_batch(WORKED, batch=1238, rounds=40) == pytest.approx(
        10 / math.sqrt(25 * 100 * 40)
    )
    assert bounds.empirical_with_batch(STRONG, batch=100, rounds=400) > 1 / (0.1 * 25 * 100 * 400)


def test_theorem_5_1_and_5_2() -> None:
    many = replace(WORKED, silos=2000, records=5, delta=1e-6, epsilon=0.5)
    ell = math.log(1e6)
    assert bounds.shuffled_homogeneous(many) == pytest.approx(
        10 * (1 / math.sqrt(10_000) + math.sqrt(50 * ell) / (0.5 * 10_000))
    )
    assert bounds.shuffled_homogeneous(replace(many, smoothness=None)) == bounds.shuffled_homogeneous(many)
    log = math.log(50 * 1238**2)
    private = (0.25**0.25 * 10**1.5 * math.sqrt(50) * log / (1238 * 25)) ** 0.8
    assert bounds.shuffled_heterogeneous(WORKED) == pytest.approx(10 / math.sqrt(25 * 1238) + private)
    some = replace(WORKED, available=12.0)
    absent = math.sqrt(13 / 24) * 10**0.8 / 0.25**0.2 * (math.sqrt(50) * log / (1238 * 12**3.5)) ** 0.2
    private = (0.25**0.25 * 10**1.5 * math.sqrt(50) * log / (1238 * 12)) ** 0.8
    assert bounds.shuffled_heterogeneous(some) == pytest.approx(10 / math.sqrt(12 * 1238) + private + absent)


def test_the_unbalanced_theorem_is_theorem_2_1_for_equal_silos_up_to_its_logarithms() -> None:
    silos = Unbalanced([1238] * 25, [1.0] * 25, [WORKED.delta] * 25, conversions.always(25))
    logs = math.log(2.5 * 100 * 1238**2) * math.log(2 * 1238**2)
    assert bounds.unbalanced(silos, WORKED, rounds=100) == pytest.approx(
        10 * (1 / math.sqrt(1238 * 25) + math.sqrt(50 * logs) / (1238 * 5))
    )
    assert bounds.unbalanced(silos, STRONG, rounds=100) < bounds.unbalanced(silos, WORKED, rounds=100)
    equal = bounds.unbalanced_empirical(
        distance=5.0, step=0.1, rounds=100, lipschitz=1.0, dimension=50, sigmas=[0.2] * 25, silos=silos
    )
    moment = population.second_moment(WORKED, 0.2)
    assert equal == pytest.approx(
        loss_bounds.minibatch_empirical(distance=5.0, step=0.1, rounds=100, second_moment=moment)
    )


def test_isrl_sits_between_local_and_central() -> None:
    large = replace(WORKED, records=10**5, silos=100, delta=1e-12)
    private = [
        bounds.local_rate(replace(large, silos=10**7, records=1)),
        lower_bounds.population(large) - lower_bounds.non_private(large),
        bounds.central_rate(large) - lower_bounds.non_private(large),
    ]
    root = math.sqrt(50)
    assert private == pytest.approx([10 * root / 10**3.5, 10 * root / 10**6, 10 * root / 10**7])
    for rate in (bounds.local_rate, bounds.central_rate):
        with pytest.raises(PlanError, match="convex losses only"):
            rate(STRONG)


def test_privacy_is_free_once_there_are_records_enough() -> None:
    assert bounds.privacy_is_free(WORKED)
    assert not bounds.privacy_is_free(replace(WORKED, epsilon=0.1))


def test_lower_bounds() -> None:
    free, share = 10 / math.sqrt(100 * 1238), math.sqrt(50) / (1238 * 10)
    assert lower_bounds.population(CROWD) == pytest.approx(free + 10 * share)
    assert lower_bounds.empirical(CROWD) == pytest.approx(10 * share)
    strong = replace(CROWD, strong_convexity=0.1)
    assert lower_bounds.population(strong) == pytest.approx(1 / (0.1 * 123_800) + 10 * share**2)
    assert lower_bounds.central_population(CROWD) == pytest.approx(free + 10 * share / 10)
    assert lower_bounds.central_empirical(strong) == pytest.approx(10 * (share / 10) ** 2)
    assert lower_bounds.empirical(replace(CROWD, epsilon=1e-5)) == 10.0  # LD: nothing can be learned


def test_lower_bounds_lie_below_upper_bounds() -> None:
    for problem in (CROWD, replace(CROWD, strong_convexity=0.1)):
        assert lower_bounds.central_population(problem) <= lower_bounds.population(problem)
        assert lower_bounds.population(problem) <= bounds.homogeneous(problem)
        assert lower_bounds.population(problem) <= bounds.heterogeneous(problem)
        assert lower_bounds.empirical(problem) <= bounds.empirical(problem)


def test_compositionality_weakens_the_lower_bound_by_its_square_or_fourth_power() -> None:
    for problem, power in ((CROWD, 2), (replace(CROWD, strong_convexity=0.1), 4)):
        assert lower_bounds.empirical(problem, compositionality=3.0) == pytest.approx(
            lower_bounds.empirical(problem) / 3**power
        )
    assert lower_bounds.one_pass_compositionality(CROWD) ** 2 == pytest.approx((1238 * 10 / math.sqrt(50)) ** 0.4)


@pytest.mark.parametrize(
    ("bound", "problem", "words"),
    [
        (bounds.homogeneous, replace(WORKED, epsilon=40.0), r"2 ln\(2/δ\)"),
        (bounds.empirical, replace(WORKED, epsilon=40.0), r"2 ln\(2/δ\)"),
        (bounds.heterogeneous, replace(WORKED, epsilon=120.0), r"8 ln\(1/δ\)"),
        (bounds.heterogeneous, replace(WORKED, smoothness=None), "smooth losses"),
        (bounds.shuffled_homogeneous, WORKED, "606 silos"),
        (bounds.shuffled_heterogeneous, replace(WORKED, epsilon=16.0), "up to 15"),
        (bounds.strong_stability, WORKED, "strongly convex"),
        (bounds.strong_stability, replace(STRONG, silos=1), "more than one silo"),
        (lower_bounds.population, WORKED, "54 silos"),
        (lower_bounds.population, replace(CROWD, available=50.0), "all silos answer"),
        (lower_bounds.empirical, replace(CROWD, epsilon=11.0), "√N"),
        (lower_bounds.central_population, replace(CROWD, delta=1e-4), r"1/\(nN\)"),
        (partial(lower_bounds.population, round_epsilon=0.01), CROWD, "rounds of epsilon at most 1/n"),
        (partial(lower_bounds.population, rounds=100, round_delta=1e-6), CROWD, "delta at most"),
        (partial(lower_bounds.population, round_epsilon=1 / 1238), CROWD, "145 silos"),
    ],
)
def test_a_bound_refuses_what_its_theorem_does_not_cover(bound: Bound, problem: Problem, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        bound(problem)


def test_stability() -> None:
    assert bounds.strong_stability(STRONG) == pytest.approx(4 / (0.1 * (1238 * 25 - 1)))
    ours = population.minibatch_strong_stability(lipschitz=1.0, strong_convexity=0.1, records=1238, silos=25)
    assert ours < bounds.strong_stability(STRONG)
    assert bounds.regularised_stability(lipschitz=1.0, penalty=0.1, records=1238, silos=25) == pytest.approx(ours)


def test_a_gradient_step_contracts_as_stated() -> None:
    for step in (0.1, 1.0, 2 / 1.2):
        factor = bounds.contraction(step=step, smoothness=1.0, strong_convexity=0.2)
        worst = max(abs(1 - step * h) for h in np.linspace(0.2, 1.0, 50))
        assert worst <= factor <= 1 - step * 0.2 / 2 + 1e-12
    with pytest.raises(PlanError, match="contracts"):
        bounds.contraction(step=2.0, smoothness=1.0, strong_convexity=0.2)


def test_the_variance_of_a_subset_s_mean_is_exact() -> None:
    vectors = np.random.default_rng(1).normal(size=(6, 3))
    vectors -= vectors.mean(axis=0)
    for size in (1, 2, 5, 6):
        exact = np.mean([np.sum(vectors[list(chosen)].mean(axis=0) ** 2) for chosen in combinations(range(6), size)])
        mean_square = float((vectors**2).sum(axis=1).mean())
        assert bounds.finite_population_variance(population=6, sample=size, mean_square=mean_square) == pytest.approx(
            float(exact)
        )
    assert bounds.finite_population_variance(population=1, sample=1, mean_square=5.0) == 0.0
    with pytest.raises(PlanError, match="can be drawn"):
        bounds.finite_population_variance(population=3, sample=4, mean_square=1.0)


def test_the_printed_exponent_of_the_multi_stage_lemma_is_too_good() -> None:
    known = {"condition": 100.0, "gap": 1.0, "strong_convexity": 0.01, "rounds": 200.0, "variance": 0.0}
    proved = bounds.multistage_order(**known)  # type: ignore[arg-type]
    assert bounds.multistage_order(printed=True, **known) < proved
    assert proved == pytest.approx(0.5 ** (200 / (4 * math.sqrt(2 * 100))))
    planned = loss_bounds.multistage_plan(smoothness=1.0, strong_convexity=0.01, gap=1.0, rounds=200, variance=0.0)
    assert planned.bound <= 2 * proved
