"""Statistics that silos were asked for: how noisy they are, and what a run makes of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from ringfence.errors import TrainingError
from ringfence.protocol import Accelerated, AlgorithmSpec, Answer, MinibatchSGD, RefusalReason, RoundRequest
from ringfence.server.channels.own_noise import mean_update
from ringfence.server.queries.findings import least_noise
from ringfence.server.rounds import Session, run
from ringfence.server.state import RoundAnswers
from tests.server.quadratics import Journal, refuse, update
from tests.server.surveyed import FALSE_ALARM, SHARES, answers_at, curved, found, surveyed, surveying

# The average and its noise


@pytest.mark.parametrize("names", [("s0", "s1", "s2"), ("s0", "s2"), ("s1",)], ids=str)
def test_the_findings_are_the_average_of_those_that_answered_by_their_public_weights(names: tuple[str, ...]) -> None:
    plan = surveyed()
    answers, shares = answers_at(plan, (1.0, 0.5, 0.2)), dict(zip(("s0", "s1", "s2"), SHARES, strict=True))
    average, weight = found(plan, {name: answers[name] for name in names}), sum(shares[name] for name in names)
    np.testing.assert_allclose(average.statistic, sum(shares[name] * answers[name] for name in names) / weight)
    assert average.weight == pytest.approx(weight)


@pytest.mark.parametrize("names", [("s0", "s1", "s2"), ("s0", "s2"), ("s1",)], ids=str)
def test_the_findings_noise_is_that_of_the_average(names: tuple[str, ...]) -> None:
    plan, random = surveyed(), np.random.default_rng(1)
    sigma = {terms.name: terms.stages[0].sigma for terms in plan.silos}
    draws = 20_000
    average = found(plan, {name: sigma[name] * random.normal(size=draws) for name in names})
    # Σ of squares over the variance is chi-squared.
    low, high = (float(chi2.ppf(share, draws)) for share in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert low < float(np.sum(average.statistic**2)) / average.noise**2 < high


def test_what_only_shapes_the_steps_is_averaged_with_the_least_noise() -> None:
    plan, random = surveyed(), np.random.default_rng(2)
    sigma = {terms.name: terms.stages[0].sigma for terms in plan.silos}
    draws = 20_000
    each = {name: 3.0 + own * random.normal(size=draws) for name, own in sigma.items()}
    answers = RoundAnswers(0, 0, tuple(each), mean_update(plan, each), each)
    average = least_noise(plan, answers)
    assert average is not None
    assert average.noise == pytest.approx(sum(own**-2 for own in sigma.values()) ** -0.5)
    low, high = (float(chi2.ppf(share, draws)) for share in (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))
    assert low < float(np.sum((average.statistic - 3.0) ** 2)) / average.noise**2 < high
    assert least_noise(plan, replace(answers, each={})) is None


# In a run


@pytest.mark.parametrize("algorithm", [MinibatchSGD(step=0.5), Accelerated(smoothness=2.0)], ids=lambda a: a.name)
def test_a_plan_of_a_survey_alone_returns_its_findings(algorithm: AlgorithmSpec) -> None:
    plan = surveyed(rounds=0, algorithm=algorithm)
    session = Session(plan, np.random.default_rng(1))
    before = session.finished
    assert session.asked() == ["s0", "s1", "s2"]
    request = session.request()
    session.receive({name: update(request, name, np.array([float(i)])) for i, name in enumerate(session.asked())})
    assert (before, session.finished) == (False, True)
    trained = session.result()
    assert trained.findings.keys() == {"curvature"}
    np.testing.assert_allclose(trained.findings["curvature"].statistic, [0.3 + 2 * 0.6])
    np.testing.assert_allclose(trained.findings["curvature"].noise, math.hypot(0.1 * 0.3, 0.3 * 0.05, 0.6 * 0.1))
    assert [outcome.answered for outcome in trained.history] == [("s0", "s1", "s2")]


def test_the_survey_is_round_0_and_asks_everybody_at_the_start() -> None:
    plan = surveyed(rounds=4, participation={"silos": 1}, algorithm=Accelerated(smoothness=2.0))
    journal = Journal(curved(0.4))
    trained = run(plan, journal, choices=np.random.default_rng(1))
    assert [request.round for request in journal.requests] == [0, 1, 2, 3, 4]
    assert [len(asked) for asked in journal.asked] == [3, 1, 1, 1, 1]
    np.testing.assert_array_equal(journal.queries[:2], np.zeros((2, 2)))
    assert trained.findings.keys() == {"curvature"}


def test_an_answered_survey_without_an_answered_round_is_no_model() -> None:
    def silent(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {name: refuse(request, name, RefusalReason.UNAVAILABLE) for name in asked}

    ask = surveying(lambda request, name: update(request, name, np.array([0.4])), silent)
    with pytest.raises(TrainingError, match=r"any of the 5 training rounds \(unavailable\)"):
        run(surveyed(algorithm=Accelerated(smoothness=2.0)), ask)
