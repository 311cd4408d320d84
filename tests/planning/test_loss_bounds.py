"""The loss bounds against exact expectations: on quadratics a run is linear in its noise, so nothing is sampled."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from ringfence.accounting import calibrate
from ringfence.errors import PlanError
from ringfence.planning import loss_bounds
from ringfence.research.theory.problem import equal_silos, localized_phases, phase_noise
from tests.research.theory.worked import WORKED

Floats = NDArray[np.float64]
Run = Callable[[Floats, Floats], Floats]  # from starts (runs, d) and noises (rounds, runs, d) to the models (runs, d)

CURVATURES = np.array([0.05, 0.1, 0.3, 1.0, 2.0])
START = np.array([3.0, -2.0, 1.0, 2.0, -1.0])
DISTANCE = float(np.linalg.norm(START))


def accelerated_run(
    gradient: Callable[[Floats], Floats],
    start: Floats,
    noises: Floats,
    upsilon: float,
    mu: float = 0.0,
    project: Callable[[Floats], Floats] = np.asarray,
) -> Floats:
    """Algorithm 1 of the paper, by default over the whole space, with α_r = 2/(r+1) and η_r = 4υ/(r(r+1))."""
    w = mean = start
    for r, noise in enumerate(noises, start=1):
        a, e = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
        scale = e + (1 - a**2) * mu
        middle = (1 - a) * (mu + e) / scale * mean + a * ((1 - a) * mu + e) / scale * w
        w = project((a * mu * middle + ((1 - a) * mu + e) * w - a * (gradient(middle) + noise)) / (mu + e))
        mean = a * w + (1 - a) * mean
    return mean


def minibatch_run(start: Floats, noises: Floats, step: float, growth: float) -> Floats:
    """Algorithm 2 of the paper with weights γ_r = growth^r."""
    w, total, weights = start, np.zeros_like(start), 0.0
    for r, noise in enumerate(noises):
        total, weights = total + growth**r * w, weights + growth**r
        w = w - step * (CURVATURES * w + noise)
    return total / weights


def expected_gap(run: Run, rounds: int, variance: float) -> float:
    """E F(run) for F = Σ h_j w_j²/2 and independent Gaussian noise of total ``variance`` a round, exactly."""
    d = len(CURVATURES)
    quiet = run(START[None, :], np.zeros((rounds, 1, d)))[0]
    impulses = np.broadcast_to(np.eye(rounds)[:, :, None], (rounds, rounds, d))
    answers = run(np.zeros((rounds, d)), impulses)  # the coordinates do not mix, so all are hit at once
    spread = (answers**2).sum(axis=0) * variance / d
    return float((CURVATURES / 2 * (quiet**2 + spread)).sum())


def slope(w: Floats) -> Floats:
    return CURVATURES * w


@pytest.mark.parametrize("rounds", [1, 5, 50, 300])
@pytest.mark.parametrize("variance", [0.0, 0.01, 4.0])
def test_the_accelerated_bound_holds_at_its_best_upsilon(rounds: int, variance: float) -> None:
    known = {"smoothness": 2.0, "distance": DISTANCE, "rounds": rounds, "variance": variance}
    upsilon = loss_bounds.accelerated_upsilon(**known)  # type: ignore[arg-type]
    exact = expected_gap(lambda w, noises: accelerated_run(slope, w, noises, upsilon), rounds, variance)
    best = loss_bounds.accelerated_best(**known)  # type: ignore[arg-type]
    assert exact <= best
    simple = 8 * DISTANCE**2 / (rounds * (rounds + 1)) + 2 * math.sqrt(2 / 3 * variance / rounds) * DISTANCE
    assert best <= simple * 1.4  # the simple form drops (R+1)(2R+1) ≤ 6R², which matters for R = 1 only
    for other in (1.3 * upsilon, max(4.0, upsilon / 1.3)):
        assert best <= loss_bounds.accelerated(distance=DISTANCE, upsilon=other, rounds=rounds, variance=variance)


@pytest.mark.parametrize("rounds", [1, 5, 50, 300])
@pytest.mark.parametrize("variance", [0.0, 0.01, 4.0])
def test_the_strongly_convex_bound_holds_without_knowing_the_noise(rounds: int, variance: float) -> None:
    exact = expected_gap(lambda w, noises: accelerated_run(slope, w, noises, 2.0, mu=0.05), rounds, variance)
    assert exact <= loss_bounds.accelerated_strong(
        smoothness=2.0, strong_convexity=0.05, distance=DISTANCE, rounds=rounds, variance=variance
    )


@pytest.mark.parametrize("rounds", [1, 5, 50, 300])
@pytest.mark.parametrize("factor", [1.0, 0.2, 5.0])
def test_the_regularised_bound_holds_for_the_loss_without_the_penalty(rounds: int, factor: float) -> None:
    variance = 0.5
    usual = loss_bounds.regularised_penalty(distance=DISTANCE, rounds=rounds, variance=variance)
    penalty = usual * factor

    def run(w: Floats, noises: Floats) -> Floats:
        start = w  # (λ/2)‖w − w₀‖² pulls towards the start
        return accelerated_run(lambda v: slope(v) + penalty * (v - start), w, noises, 2.0 + penalty, mu=penalty)

    bound = loss_bounds.regularised(
        smoothness=2.0,
        distance=DISTANCE,
        rounds=rounds,
        variance=variance,
        penalty=penalty,
    )
    assert expected_gap(run, rounds, variance) <= bound


def test_there_is_nothing_to_regularise_without_noise() -> None:
    with pytest.raises(PlanError, match="nothing to regularise"):
        loss_bounds.regularised(smoothness=1.0, distance=1.0, rounds=5, variance=0.0, penalty=0.0)


@pytest.mark.parametrize("rounds", [40, 300, 2000])
@pytest.mark.parametrize("variance", [0.0, 0.001, 0.02])
@pytest.mark.parametrize("inside", [0.0, 0.05])
def test_every_stage_of_the_corrected_schedule_halves_the_gap(rounds: int, variance: float, inside: float) -> None:
    gap = float((CURVATURES / 2 * START**2).sum())
    plan = loss_bounds.multistage_plan(smoothness=2.0, strong_convexity=0.05, gap=gap, rounds=rounds, variance=variance)
    lengths = [stage.rounds for stage in plan.stages]
    assert sum(lengths) == rounds

    def run(w: Floats, noises: Floats) -> Floats:
        begin = 0
        for stage in plan.stages:
            w = accelerated_run(slope, w, noises[begin : begin + stage.rounds], stage.upsilon, mu=inside)
            begin += stage.rounds
        return w

    assert expected_gap(run, rounds, variance) <= plan.bound <= gap / 2 ** len(plan.stages)
    for k, (stage, length) in enumerate(zip(plan.stages, lengths, strict=True), start=1):
        least = max(4 * math.sqrt(2 * 2.0 / 0.05), 128 * variance / (3 * 0.05 * gap / 2 ** (k + 1)))
        assert length >= least
        product_above = length * (length + 1) * (length + 2)
        assert stage.upsilon == pytest.approx(
            max(4.0, math.sqrt(0.05 * variance * product_above / (3 * gap / 2 ** (k - 1))))
        )


def test_rounds_for_less_than_one_stage_are_refused_with_both_ways_out() -> None:
    with pytest.raises(PlanError, match=r"first stage needs 26 rounds .* single-run schedule"):
        loss_bounds.multistage_plan(smoothness=2.0, strong_convexity=0.1, gap=1.0, rounds=25, variance=0.0)
    whole = loss_bounds.multistage_plan(smoothness=2.0, strong_convexity=0.1, gap=1.0, rounds=26, variance=0.0)
    assert [stage.rounds for stage in whole.stages] == [26]


def moments(step: float, rounds: int, variance: float) -> float:
    """The largest E‖g_r‖² over the points that MB-SGD asks about, exactly."""
    shrink = 1 - step * CURVATURES
    largest, place, spread = 0.0, START, np.zeros_like(START)
    for _ in range(rounds):
        largest = max(largest, float((CURVATURES**2 * (place**2 + spread)).sum()) + variance)
        place, spread = shrink * place, shrink**2 * spread + step**2 * variance / len(START)
    return largest


@pytest.mark.parametrize("rounds", [1, 10, 200])
@pytest.mark.parametrize("variance", [0.0, 0.5])
@pytest.mark.parametrize("step", [0.01, 0.1, 0.5])
def test_the_minibatch_bounds_hold(rounds: int, variance: float, step: float) -> None:
    moment = moments(step, rounds, variance)
    plain = expected_gap(lambda w, noises: minibatch_run(w, noises, step, 1.0), rounds, variance)
    known = {"distance": DISTANCE, "step": step, "rounds": rounds, "second_moment": moment}
    assert plain <= loss_bounds.minibatch_empirical(**known)  # type: ignore[arg-type]
    growth = 1 / (1 - 0.05 * step)
    weighted = expected_gap(lambda w, noises: minibatch_run(w, noises, step, growth), rounds, variance)
    assert weighted <= loss_bounds.minibatch_strong_empirical(strong_convexity=0.05, **known)  # type: ignore[arg-type]


def test_the_strongly_convex_minibatch_bound_becomes_the_convex_one_as_the_curvature_vanishes() -> None:
    known = {"distance": 2.0, "step": 0.1, "rounds": 50, "second_moment": 3.0}
    flat = loss_bounds.minibatch_strong_empirical(strong_convexity=1e-9, **known)  # type: ignore[arg-type]
    assert flat == pytest.approx(loss_bounds.minibatch_empirical(**known), rel=1e-6)  # type: ignore[arg-type]
    long = {**known, "rounds": 10**6}
    assert loss_bounds.minibatch_strong_empirical(strong_convexity=1.0, **long) == pytest.approx(0.15)  # type: ignore[arg-type]


def test_localized_phases_halve_the_records_spend_the_budget_once_each_and_keep_what_helps() -> None:
    problem = replace(WORKED, records=4096, epsilon=2.0, delta=1e-7)
    plan = localized_phases(problem)
    assert [phase.records for phase in plan.phases] == [2048 >> i for i in range(len(plan.phases))]
    assert plan.bound == loss_bounds.localized_bound(equal_silos(problem), plan.phases)
    for phase in plan.phases:
        exact = calibrate.noise(
            "full", records=phase.records, batch=phase.records, rounds=phase.rounds, clip=1.0, epsilon=2.0, delta=1e-7
        )
        assert phase_noise(problem, phase) == pytest.approx(exact, rel=1e-6)
    given = localized_phases(problem, penalty=plan.phases[0].penalty)
    assert given == plan
    assert plan.bound < 0.25 * localized_phases(problem, most_rounds=20).bound


@pytest.mark.parametrize("most", [1, 2, 7, 60, 10**6])
def test_localized_phases_fit_the_rounds_that_there_are(most: int) -> None:
    plan = localized_phases(WORKED, most_rounds=most)
    assert all(phase.rounds >= 1 for phase in plan.phases)
    assert plan.rounds <= most


def test_absent_silos_cost_the_localized_algorithm_rounds_and_accuracy() -> None:
    some = replace(WORKED, available=12.0)
    fewer, all_of_them = localized_phases(some), localized_phases(WORKED)
    assert fewer.bound > all_of_them.bound
    assert fewer.rounds > all_of_them.rounds


def test_localization_refuses_what_it_cannot_split() -> None:
    with pytest.raises(PlanError, match="at least 2"):
        localized_phases(replace(WORKED, records=1))
    with pytest.raises(PlanError, match="at least one"):
        localized_phases(WORKED, most_rounds=0)


def test_the_localized_bound_holds_for_the_population_risk_of_simulated_heterogeneous_silos() -> None:
    """Hoeffding: risks lie in [0, LD] = [0, 4], so the margin keeps a false alarm below 10⁻⁶."""
    silos, records, d, radius, runs = 4, 512, 3, 2.0, 300
    problem = replace(WORKED, silos=silos, records=records, dimension=d, diameter=2 * radius, epsilon=8.0, delta=1e-5)
    plan = localized_phases(problem, most_rounds=150)
    random = np.random.default_rng(11)
    # Each silo draws uniformly from its own 20 vectors yx of norm at most 1; the loss is ln(1 + exp(−⟨w, yx⟩)).
    pool = random.normal(size=(silos, 20, d)) + 1.5 * random.normal(size=(silos, 1, d))
    pool /= np.linalg.norm(pool, axis=-1, keepdims=True)

    def within(w: Floats) -> Floats:
        return np.asarray(w * np.minimum(1.0, radius / np.maximum(np.linalg.norm(w, axis=-1, keepdims=True), 1e-12)))

    def risk(w: Floats) -> Floats:
        return np.asarray(np.logaddexp(0.0, -np.einsum("...d,skd->...sk", w, pool)).mean(axis=(-1, -2)))

    def mean_gradient(w: Floats, counts: Floats) -> Floats:  # counts (runs, silos, 20) add up to the records
        pull = 1 / (1 + np.exp(np.einsum("rd,skd->rsk", w, pool)))
        return np.asarray(-np.einsum("rsk,rsk,skd->rd", counts, pull, pool) / counts.sum(axis=(1, 2))[:, None])

    w = np.zeros((runs, d))
    for phase in plan.phases:
        counts = random.multinomial(phase.records, np.full(20, 1 / 20), size=(runs, silos)).astype(np.float64)
        start, lam = w, phase.penalty

        def gradient(at: Floats, counts: Floats = counts, start: Floats = start, lam: float = lam) -> Floats:
            return mean_gradient(at, counts) + lam * (at - start)

        noises = random.normal(scale=phase_noise(problem, phase) / math.sqrt(silos), size=(phase.rounds, runs, d))
        w = accelerated_run(gradient, w, noises, 0.25 + lam, mu=lam, project=within)
    best = np.zeros(d)
    for _ in range(3000):
        best = within(best - 4 * mean_gradient(best[None], np.ones((1, silos, 20)))[0])
    margin = problem.lipschitz * problem.diameter * math.sqrt(math.log(1e6) / (2 * runs))
    assert float(risk(w).mean() - risk(best)) <= plan.bound + margin
    assert plan.bound < problem.lipschitz * problem.D0  # better than staying at the start
