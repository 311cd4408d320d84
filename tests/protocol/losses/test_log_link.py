"""Counts, amounts and times: tight constants on bounded scores, and the same minima as other software finds."""

import math

import numpy as np
import pytest
import statsmodels.api as sm

from ringfence.protocol import FloatArray, Gamma, Loss, NegativeBinomial, PoissonLoss, Survival
from tests.protocol.losses.minimising import minimised

COUNTS: list[Loss] = [PoissonLoss(zero=-1.0), Gamma(zero=-1.5), NegativeBinomial(zero=-1.0, dispersion=0.6)]
of_counts = pytest.mark.parametrize("loss", COUNTS, ids=str)


@of_counts
def test_some_record_reaches_the_constants_so_that_they_are_tight(loss: Loss) -> None:
    X, radius = 1.3, 0.7
    claimed, reach = loss.constants(X, 1.0, radius), X * radius
    scores = np.linspace(-reach, reach, 4001)[:, None]
    ends = [np.full(4001, end) for end in (-1.0, 1.0)]
    slopes = [np.abs(loss.residuals(scores, end)).max() for end in ends]
    curvatures = [(np.diff(loss.residuals(scores, end)[:, 0]) / np.diff(scores[:, 0])).max() for end in ends]
    if not isinstance(loss, Gamma):  # of which the least target is above the scale's zero
        assert X * max(slopes) == pytest.approx(claimed.lipschitz, rel=1e-12)
    assert X**2 * max(curvatures) == pytest.approx(claimed.smoothness, rel=1e-3)


@of_counts
@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_a_clipped_gradient_changes_no_faster_than_claimed_whatever_the_domain(loss: Loss, clip: float) -> None:
    X, most = 1.3, loss.clipped_smoothness(1.3, 1.0, clip)
    scores = np.linspace(-12.0, 12.0, 200_001)[:, None]
    for norm in (0.1, 0.7, X):
        for target in (-1.0, -0.2, 1.0):
            residuals = loss.residuals(scores, np.full(len(scores), target))[:, 0]
            cut = np.clip(residuals, -clip / norm, clip / norm)
            assert norm**2 * (np.diff(cut) / np.diff(scores[:, 0])).max() <= most * (1 + 1e-6)


def times_observed(count: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw features, times of proportional hazards up to 2.5, and whether an event ended each."""
    random = np.random.default_rng(seed)
    features = np.column_stack([random.normal(size=(count, 2)), np.ones(count)])
    times = np.minimum(random.exponential(1 / np.exp(features @ [0.6, -0.3, 0.0])), 2.5)
    return features, times, (times < 2.5) * 1.0


def best_weights(cuts: tuple[float, ...], features: FloatArray, times: FloatArray, events: FloatArray) -> FloatArray:
    targets = np.column_stack([times, events, np.zeros(len(times)), np.ones(len(times))])
    return minimised(Survival(cuts=cuts), features, targets)


def test_survival_has_the_minimum_of_a_poisson_regression_of_everybody_s_intervals() -> None:
    features, times, events = times_observed(300, seed=9)
    cuts, rows, spent, ended = (0.4, 1.0), [], [], []
    for x, time, event in zip(features, times, events, strict=True):
        for k, (start, end) in enumerate(zip((0.0, *cuts), (*cuts, math.inf), strict=True)):
            if time > start:
                rows.append([*x[:2], *np.eye(3)[k]])
                spent.append(min(time, end) - start)
                ended.append(event * (time <= end))
    exact = sm.GLM(np.array(ended), np.array(rows), family=sm.families.Poisson(), offset=np.log(spent)).fit().params
    np.testing.assert_allclose(best_weights(cuts, features, times, events), exact, atol=1e-4)


def test_with_a_part_for_every_event_survival_is_the_cox_model_of_statsmodels() -> None:
    features, times, events = times_observed(120, seed=10)
    times = np.minimum(times, times[events > 0].max())  # after the last event, time carries no information
    cox = sm.PHReg(times, features[:, :2], status=events, ties="breslow").fit(disp=False).params
    # Everybody at risk when an event happens was so for the whole part that it ends: both likelihoods are the same.
    cuts = tuple(np.sort(times[events > 0])[:-1].tolist())
    np.testing.assert_allclose(best_weights(cuts, features, times, events)[:2], cox, atol=1e-4)
