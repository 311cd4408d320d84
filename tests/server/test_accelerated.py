"""Accelerated noisy minibatch SGD: that every step is the paper's, where stages begin, and what becomes the model."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy.optimize import minimize

from ringfence import protocol
from ringfence.protocol import FloatArray
from ringfence.server.algorithms import accelerated, minibatch
from ringfence.server.rounds import Ask, run
from tests.server.descent import Map, Quadratic, algorithm_1, descend
from tests.server.quadratics import Journal, make_plan, quadratics

DOMAINS: list[protocol.Domain] = [protocol.Ball(radius=1.0), protocol.Box(lower=-0.4, upper=0.7), protocol.WholeSpace()]
TILTED = Quadratic(np.array([0.2, 1.0, 3.0]), np.array([2.0, -1.0, 0.5]))


def staged(*lengths: int, penalty: float = 0.0, upsilon: float = 0.0) -> protocol.MultiStage:
    stages = tuple(protocol.Restart(rounds=rounds, upsilon=upsilon) for rounds in lengths)
    return protocol.MultiStage(smoothness=3.0, stages=stages, penalty=penalty)


def phased(*phases: tuple[int, float]) -> protocol.Localized:
    return protocol.Localized(smoothness=3.0, phases=tuple(protocol.Phase(rounds=r, penalty=p) for r, p in phases))


def plan_of(algorithm: protocol.AlgorithmSpec, rounds: int = 12, **changes: Any) -> protocol.Plan:
    """Make a plan for silos with records enough for several phases."""
    return make_plan(rounds=rounds, records=64, algorithm=algorithm, **changes)


def random_gradients(size: float, seed: int = 1) -> Map:
    random = np.random.default_rng(seed)
    return lambda asked: size * random.normal(size=asked.shape)


# The step


Objective: TypeAlias = Callable[[FloatArray], tuple[float, FloatArray]]


def argmin(objective: Objective, domain: protocol.Domain, dimension: int) -> FloatArray:
    """Minimise over the domain, from values and gradients, without knowing a closed form."""
    options: Any = {"ftol": 1e-16, "maxiter": 1000}
    start = np.zeros(dimension)
    if isinstance(domain, protocol.Ball):
        inside: Any = {"type": "ineq", "fun": lambda w: domain.radius**2 - w @ w, "jac": lambda w: -2 * w}
        return minimize(objective, start, jac=True, method="SLSQP", constraints=inside, options=options).x
    bounds = [(domain.lower, domain.upper)] * dimension if isinstance(domain, protocol.Box) else None
    return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


def prox(alpha: float, eta: float, mu: float, gradient: FloatArray, asked: FloatArray, last: FloatArray) -> Objective:
    """Return what the paper's w_r minimises: α[⟨g, w⟩ + (μ/2)‖w_md − w‖²] + ½[(1−α)μ + η]‖w_{r−1} − w‖²."""

    def objective(w: FloatArray) -> tuple[float, FloatArray]:
        inertia = (1 - alpha) * mu + eta
        value = alpha * (gradient @ w + mu / 2 * np.sum((asked - w) ** 2)) + inertia / 2 * np.sum((last - w) ** 2)
        return float(value), alpha * (gradient + mu * (w - asked)) + inertia * (w - last)

    return objective


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@pytest.mark.parametrize(("ridge", "penalty"), [(0.0, 0.0), (0.7, 0.0), (0.3, 1.1)])
def test_the_step_is_the_argmin_that_the_paper_defines_it_as(
    domain: protocol.Domain, ridge: float, penalty: float
) -> None:
    plan = plan_of(protocol.Accelerated(smoothness=3.0, penalty=penalty), rounds=6, ridge=ridge, domain=domain)
    settings, random, mu = accelerated.settings(plan), np.random.default_rng(3), ridge + penalty
    state, at_the_border = accelerated.init(np.zeros(4)), 0
    for r in range(1, 7):
        alpha, eta = 2 / (r + 1), 4 * float(settings.upsilon[0]) / (r * (r + 1))
        gradient, asked, before = (
            8 * random.normal(size=4),
            accelerated.query_weights(settings, state, r - 1),
            state.iterate,
        )
        whole = gradient + (ridge + penalty) * asked  # the penalty's centre is the start, 0
        state = accelerated.step(settings, protocol.Proximal(domain), state, gradient, r - 1)
        # Values of order 1, exact to 10⁻¹⁶, tell the place of a minimum to 10⁻⁸ over the root of the curvature.
        exact = argmin(prox(alpha, eta, mu, whole, asked, before), domain, 4)
        np.testing.assert_allclose(state.iterate, exact, atol=1e-6)
        at_the_border += not np.allclose(1.01 * state.iterate, domain.project(1.01 * state.iterate))
    assert bool(at_the_border) != isinstance(domain, protocol.WholeSpace)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@pytest.mark.parametrize(("ridge", "penalty"), [(0.0, 0.0), (0.7, 0.0), (0.3, 1.1)])
