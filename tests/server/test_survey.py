"""What the server makes of a survey: how noisy it is, a smoothness that can be relied on, and the features' scales."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from ringfence.errors import TrainingError
from ringfence.protocol.algorithms import Accelerated, AlgorithmSpec, MinibatchSGD
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, Reason, RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.protocol.schedule import survey_length
from ringfence.server.rounds import Ask, Session, mean_update, run
from ringfence.server.survey import Findings, findings, scales, smoothness
from tests.server.quadratics import Journal, make_plan, quadratics, refuse, update

SHARES, SIGMAS = (0.1, 0.3, 0.6), (0.3, 0.05, 0.1)
FALSE_ALARM = 1e-6


def surveyed(statistic: str = "curvature", *, margin: float = 2.0, rounds: int = 5, **changes: Any) -> Plan:
    """Make a plan with a survey, for three silos of unequal weights and noises."""
    terms = {"records": 10, "batch": 10, "sigma": 1.0, "epsilon": 1.0, "delta": 1e-6}
    named = zip(SHARES, SIGMAS, strict=True)
    silos = [{"name": f"s{i}", "weight": p, "survey_sigma": s, **terms} for i, (p, s) in enumerate(named)]
    survey = {"statistic": statistic, "margin": margin}
    return make_plan(SHARES, rounds=rounds, survey=survey, silos=silos, **changes)


def found(plan: Plan, answers: Mapping[str, FloatArray]) -> Findings:
    """Average the answers as the server does."""
    return findings(plan, mean_update(plan, answers), tuple(answers))


def answers_at(plan: Plan, exact: Sequence[float], random: np.random.Generator | None = None) -> dict[str, FloatArray]:
    """Answer a survey of curvature with the given eigenvalues and, given a generator, the silos' noise."""
    noise = np.zeros(3) if random is None else np.array(SIGMAS) * random.normal(size=3)
    return {terms.name: np.array([value]) for terms, value in zip(plan.silos, exact + noise, strict=True)}


def second_moments(random: np.random.Generator, dimension: int = 2) -> list[FloatArray]:
    """Return the matrices (1/n)·Σ xxᵀ of three silos whose features have entries in [−1, 1]."""
    features = [random.uniform(-1, 1, (n, dimension)) * random.uniform(0, 1, dimension) for n in (5, 20, 80)]
    return [x.T @ x / len(x) for x in features]


