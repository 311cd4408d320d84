"""A lower bound is exceeded no more often than it says, and says of a true claim what the claim says of itself."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from ringfence.accounting.events import DisjointBatchRelease, Event, FixedSizeRelease, GaussianRelease, PoissonRelease
from ringfence.accounting.profiles import gaussian_epsilon
from ringfence.evidence.audit.lower_bound import (
    Claim,
    epsilon_of_score,
    epsilon_without_assumptions,
    lower_bound_of_mean,
)

DELTA = 1e-5
CLAIMS = [
    [(GaussianRelease(0.36), 4)],
    [(FixedSizeRelease(64, 48, 0.5), 4)],
    [(PoissonRelease(0.75, 0.5), 4)],
    [(DisjointBatchRelease("pass", 0, 0.72), 1)],
    [(GaussianRelease(0.3), 2), (PoissonRelease(0.5, 0.4), 3)],
]


def coins(right: int, runs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.concatenate([np.ones(right), np.zeros(runs - right)])


@pytest.mark.parametrize("alpha", [0.05, 1e-3])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.64, 0.95])
def test_the_bound_is_wrong_no_more_often_than_it_says(p: float, alpha: float) -> None:
    """Exactly: over all outcomes of sixty tosses of a coin of mean p."""
    runs = 60
    too_high = [lower_bound_of_mean(coins(right, runs), 1 - alpha) > p for right in range(runs + 1)]
    assert binom.pmf(np.arange(runs + 1), runs, p) @ np.array(too_high) <= alpha


@pytest.mark.parametrize("alpha", [0.05, 1e-3])
def test_rare_failures_are_allowed_for_though_none_was_seen(alpha: float) -> None:
    """Scores of 0.7 in every run, but 0 once in a while, have a smaller mean than the runs seen suggest."""
    runs = 200
    for rare in np.geomspace(1e-4, 0.2, 40):
        mean = 0.7 * (1 - rare)
        none_seen = (1 - rare) ** runs
        if none_seen > alpha:
            assert lower_bound_of_mean(np.full(runs, 0.7), 1 - alpha) <= mean


def test_more_runs_and_steadier_scores_bring_the_bound_closer() -> None:
    few, many = lower_bound_of_mean(np.full(300, 0.64), 1 - 1e-6), lower_bound_of_mean(np.full(3000, 0.64), 1 - 1e-6)
    spread = lower_bound_of_mean(0.64 + 0.3 * np.resize([1.0, -1.0], 3000), 1 - 1e-6)
    assert few < many < 0.64
    assert spread < many
    assert many > 0.63


def test_no_scores_or_none_above_zero_say_nothing() -> None:
    assert lower_bound_of_mean(np.array([]), 0.95) == 0.0
    assert lower_bound_of_mean(np.zeros(10), 0.95) == 0.0
    assert lower_bound_of_mean(np.array([1.0]), 1 - 1e-12) == 0.0


@pytest.mark.parametrize("events", CLAIMS)
def test_the_score_that_a_claim_allows_gives_back_its_epsilon_rounded_down(events: list[tuple[Event, int]]) -> None:
    claim = Claim(tuple(events), DELTA)
    found = epsilon_of_score(claim, claim.score)
    assert found <= claim.epsilon
    assert found == pytest.approx(claim.epsilon, rel=1e-3)


@pytest.mark.parametrize("events", CLAIMS)
def test_a_larger_score_gives_a_larger_epsilon(events: list[tuple[Event, int]]) -> None:
    claim = Claim(tuple(events), DELTA)
    found = [epsilon_of_score(claim, claim.score + more) for more in (-0.1, -0.05, 0.0, 0.05, 0.1)]
    assert found == sorted(found)
    assert found[1] < claim.epsilon < found[3]


def test_of_a_gaussian_claim_the_score_is_that_of_its_shift() -> None:
    claim = Claim(((GaussianRelease(0.36), 4),), DELTA)
    assert claim.score == pytest.approx(norm.cdf(0.36), rel=1e-6)  # √4 · 0.36 / 2
    shift = 2 * norm.ppf(0.7)
    assert epsilon_of_score(claim, 0.7) == pytest.approx(gaussian_epsilon(shift, DELTA), rel=1e-4)


def test_scores_that_show_nothing_and_scores_that_no_noise_explains() -> None:
    gaussian = Claim(((GaussianRelease(0.36), 4),), DELTA)
    sampled = Claim(((PoissonRelease(0.5, 0.4), 1),), DELTA)
    assert epsilon_of_score(gaussian, 0.5) == epsilon_of_score(gaussian, 0.3) == 0.0
    assert epsilon_of_score(sampled, 0.9) == math.inf  # a record that takes part half the time shows half the time


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_without_assumptions_the_bound_is_the_epsilon_that_just_allows_the_score(epsilon: float) -> None:
    allowed = (math.exp(epsilon) + DELTA) / (1 + math.exp(epsilon))
    assert epsilon_without_assumptions(allowed, DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_without_assumptions(0.5, DELTA) == 0.0
    assert epsilon_without_assumptions(1.0, DELTA) == math.inf