def test_a_run_is_the_paper_s_algorithm_1(domain: protocol.Domain, ridge: float, penalty: float) -> None:
    plan = plan_of(protocol.Accelerated(smoothness=3.0, penalty=penalty), ridge=ridge, domain=domain)
    upsilon = (1 if ridge + penalty else 2) * (3.0 + ridge + penalty)
    states = descend(plan, TILTED.gradient, np.zeros(3))
    paper = algorithm_1(
        lambda w: TILTED.gradient(w) + (ridge + penalty) * w,
        domain.project,
        np.zeros(3),
        upsilon=upsilon,
        rounds=12,
        convexity=ridge + penalty,
    )
    np.testing.assert_allclose([state.iterate for state in states], paper.w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose([state.model for state in states], paper.model, rtol=1e-12, atol=1e-14)


ALL: list[protocol.AlgorithmSpec] = [
    protocol.Accelerated(smoothness=0.1),
    protocol.Accelerated(smoothness=0.1, penalty=0.5, average="tail"),
    staged(3, 4, 5),
    phased((6, 0.2), (4, 2.0), (2, 30.0)),
]


@pytest.mark.parametrize("domain", DOMAINS[:2], ids=lambda domain: domain.name)
@pytest.mark.parametrize("algorithm", ALL, ids=lambda spec: spec.name)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6, 1e90])
def test_every_asked_point_and_the_model_stay_in_the_domain(
    algorithm: protocol.AlgorithmSpec, domain: protocol.Domain, size: float
) -> None:
    plan = plan_of(algorithm, domain=domain, ridge=0.1)
    settings, gradient = accelerated.settings(plan), random_gradients(size)
    state = accelerated.init(np.zeros(3))
    for round in range(plan.steps):
        asked = accelerated.query_weights(settings, state, round)
        assert domain.contains(asked)
        state = accelerated.step(settings, protocol.Proximal(domain), state, gradient(asked), round)
        assert domain.contains(accelerated.output(settings, state))


@pytest.mark.parametrize(
    ("algorithm", "plan"),
    [
        (accelerated, plan_of(staged(3, 4, 5), ridge=0.1)),
        (minibatch, make_plan(algorithm={"step": 0.5, "momentum": 0.9}, ridge=0.1)),
    ],
    ids=["accelerated", "minibatch"],
)
def test_a_step_changes_nothing_but_what_it_returns(algorithm: Any, plan: protocol.Plan) -> None:
    settings, project, gradient = algorithm.settings(plan), plan.proximal, np.array([1.0, -1.0])
    state = algorithm.step(settings, project, algorithm.init(np.zeros(2)), gradient, 0)
    before = [np.array(part) for part in state]
    first, second = (algorithm.step(settings, project, state, gradient, 1) for _ in range(2))
    algorithm.output(settings, state)
    for part, copy, one, other in zip(state, before, first, second, strict=True):
        np.testing.assert_array_equal(part, copy)
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(gradient, [1.0, -1.0])


# Stages and phases


@pytest.mark.parametrize(
    ("whole", "parts"),
    [
        (staged(3, 4, 5), {rounds: staged(rounds) for rounds in (3, 4, 5)}),
        (
            phased((6, 0.2), (4, 2.0), (2, 30.0)),
            {
                rounds: protocol.Accelerated(smoothness=3.0, penalty=own)
                for rounds, own in ((6, 0.2), (4, 2.0), (2, 30.0))
            },
        ),
    ],
    ids=["stages", "phases"],
)
def test_a_stage_or_phase_is_a_run_of_its_own_from_where_the_last_one_ended(
    whole: protocol.AlgorithmSpec, parts: dict[int, protocol.AlgorithmSpec]
) -> None:
    states = descend(plan_of(whole, ridge=0.2, domain=protocol.Ball(radius=1.5)), TILTED.gradient, np.zeros(3))
    begin = 0
    for rounds, alone in parts.items():
        plan = plan_of(alone, rounds=rounds, ridge=0.2, domain=protocol.Ball(radius=1.5))
        own = descend(plan, TILTED.gradient, states[begin].model)
        centre = states[begin].model if isinstance(whole, protocol.Localized) else np.zeros(3)
        np.testing.assert_array_equal(states[begin + rounds].centre, centre)
        for after in range(1, rounds + 1):
            np.testing.assert_array_equal(states[begin + after].iterate, own[after].iterate)
            np.testing.assert_array_equal(states[begin + after].model, own[after].model)
        begin += rounds