def largest_eigenvalue(matrix: FloatArray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


# The average and its noise


def test_the_findings_are_the_silos_average_by_their_public_weights() -> None:
    plan = surveyed()
    everybody = found(plan, answers_at(plan, (1.0, 0.5, 0.2)))
    np.testing.assert_allclose(everybody.statistic, [0.1 * 1.0 + 0.3 * 0.5 + 0.6 * 0.2])
    assert everybody.weight == pytest.approx(1.0)


def test_where_some_silos_did_not_answer_the_average_is_that_of_the_others() -> None:
    plan = surveyed()
    answers = answers_at(plan, (1.0, 0.5, 0.2))
    two = found(plan, {name: answers[name] for name in ("s0", "s2")})
    np.testing.assert_allclose(two.statistic, [(0.1 * 1.0 + 0.6 * 0.2) / 0.7])
    assert two.weight == pytest.approx(0.7)
    alone = found(plan, {"s1": answers["s1"]})
    np.testing.assert_allclose(alone.statistic, [0.5])
    assert alone.noise == pytest.approx(0.05)


@pytest.mark.parametrize("names", [("s0", "s1", "s2"), ("s0", "s2"), ("s1",)], ids=str)
def test_the_findings_noise_is_that_of_the_average(names: tuple[str, ...]) -> None:
    plan, random = surveyed("moments"), np.random.default_rng(1)
    sigma = {terms.name: terms.survey_sigma or 0.0 for terms in plan.silos}
    draws = 20_000
    average = found(plan, {name: sigma[name] * random.normal(size=draws) for name in names})
    # Σ of squares over the variance is chi-squared.
    low, high = (float(chi2.ppf(share, draws)) for share in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert low < float(np.sum(average.statistic**2)) / average.noise**2 < high


# Smoothness


def test_averaged_eigenvalues_are_never_below_the_eigenvalue_of_the_average() -> None:
    random, plan = np.random.default_rng(2), surveyed(margin=0.0)
    strict = 0
    for _ in range(200):
        matrices = second_moments(random)
        averaged = largest_eigenvalue(np.einsum("s,sij->ij", SHARES, np.array(matrices)))
        bound = smoothness(plan, found(plan, answers_at(plan, [largest_eigenvalue(m) for m in matrices])))
        assert bound is not None
        assert bound >= averaged * (1 - 1e-12)  # β of the squared loss is the eigenvalue itself
        strict += bound > 1.01 * averaged
    assert strict > 100


@pytest.mark.parametrize("margin", [0.0, 1.0, 2.0])
def test_the_margin_covers_the_noise_as_often_as_a_normal_distribution_says(margin: float) -> None:
    """Silos that share their first eigenvector leave no room: then the bound fails with probability Φ(−margin)."""
    random, plan, trials = np.random.default_rng(3), surveyed(margin=margin), 4000
    eigenvalues = (0.4, 0.9, 1.2)
    true = float(np.dot(SHARES, eigenvalues))
    covered = sum(
        (smoothness(plan, found(plan, answers_at(plan, eigenvalues, random))) or 0.0) >= true for _ in range(trials)
    )
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
        covered += (smoothness(plan, found(plan, answers)) or 0.0) >= true
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
    plan = surveyed(margin=0.0)
    exact = {terms.name: 0.1 for terms in plan.silos} | {absent: 2.0}
    answers = {name: np.array([value]) for name, value in exact.items() if name != absent}
    true = sum(terms.weight * exact[terms.name] for terms in plan.silos)
    assert smoothness(plan, found(plan, answers)) == pytest.approx(true)


def test_a_survey_of_something_else_says_nothing_of_the_smoothness() -> None:
    assert smoothness(surveyed("moments"), Findings(np.zeros(6), 0.1)) is None


# Scales


def test_the_scales_are_the_features_means_and_deviations_in_their_own_units() -> None:
    random, plan = np.random.default_rng(5), surveyed("moments", data=skewed_schema())
    features, targets = random.uniform(-1, 1, (50, 3)) ** 3, random.uniform(-2, 1, 50)
    features[:, 2] = 1.0  # the intercept
    units = np.array([*[plan.data.feature_norm] * 3, plan.data.target_bound])
    columns = np.column_stack([features, targets]) / units
    statistic = np.concatenate([columns.mean(axis=0), (columns**2).mean(axis=0)])
    assert len(statistic) == survey_length(plan)
    result = scales(plan, Findings(statistic, 0.0))
    assert list(result) == ["a", "b", "intercept", "y"]
    for name, values in zip(result, [*features.T, targets], strict=True):
        np.testing.assert_allclose(result[name], (values.mean(), values.std()), atol=1e-8)


def skewed_schema() -> dict[str, Any]:
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target = {"type": "numeric", "lower": -2.0, "upper": 1.0, "center": 0.0, "scale": 1.0}
    return {"columns": {"a": number, "b": number, "y": target}, "target": "y", "intercept": True}


def test_a_variance_that_noise_made_negative_counts_as_none() -> None:
    plan = surveyed("moments")
    result = scales(plan, Findings(np.array([0.5, 0.0, 0.0, 0.1, -0.3, 0.25]), 0.1))
    # The longest feature vector is √2, the largest target 1.
    expected = {"x0": (0.5 * math.sqrt(2), 0.0), "x1": (0.0, 0.0), "y": (0.0, 0.5)}
    assert list(result) == list(expected)
    np.testing.assert_allclose(list(result.values()), list(expected.values()))


def test_a_target_of_categories_has_no_scale() -> None:
    schema = skewed_schema()
    schema["columns"]["y"] = {"type": "categorical", "categories": ["no", "yes"]}
    plan = surveyed("moments", data=schema, loss={"name": "logistic"})
    assert survey_length(plan) == 6
    assert list(scales(plan, Findings(np.zeros(6), 0.1))) == ["a", "b", "intercept"]


# In a run


def surveying(survey: Callable[[RoundRequest, str], Answer], gradients: Ask) -> Ask:
    """Answer round 0 by one function and the rounds of gradients by another."""

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {name: survey(request, name) for name in asked} if request.round == 0 else gradients(request, asked)

    return ask


GRADIENTS = quadratics((1, 0), (0, 1), (2, 2))


def curved(value: float) -> Ask:
    return surveying(lambda request, name: update(request, name, np.array([value])), GRADIENTS)


@pytest.mark.parametrize("algorithm", [MinibatchSGD(step=0.5), Accelerated(smoothness=2.0)], ids=lambda a: a.name)
def test_a_plan_of_a_survey_alone_returns_its_findings(algorithm: AlgorithmSpec) -> None:
    plan = surveyed("moments", rounds=0, algorithm=algorithm)
    session = Session(plan, np.random.default_rng(1))
    before = session.finished
    assert session.asked() == ["s0", "s1", "s2"]
    request = session.request()
    session.receive({name: update(request, name, np.arange(6.0) * i) for i, name in enumerate(session.asked())})
    assert (before, session.finished) == (False, True)
    trained = session.result()
    assert trained.findings is not None
    np.testing.assert_allclose(trained.findings.statistic, (0.3 + 2 * 0.6) * np.arange(6.0))
    np.testing.assert_allclose(trained.findings.noise, math.hypot(0.1 * 0.3, 0.3 * 0.05, 0.6 * 0.1))
    assert [outcome.answered for outcome in trained.history] == [("s0", "s1", "s2")]


def test_the_survey_is_round_0_and_asks_everybody_at_the_start() -> None:
    plan = surveyed(rounds=4, participation={"silos": 1}, algorithm=Accelerated(smoothness=2.0))
    journal = Journal(curved(0.4))
    trained = run(plan, journal, choices=np.random.default_rng(1))
    assert [request.round for request in journal.requests] == [0, 1, 2, 3, 4]
    assert [len(asked) for asked in journal.asked] == [3, 1, 1, 1, 1]
    np.testing.assert_array_equal(journal.queries[:2], np.zeros((2, 2)))
    assert trained.findings is not None


def test_the_rounds_go_at_the_pace_that_the_survey_found() -> None:
    """The curvature is 1, the plan allows 2: found, it makes the steps larger, just as a plan of that β has them."""
    plan = surveyed(margin=0.0, rounds=6, algorithm=Accelerated(smoothness=2.0))
    found_one = run(plan, curved(1.0)).weights
    told = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=1.0))
    np.testing.assert_allclose(found_one, run(told, GRADIENTS).weights, rtol=1e-12)
    told = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=2.0))
    assert not np.allclose(found_one, run(told, GRADIENTS).weights)


