"""How fast acceleration is, on functions known exactly: at the theory's rates, and never above the bounds."""

import math
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from ringfence.planning import loss_bounds
from ringfence.protocol import Accelerated, FloatArray, MultiStage, Plan, Restart
from ringfence.server.algorithms import accelerated
from tests.server.descent import Map, Quadratic, descend, ratios, slope
from tests.server.quadratics import make_plan

LENGTHS = [10, 20, 40, 80, 160, 320]


def spread(convexity: float, dimension: int, size: float = 1.0) -> Quadratic:
    """Return a quadratic of smoothness 1 whose curvatures lie between that and its strong convexity."""
    best = size * np.random.default_rng(1).normal(size=dimension)
    return Quadratic(np.geomspace(convexity, 1.0, dimension), best)


def with_noise(gradient: Map, variance: float, seed: int) -> Map:
    """Add Gaussian noise of the given E‖noise‖² to every row of a gradient."""
    random = np.random.default_rng(seed)

    def noisy(weights: FloatArray) -> FloatArray:
        return gradient(weights) + math.sqrt(variance / weights.shape[-1]) * random.normal(size=weights.shape)

    return noisy


def strong_bound(function: Quadratic, convexity: float, rounds: int, variance: float) -> float:
    """Return the bound on the gap of one strongly convex run from the origin."""
    known: Any = {"distance": float(np.linalg.norm(function.best)), "rounds": rounds, "variance": variance}
    return loss_bounds.accelerated_strong(smoothness=1.0, strong_convexity=convexity, **known)


def mean_below(values: FloatArray, bound: float) -> bool:
    """Tell whether the mean is below the bound by six standard errors: chance cannot hide a mean above it."""
    return float(values.mean() + 6 * values.std(ddof=1) / math.sqrt(len(values))) <= bound


# Without noise


def worst_case_gap(rounds: int) -> tuple[float, float]:
    """Run on Nesterov's worst quadratic for that many rounds; return the gap and D₀², for smoothness 1.

    f(w) = ⅛(w₁² + Σ(w_i − w_{i+1})² + w_n²) − ¼w₁ with n = 2R + 1; its minimum is at w_i = 1 − i/(n + 1).
    """
    size = 2 * rounds + 1
    best = 1 - np.arange(1, size + 1) / (size + 1)

    def chain(weights: FloatArray) -> FloatArray:
        return np.diff(np.concatenate([[0.0], weights, [0.0]]))

    def gradient(weights: FloatArray) -> FloatArray:
        slopes: FloatArray = -np.diff(chain(weights)) / 4
        slopes[0] -= 0.25
        return slopes

    plan = make_plan(rounds=rounds, algorithm=Accelerated(smoothness=1.0))
    off = descend(plan, gradient, np.zeros(size))[-1].model - best
    return float(np.sum(chain(off) ** 2)) / 8, float(best @ best)


def test_on_nesterov_s_worst_function_the_gap_falls_with_the_square_of_the_rounds() -> None:
    gaps = []
    for rounds in LENGTHS:
        gap, distance_squared = worst_case_gap(rounds)
        assert gap <= 4 * distance_squared / (rounds * (rounds + 1))
        gaps.append(gap / distance_squared)
    assert slope(np.log(LENGTHS).tolist(), np.log(gaps).tolist()) <= -1.9
    # Nobody can do better than 3/(32(R+1)²) there (Nesterov), so what we measure is a gap.
    assert all(gap >= 3 / (32 * (rounds + 1) ** 2) for gap, rounds in zip(gaps, LENGTHS, strict=True))


def staged(planned: loss_bounds.MultiStageBound, upsilons: list[float], convexity: float) -> Plan:
    stages = [
        Restart(rounds=stage.rounds, upsilon=upsilon) for stage, upsilon in zip(planned.stages, upsilons, strict=True)
    ]
    return make_plan(
        rounds=sum(stage.rounds for stage in stages),
        ridge=convexity,
        algorithm=MultiStage(smoothness=1 - convexity, stages=tuple(stages)),
    )


@pytest.mark.parametrize("condition", [10, 100, 1000])
def test_every_planned_stage_at_least_halves_the_gap_so_that_it_falls_exponentially(condition: int) -> None:
    convexity = 1 / condition
    function = spread(convexity, 40)
    start = float(function.gap(np.zeros(40)))
    stage = math.ceil(4 * math.sqrt(2 * condition))
    planned = loss_bounds.multistage_plan(
        smoothness=1.0, strong_convexity=convexity, gap=start, rounds=8 * stage, variance=0.0
    )
    assert [one.rounds for one in planned.stages] == [stage] * 8
    plan = staged(planned, [one.upsilon for one in planned.stages], convexity)
    states = descend(plan, function.without_ridge(convexity), np.zeros(40))
    ends = [place * stage for place in range(9)]
    gaps = [float(function.gap(states[end].model)) for end in ends]
    assert all(ratio <= 0.5 for ratio in ratios(gaps))
    assert gaps[-1] <= planned.bound
    # e^(−c·R/√κ): halving once a stage is c = 0.12; about 0.45 is what stages with the algorithm's own μ reach.
    assert slope([float(end) for end in ends], np.log(gaps).tolist()) * math.sqrt(condition) <= -0.4