def test_stages_have_upsilons_of_their_own_but_none_below_twice_the_smoothness() -> None:
    spec = protocol.MultiStage(
        smoothness=3.0,
        stages=(protocol.Restart(rounds=5, upsilon=1.0), protocol.Restart(rounds=7, upsilon=50.0)),
        penalty=0.5,
    )
    np.testing.assert_array_equal(accelerated.settings(plan_of(spec, ridge=0.5)).upsilon, [8.0, 50.0])


def test_the_penalty_of_a_staged_run_keeps_pulling_towards_the_first_start() -> None:
    start = np.array([0.3, 0.0, -0.3])
    states = descend(plan_of(staged(6, 6, penalty=0.8)), TILTED.gradient, start)
    for state in states:
        np.testing.assert_array_equal(state.centre, start)


def answering(ask: Ask, rounds: Sequence[int]) -> Ask:
    """Let the silos answer in the given rounds only."""
    return lambda request, asked: ask(request, asked) if request.round in rounds else {}


SILOS = quadratics((2, 4), (4, -1))


@pytest.mark.parametrize("average", ["weighted", "last"])
def test_a_missed_round_changes_nothing_and_the_schedule_goes_on_where_it_was(average: Any) -> None:
    spec = protocol.Accelerated(smoothness=1.0, average=average)
    answered = [0, 1, 4, 5, 8]
    journal, steady = Journal(answering(SILOS, answered)), Journal(SILOS)
    model = run(plan_of(spec, rounds=10), journal).weights
    assert model.tolist() == run(plan_of(spec, rounds=5), steady).weights.tolist()
    np.testing.assert_array_equal([journal.queries[round] for round in answered], steady.queries)
    for missed, next_answered in ((2, 4), (3, 4), (6, 8), (7, 8)):
        np.testing.assert_array_equal(journal.queries[missed], journal.queries[next_answered])


@pytest.mark.parametrize("missed", [[], [4], [4, 5], [2, 3, 4]], ids=str)
def test_a_stage_whose_first_rounds_were_missed_still_begins_anew(missed: list[int]) -> None:
    answered = [round for round in range(9) if round not in missed]
    journal = Journal(answering(SILOS, answered))
    model = run(plan_of(staged(4, 5), rounds=9, ridge=0.2), journal).weights
    first, second = (sum(round in stage for round in answered) for stage in (range(4), range(4, 9)))
    lengths = [plan_of(staged(rounds), rounds=rounds, ridge=0.2) for rounds in (first, second)]
    gradient = Quadratic(np.ones(2), np.array([3.0, 1.5])).gradient
    halfway = descend(lengths[0], gradient, np.zeros(2))[-1].model
    np.testing.assert_allclose(journal.queries[4], halfway, rtol=1e-12)
    np.testing.assert_allclose(model, descend(lengths[1], gradient, halfway)[-1].model, rtol=1e-12)


def test_a_stage_that_nobody_answered_leaves_the_next_to_begin_where_the_one_before_ended() -> None:
    spec = phased((4, 0.2), (3, 2.0), (5, 30.0))
    journal, steady = Journal(answering(SILOS, [0, 1, 2, 3, 7, 8, 9, 10, 11])), Journal(SILOS)
    model = run(plan_of(spec), journal).weights
    shorter = run(plan_of(phased((4, 0.2), (5, 30.0)), rounds=9), steady).weights
    np.testing.assert_array_equal(model, shorter)
    for round in range(4, 7):
        np.testing.assert_array_equal(journal.queries[round], journal.queries[7])


