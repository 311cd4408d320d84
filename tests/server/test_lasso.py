"""A lasso at the server: where runs end without noise, and the loss bounds' inequalities on every single path."""

from functools import cache

import numpy as np
import pytest

from ringfence import protocol
from ringfence.planning import loss_bounds
from ringfence.protocol import FloatArray
from ringfence.server.algorithms import accelerated, minibatch
from ringfence.server.rounds import run
from tests.server.quadratics import make_plan, quadratics

CURVATURES = np.array([0.05, 0.1, 0.3, 1.0, 2.0])
CENTRE = np.array([3.0, -2.0, 0.2, 2.0, -0.05])
LASSO = 0.15


def objective(w: FloatArray) -> float:
    return float(np.sum(CURVATURES / 2 * (w - CENTRE) ** 2) + LASSO * np.sum(np.abs(w)))


def slope(w: FloatArray) -> FloatArray:
    result: FloatArray = CURVATURES * (w - CENTRE)
    return result


BEST = np.sign(CENTRE) * np.maximum(np.abs(CENTRE) - LASSO / CURVATURES, 0.0)


@pytest.mark.parametrize(
    "algorithm",
    [
        protocol.MinibatchSGD(step=0.5).averaged("last", 200),
        protocol.Accelerated(smoothness=1.0, average="last"),
        protocol.MultiStage(
            smoothness=1.0,
            average="last",
            stages=(protocol.Restart(rounds=100, upsilon=0.0), protocol.Restart(rounds=100, upsilon=0.0)),
        ),
    ],
    ids=lambda spec: str(spec.name),
)
def test_runs_end_at_the_soft_threshold_with_zeros_that_are_exact(algorithm: object) -> None:
    plan = make_plan(rounds=200, ridge=0.6, lasso=0.5, algorithm=algorithm)  # type: ignore[arg-type]
    model = run(plan, quadratics((1, 0.25), (3, 0.5))).weights
    np.testing.assert_allclose(model, [(2.0 - 0.5) / 1.6, 0.0], atol=1e-3)
    assert model[1] == 0.0


def test_the_lasso_is_taken_once_however_many_silos_answer() -> None:
    plan = make_plan((0.25,) * 4, rounds=100, lasso=0.5, algorithm={"step": 0.5, "skip": 99})
    np.testing.assert_allclose(run(plan, quadratics((1, 0), (3, 4), (1, 0), (3, 4))).weights, [1.5, 1.5])


def test_the_intercept_is_not_pulled() -> None:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    data = {"columns": {"x": number, "y": number}, "target": "y", "intercept": True}
    plan = make_plan(rounds=100, lasso=0.5, algorithm={"step": 0.5, "skip": 99}, data=data)
    np.testing.assert_allclose(run(plan, quadratics((1, 1), (1, 1))).weights, [0.5, 1.0])


def test_a_plan_without_a_lasso_says_nothing_of_one() -> None:
    assert b"lasso" not in make_plan().content
    assert b'"lasso":0.5' in make_plan(lasso=0.5).content


def test_axes_of_a_survey_take_no_lasso() -> None:
    with pytest.raises(ValueError, match="does not support a lasso: ask for accelerated"):
        make_plan(lasso=0.5, algorithm=protocol.Preconditioned())


@pytest.mark.parametrize("rounds", [1, 2, 7, 60])
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_the_accelerated_inequality_holds_on_every_path_with_any_noise(rounds: int, noise: float) -> None:
    """Lemma L2 before the expectation: 2υD²/(R(R+1)) plus what the noise of this very path adds."""
    generator, upsilon = np.random.default_rng(rounds), 2 * float(CURVATURES.max())
    plan = make_plan(
        dimension=5, rounds=rounds, lasso=LASSO, algorithm=protocol.Accelerated(smoothness=float(CURVATURES.max()))
    )
    settings, state, added = accelerated.settings(plan), accelerated.init(np.zeros(5)), 0.0
    for r in range(1, rounds + 1):
        asked, received, before = (
            accelerated.query_weights(settings, state, r - 1),
            noise * generator.normal(size=5),
            state.iterate,
        )
        state = accelerated.step(settings, plan.proximal, state, slope(asked) + received, r - 1)
        alpha, eta, gamma = 2 / (r + 1), 4 * upsilon / (r * (r + 1)), 2 / (r * (r + 1))
        room = eta - CURVATURES.max() * alpha**2
        added += (alpha * received @ (BEST - before) + alpha**2 * received @ received / (2 * room)) / gamma
    gap = objective(state.model) - objective(BEST)
    start = loss_bounds.accelerated(distance=float(np.linalg.norm(BEST)), upsilon=upsilon, rounds=rounds, variance=0.0)
    assert gap <= start + 2 / (rounds * (rounds + 1)) * added + 1e-12


@cache
def best_of(domain: protocol.Ball) -> FloatArray:
    """Return the best point of the ball, by proximal descent without noise."""
    best: FloatArray = BEST
    for _ in range(20_000):
        best = protocol.Proximal(domain, LASSO)(best - 0.4 * slope(best), 0.4)
    return best


@pytest.mark.parametrize("rounds", [1, 2, 7, 60])
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("radius", [1.0, 10.0])
def test_the_minibatch_inequality_holds_on_every_path_with_any_noise(rounds: int, noise: float, radius: float) -> None:
    """Lemma L3 before the expectation, for the best point of a ball too."""
    generator, step = np.random.default_rng(rounds), 0.2
    domain = protocol.Ball(radius=radius)
    best = best_of(domain)
    plan = make_plan(dimension=5, rounds=rounds, lasso=LASSO, algorithm={"step": step}, domain=domain)
    settings, state, squares, along = minibatch.settings(plan), minibatch.init(np.zeros(5)), 0.0, 0.0
    for r in range(rounds):
        received = noise * generator.normal(size=5)
        gradient, before = slope(state.weights) + received, state.weights
        state = minibatch.step(settings, plan.proximal, state, gradient, r)
        squares, along = squares + float(gradient @ gradient), along + float(received @ (best - before))
    gap = objective(minibatch.output(settings, state)) - objective(best)
    bound = loss_bounds.minibatch_empirical(
        distance=float(np.linalg.norm(best)), step=step, rounds=rounds, second_moment=squares / rounds
    )
    assert gap <= bound + along / rounds + 1e-9
