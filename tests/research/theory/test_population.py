"""The loss bounds that `ringfence bounds` prints: against exact expectations, and against what the paper has."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.accounting import calibrate
from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.research.theory import population
from ringfence.research.theory.problem import Problem
from tests.research.theory.worked import ROUGH, WORKED

Floats = NDArray[np.float64]
SIZES = {"distance": 5.0, "lipschitz": 1.0, "smoothness": 0.25, "records": 1238, "silos": 25}


def largest_move(step: float, rounds: int, ridge: float) -> float:
    """The largest E‖w_r − w'_r‖ over all r when a record is replaced: 3 silos of 2 records, one of each is asked."""
    data = np.array([[-2.0, 0.5], [1.0, 3.0], [-1.0, 2.0]])
    far = data.copy()
    far[0, 0] = 9.0

    def gradient(w: float, x: float) -> float:  # of √(1 + (w−x)²) + (ridge/2) w²; L = 1 for the record's part
        return float((w - x) / math.sqrt(1 + (w - x) ** 2) + ridge * w)

    moves = np.zeros(rounds)
    draws = list(product(range(3), range(2)))
    for path in product(draws, repeat=rounds):
        w = v = 0.0
        for r, place in enumerate(path):
            w, v = w - step * gradient(w, data[place]), v - step * gradient(v, far[place])
            moves[r] += abs(w - v)
    return float(moves.max() / len(draws) ** rounds)


def test_a_replaced_record_moves_minibatch_sgd_by_no_more_than_our_bound_with_all_silos_in_it() -> None:
    step, rounds = 0.4, 4
    ours = population.minibatch_stability(lipschitz=1.0, smoothness=1.0, step=step, rounds=rounds, records=2, silos=3)
    move = largest_move(step, rounds, 0.0)
    assert 0.5 * ours < move <= ours  # L = 1: the move bounds the change of every loss
    strong = population.minibatch_strong_stability(lipschitz=1.0, strong_convexity=0.5, records=2, silos=3)
    assert largest_move(step, rounds, 0.5) <= strong


def test_the_step_minimises_the_population_bound() -> None:
    known = SIZES | {"rounds": 400, "second_moment": 1.3}
    step = population.minibatch_step(**known)  # type: ignore[arg-type]
    best = population.minibatch_population(step=step, **known)  # type: ignore[arg-type]
    for other in (0.9 * step, 1.1 * step):
        assert best < population.minibatch_population(step=other, **known)  # type: ignore[arg-type]
    assert population.minibatch_step(**{**known, "smoothness": 100.0}) == 0.01  # type: ignore[arg-type]


def test_stich_s_step_beats_the_convex_bound_when_the_loss_is_strongly_convex() -> None:
    known = {"distance": 5.0, "smoothness": 1.0, "strong_convexity": 0.1, "second_moment": 1.0, "rounds": 5000}
    step = loss_bounds.minibatch_strong_step(**known)  # type: ignore[arg-type]
    assert step == pytest.approx(math.log((0.1 * 5.0 * 5000) ** 2) / (0.1 * 5000))
    overfit = population.minibatch_strong_stability(lipschitz=1.0, strong_convexity=0.1, records=1000, silos=10)
    strong = overfit + loss_bounds.minibatch_strong_empirical(
        distance=5.0, strong_convexity=0.1, step=step, rounds=5000, second_moment=1.0
    )
    step = 5.0 / math.sqrt(5000)
    plain = loss_bounds.minibatch_empirical(distance=5.0, step=step, rounds=5000, second_moment=1.0)
    assert strong < 0.02 < plain


def exact_sigma(problem: Problem, rounds: int) -> float:
    shift = calibrate.gaussian_shift(problem.epsilon, problem.delta)
    return 2 * problem.lipschitz * math.sqrt(rounds) / (problem.records * shift)


def test_the_bounds_of_the_worked_example() -> None:
    for rounds, value in [(20, 1.12), (400, 0.261), (30_000, 0.0806)]:
        moment = population.second_moment(WORKED, exact_sigma(WORKED, rounds))
        known = SIZES | {"rounds": rounds, "second_moment": moment}
        step = population.minibatch_step(**known)  # type: ignore[arg-type]
        assert population.minibatch_population(step=step, **known) == pytest.approx(value, rel=0.01)  # type: ignore[arg-type]
    for rounds, value in [(20, 0.0860), (40, 0.0799)]:
        spread = population.variance(WORKED, 1238, exact_sigma(WORKED, rounds), empirical=True)
        best = loss_bounds.accelerated_best(smoothness=0.25, distance=5.0, rounds=rounds, variance=spread)
        assert best == pytest.approx(value, rel=0.01)
    sigma = 2 / (population.one_pass_batch(records=1238, rounds=10) * calibrate.gaussian_shift(1.0, 1 / 1238**2))
    assert population.one_pass(WORKED, rounds=10, sigma=sigma) == pytest.approx(0.298, rel=0.01)


def subset_means(values: Sequence[Floats], size: int) -> list[Floats]:
    return [np.mean(chosen, axis=0) for chosen in combinations(values, size)]


def test_the_variance_without_replacement_is_exact_when_silos_are_equally_noisy() -> None:
    random = np.random.default_rng(3)
    inner, centres = random.normal(size=(4, 2)), random.normal(size=(3, 2))
    inner -= inner.mean(axis=0)
    gradients = centres[:, None, :] + inner[None, :, :]  # 3 silos, 4 records; the same spread in each
    M, K = 2, 3
    overall = gradients.mean(axis=(0, 1))
    errors = [
        float(((first + second) / 2 - overall) @ ((first + second) / 2 - overall))
        for i, j in combinations(range(3), M)
        for first in subset_means(list(gradients[i]), K)
        for second in subset_means(list(gradients[j]), K)
    ]
    problem = replace(
        WORKED, silos=3, records=4, dimension=2, lipschitz=9.0, available=float(M),
        variance=float((inner**2).sum(axis=1).mean()),
        heterogeneity=float(((centres - centres.mean(axis=0)) ** 2).sum(axis=1).mean()),
    )  # fmt: skip
    assert population.variance(problem, K, 0.0, empirical=True) == pytest.approx(np.mean(errors))
    assert population.variance(problem, K, 0.5, empirical=True) == pytest.approx(np.mean(errors) + 2 * 0.25 / M)
    assert population.variance(problem, K, 0.0, empirical=False) > np.mean(errors)


def test_full_batches_of_all_silos_leave_only_the_noise() -> None:
    assert population.variance(WORKED, 1238, 0.1, empirical=True) == pytest.approx(50 * 0.01 / 25)
    with pytest.raises(PlanError, match="from 1 to 1238"):
        population.variance(WORKED, 1239, 0.1, empirical=True)


def test_one_pass_needs_a_record_a_round_and_a_smooth_loss() -> None:
    with pytest.raises(PlanError, match="ask for fewer"):
        population.one_pass(WORKED, rounds=1239, sigma=1.0)
    with pytest.raises(PlanError, match="smooth the loss first"):
        population.one_pass(ROUGH, rounds=3, sigma=1.0)
    plain = replace(WORKED, records=10**5, dimension=5, diameter=4.0, delta=1e-9, smoothness=0.5)
    strong = replace(plain, strong_convexity=0.25)
    assert population.one_pass(strong, rounds=50, sigma=0.1) < population.one_pass(plain, rounds=50, sigma=0.1)
    assert population.initial_gap(strong) == 2.0
    assert population.initial_gap(plain) == 2.0