@pytest.mark.parametrize("answer", [None, np.array([1e9]), np.array([math.nan]), np.zeros(2)], ids=str)
def test_without_a_usable_or_smaller_finding_the_plan_s_smoothness_stays(answer: FloatArray | None) -> None:
    plan = surveyed(rounds=6, algorithm=Accelerated(smoothness=2.0))

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        if request.round:
            return GRADIENTS(request, asked)
        return {} if answer is None else {name: update(request, name, answer) for name in asked}

    unsurveyed = make_plan(SHARES, rounds=6, algorithm=Accelerated(smoothness=2.0))
    np.testing.assert_array_equal(run(plan, ask).weights, run(unsurveyed, GRADIENTS).weights)


def test_an_answered_survey_without_an_answered_round_is_no_model() -> None:
    def silent(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {name: refuse(request, name, Reason.UNAVAILABLE) for name in asked}

    ask = surveying(lambda request, name: update(request, name, np.array([0.4])), silent)
    with pytest.raises(TrainingError, match=r"any of the 5 rounds \(unavailable\)"):
        run(surveyed(algorithm=Accelerated(smoothness=2.0)), ask)


def test_a_survey_alone_that_nobody_answers_is_an_error() -> None:
    with pytest.raises(TrainingError, match="No silo answered"):
        run(surveyed("moments", rounds=0), lambda request, asked: {})