# What becomes the model


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5, 12])
def test_the_model_is_w_ag_the_last_point_or_the_mean_of_the_last_quarter_s_points(rounds: int) -> None:
    paper = algorithm_1(TILTED.gradient, lambda w: w, np.zeros(3), upsilon=6.0, rounds=rounds)
    expected = {
        "weighted": paper.model[-1],
        "last": paper.w[-1],
        "tail": np.mean(paper.w[1 + 3 * rounds // 4 :], axis=0),  # the start is not a point of a round
    }
    for average, model in expected.items():
        plan = plan_of(protocol.Accelerated.model_validate({"smoothness": 3.0, "average": average}), rounds=rounds)
        final = descend(plan, TILTED.gradient, np.zeros(3))[-1]
        np.testing.assert_allclose(accelerated.output(accelerated.settings(plan), final), model, rtol=1e-12)


def test_only_answered_rounds_of_the_last_quarter_are_in_its_mean_and_without_any_it_is_w_ag() -> None:
    spec = protocol.Accelerated(smoothness=1.0, average="tail")
    gradient = Quadratic(np.ones(2), np.array([3.0, 1.5])).gradient
    paper = algorithm_1(gradient, lambda w: w, np.zeros(2), upsilon=2.0, rounds=8)
    model = run(plan_of(spec, rounds=8), answering(SILOS, [0, 1, 3, 7])).weights
    np.testing.assert_allclose(model, paper.w[4], rtol=1e-12)
    model = run(plan_of(spec, rounds=8), answering(SILOS, [0, 1, 3])).weights
    np.testing.assert_allclose(model, paper.model[3], rtol=1e-12)


# Smoothness, ridge and penalty


@pytest.mark.parametrize("algorithm", [*ALL, staged(12, upsilon=20.0)], ids=lambda spec: spec.name)
def test_a_survey_s_smoothness_can_lengthen_steps_and_never_shortens_them(algorithm: protocol.AlgorithmSpec) -> None:
    plan = plan_of(algorithm, ridge=0.1)
    own = accelerated.settings(plan)
    for found in (1e-6, 0.02, 0.05):
        faster = accelerated.settings(plan, found)
        assert np.all(faster.upsilon <= own.upsilon)
        assert np.all(faster.upsilon >= found + 0.1 + own.penalty)
        np.testing.assert_array_equal(faster.stage, own.stage)
    for found in (3.0, 1e9):
        np.testing.assert_array_equal(accelerated.settings(plan, found).upsilon, own.upsilon)


def test_the_step_size_is_that_of_the_bounds_with_and_without_strong_convexity() -> None:
    def upsilon(smoothness: float | None = None, ridge: float = 0.0, **spec: float) -> float:
        plan = plan_of(protocol.Accelerated.model_validate({"smoothness": 4.0, **spec}), ridge=ridge)
        return float(accelerated.settings(plan, smoothness).upsilon[0])

    assert (upsilon(), upsilon(1.0), upsilon(9.0)) == (8.0, 2.0, 8.0)
    assert (upsilon(ridge=0.5), upsilon(1.0, ridge=0.5, penalty=0.25)) == (4.5, 1.75)
    assert (upsilon(1.0, upsilon=5.0), upsilon(1.0, ridge=0.5, upsilon=5.0), upsilon(upsilon=5.0)) == (5.0, 5.0, 8.0)


@pytest.mark.parametrize(
    "domain",
    [protocol.Ball(radius=0.6), protocol.Box(lower=-0.3, upper=0.5), protocol.WholeSpace()],
    ids=lambda d: d.name,
)
@pytest.mark.parametrize(
    "algorithm", [protocol.Accelerated(smoothness=3.0, penalty=0.5), staged(*[40] * 10, penalty=0.5)]
)
def test_a_run_ends_at_the_minimum_of_the_loss_with_ridge_and_penalty(
    algorithm: protocol.AlgorithmSpec, domain: protocol.Domain
) -> None:
    rounds = 400 if isinstance(algorithm, protocol.MultiStage) else 4000
    plan = plan_of(algorithm, rounds=rounds, ridge=0.3, domain=domain)
    start = np.array([0.2, 0.1, -0.2])

    def objective(w: FloatArray) -> tuple[float, FloatArray]:
        value = TILTED.gap(w) + 0.15 * w @ w + 0.25 * np.sum((w - start) ** 2)
        return float(value), TILTED.gradient(w) + 0.3 * w + 0.5 * (w - start)

    model = descend(plan, TILTED.gradient, start)[-1].model
    np.testing.assert_allclose(model, argmin(objective, domain, 3), atol=1e-5)
