"""What the server makes of the curvature: a smoothness that its steps can rely on."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy.stats import binom, norm

from ringfence.protocol import Accelerated, Answer, Curvature, FloatArray, Plan, RoundRequest
from ringfence.server.queries import curvature
from ringfence.server.rounds import run
from ringfence.server.state import Findings
from tests.server.quadratics import make_plan, update
from tests.server.surveyed import FALSE_ALARM, GRADIENTS, SHARES, answers_at, curved, found, surveyed


def smoothness(plan: Plan, findings: Findings) -> float:
    query = plan.stages[0].query
    assert isinstance(query, Curvature)
    return float(curvature.smoothness(query, plan, findings))


def second_moments(random: np.random.Generator, dimension: int = 2) -> list[FloatArray]:
    """Return the matrices (1/n)·Σ xxᵀ of three silos whose features have entries in [−1, 1]."""
    features = [random.uniform(-1, 1, (n, dimension)) * random.uniform(0, 1, dimension) for n in (5, 20, 80)]
    return [x.T @ x / len(x) for x in features]


def largest_eigenvalue(matrix: FloatArray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


def test_averaged_eigenvalues_are_never_below_the_eigenvalue_of_the_average() -> None:
    random, plan = np.random.default_rng(2), surveyed(Curvature(margin=0.0))
    strict = 0
    for _ in range(200):
        matrices = second_moments(random)
        averaged = largest_eigenvalue(np.einsum("s,sij->ij", SHARES, np.array(matrices)))
        bound = smoothness(plan, found(plan, answers_at(plan, [largest_eigenvalue(m) for m in matrices])))
        assert bound >= averaged * (1 - 1e-12)  # β of the squared loss is the eigenvalue itself
        strict += bound > 1.01 * averaged
    assert strict > 100


@pytest.mark.parametrize("margin", [0.0, 1.0, 2.0])
def test_the_margin_covers_the_noise_as_often_as_a_normal_distribution_says(margin: float) -> None:
    """Silos that share their first eigenvector leave no room: then the bound fails with probability Φ(−margin)."""
    random, plan, trials = np.random.default_rng(3), surveyed(Curvature(margin=margin)), 4000
    eigenvalues = (0.4, 0.9, 1.2)
    true = float(np.dot(SHARES, eigenvalues))
    covered = sum(smoothness(plan, found(plan, answers_at(plan, eigenvalues, random))) >= true for _ in range(trials))
    probability = float(norm.cdf(margin))
    low, high = (float(binom.ppf(share, trials, probability)) for share in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert low <= covered <= high


def test_for_silos_of_different_directions_the_bound_fails_even_less_often() -> None:
    random, plan, trials = np.random.default_rng(4), surveyed(), 4000
    covered = 0
    for _ in range(trials):
        matrices = second_moments(random)
        true = largest_eigenvalue(np.einsum("s,sij->ij", SHARES, np.array(matrices)))
        answers = answers_at(plan, [largest_eigenvalue(m) for m in matrices], random)
        covered += smoothness(plan, found(plan, answers)) >= true
    assert covered >= binom.ppf(FALSE_ALARM, trials, norm.cdf(2.0))


@pytest.mark.parametrize("loss", [{"name": "squared"}, {"name": "huber", "threshold": 0.3}], ids=str)
def test_the_bound_is_at_most_the_plan_s_and_does_not_count_the_ridge(loss: dict[str, object]) -> None:
    plan = surveyed(ridge=0.7, loss=loss)
    largest = plan.data.feature_norm**2
    assert largest == pytest.approx(2.0)
    loud = smoothness(plan, found(plan, answers_at(plan, (50.0, 50.0, 50.0))))
    assert loud == pytest.approx(plan.constants.smoothness - 0.7)
    half = smoothness(plan, Findings(np.array([1.0]), 0.0))
    assert half == pytest.approx((plan.constants.smoothness - 0.7) / 2)


def test_noise_that_drags_the_eigenvalue_below_zero_leaves_the_margin() -> None:
    assert smoothness(surveyed(), Findings(np.array([-5.0]), 0.25)) == pytest.approx(0.5)


@pytest.mark.parametrize("absent", ["s0", "s1", "s2"])
def test_a_silo_that_did_not_answer_counts_with_the_largest_curvature_it_can_have(absent: str) -> None:
    """Its records may be as steep as the bounds allow; the others' answers say nothing of them."""
    plan = surveyed(Curvature(margin=0.0))
    exact = {terms.name: 0.1 for terms in plan.silos} | {absent: 2.0}
    answers = {name: np.array([value]) for name, value in exact.items() if name != absent}
    true = sum(terms.weight * exact[terms.name] for terms in plan.silos)
    assert smoothness(plan, found(plan, answers)) == pytest.approx(true)


# In a run


def test_the_steps_are_those_of_the_smoothness_that_the_survey_found() -> None:
    """The curvature is 1, the plan allows 2: found, it makes the steps larger, just as a plan of that β has them."""
    plan = surveyed(Curvature(margin=0.0), rounds=6, algorithm=Accelerated(smoothness=2.0))
    found_one = run(plan, curved(1.0)).weights
    text = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=1.0))
    np.testing.assert_allclose(found_one, run(text, GRADIENTS).weights, rtol=1e-12)
    text = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=2.0))
    assert not np.allclose(found_one, run(text, GRADIENTS).weights)


@pytest.mark.parametrize("answer", [None, np.array([1e9]), np.array([math.nan]), np.zeros(2)], ids=str)
def test_without_a_usable_or_smaller_finding_the_plan_s_smoothness_stays(answer: FloatArray | None) -> None:
    plan = surveyed(rounds=6, algorithm=Accelerated(smoothness=2.0))

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        if request.round:
            return GRADIENTS(request, asked)
        return {} if answer is None else {name: update(request, name, answer) for name in asked}

    unsurveyed = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=2.0))
    np.testing.assert_array_equal(run(plan, ask).weights, run(unsurveyed, GRADIENTS).weights)