def test_a_single_strongly_convex_run_without_noise_is_below_its_bound_in_every_round() -> None:
    for convexity in (0.1, 0.001):
        function = spread(convexity, 20)
        plan = make_plan(rounds=300, ridge=convexity, algorithm=Accelerated(smoothness=1 - convexity))
        states = descend(plan, function.without_ridge(convexity), np.zeros(20))
        for rounds in range(1, 301):
            assert function.gap(states[rounds].model) <= strong_bound(function, convexity, rounds, 0.0)


# With noise


@pytest.mark.parametrize("variance", [0.01, 1.0])
@pytest.mark.parametrize("rounds", [5, 20, 100, 400])
def test_a_single_strongly_convex_run_with_noise_is_below_its_bound(rounds: int, variance: float) -> None:
    function, convexity = spread(0.05, 10), 0.05
    plan = make_plan(rounds=rounds, ridge=convexity, algorithm=Accelerated(smoothness=1 - convexity))
    noisy = with_noise(function.without_ridge(convexity), variance, seed=2)
    states = descend(plan, noisy, np.zeros((200, 10)))
    assert mean_below(function.gap(states[-1].model), strong_bound(function, convexity, rounds, variance))


@pytest.mark.parametrize("variance", [0.01, 1.0])
@pytest.mark.parametrize("rounds", [5, 20, 100, 400])
@pytest.mark.parametrize("penalised", [False, True])
def test_a_run_without_strong_convexity_with_noise_is_below_its_bound(
    rounds: int, variance: float, penalised: bool
) -> None:
    function = spread(1e-3, 10)
    shape: Any = {"distance": float(np.linalg.norm(function.best)), "rounds": rounds, "variance": variance}
    if penalised:
        penalty = loss_bounds.regularised_penalty(**shape)
        bound = loss_bounds.regularised(smoothness=1.0, penalty=penalty, **shape)
        algorithm = Accelerated(smoothness=1.0, penalty=penalty)
    else:
        bound = loss_bounds.accelerated_best(smoothness=1.0, **shape)
        algorithm = Accelerated(smoothness=1.0, upsilon=loss_bounds.accelerated_upsilon(smoothness=1.0, **shape))
    noisy = with_noise(function.gradient, variance, seed=3)
    states = descend(make_plan(rounds=rounds, algorithm=algorithm), noisy, np.zeros((200, 10)))
    assert mean_below(function.gap(states[-1].model), bound)


VARIANCE, STAGES, CONVEXITY = 0.25, 5, 0.05
FAR = spread(CONVEXITY, 10, size=3.0)


def planned_stages() -> tuple[loss_bounds.MultiStageBound, float]:
    """Plan five stages, each of just the paper's length, and return them with the gap at the start."""
    start = float(FAR.gap(np.zeros(10)))
    shortest, noise = 4 * math.sqrt(2 / CONVEXITY), 128 * VARIANCE / (3 * CONVEXITY * start)
    rounds = sum(math.ceil(max(shortest, noise * 2 ** (k + 1))) for k in range(1, STAGES + 1))
    planned = loss_bounds.multistage_plan(
        smoothness=1.0, strong_convexity=CONVEXITY, gap=start, rounds=rounds, variance=VARIANCE
    )
    assert len(planned.stages) == STAGES
    return planned, start


def gaps_after_stages(planned: loss_bounds.MultiStageBound, upsilons: list[float], inner: float) -> list[FloatArray]:
    """Return the gaps of 20 noisy runs after every stage; `inner` is the μ that the recursion knows of."""
    plan = staged(planned, upsilons, CONVEXITY)
    settings = accelerated.settings(plan)._replace(ridge=inner)
    noisy = with_noise(FAR.without_ridge(inner), VARIANCE, seed=5)
    states = descend(plan, noisy, np.zeros((20, 10)), settings)
    return [FAR.gap(states[end].model) for end in accumulate(stage.rounds for stage in planned.stages)]


@pytest.mark.parametrize("inner", [0.0, CONVEXITY])
def test_with_the_corrected_step_size_every_stage_halves_the_gap_under_noise(inner: float) -> None:
    planned, start = planned_stages()
    gaps = gaps_after_stages(planned, [stage.upsilon for stage in planned.stages], inner)
    assert all(mean_below(gap, start * 0.5**k) for k, gap in enumerate(gaps, start=1))
    assert mean_below(gaps[-1], planned.bound)


def test_with_the_step_size_as_the_paper_prints_it_the_gap_does_not_fall_below_the_noise() -> None:
    """The printed υ has R(R+1)(R+2) in the denominator, so 2β always is larger, and the noise is never damped.

    It shows with μ = 0 inside the stages, as the paper's bound for a stage has it. With the algorithm's own μ, which
    our plans have, the recursion damps noise by itself: printed and corrected υ both converge.
    """
    planned, start = planned_stages()
    printed = [
        max(2.0, math.sqrt(CONVEXITY * VARIANCE / (3 * start * 0.5**k * R * (R + 1) * (R + 2))))
        for k, R in enumerate(stage.rounds for stage in planned.stages)
    ]
    assert printed == [2.0] * STAGES
    stuck = [float(gap.mean()) for gap in gaps_after_stages(planned, printed, 0.0)]
    corrected = gaps_after_stages(planned, [stage.upsilon for stage in planned.stages], 0.0)
    assert min(stuck) > 50 * float(corrected[-1].mean())
    assert stuck[-1] > stuck[0] / 2  # four more stages, sixteen times as long, and no better
    assert mean_below(gaps_after_stages(planned, printed, CONVEXITY)[-1], start * 0.5**STAGES)
