"""Counts, amounts and times: derivatives, constants on bounded scores, and the same minima as other software finds."""

import math

import jax
import numpy as np
import pytest
import statsmodels.api as sm

from ringfence.protocol import FloatArray, Gamma, Loss, NegativeBinomial, Ordinal, PoissonLoss, Survival
from tests.protocol.losses.minimising import minimised

COUNTS: list[Loss] = [PoissonLoss(zero=-1.0), Gamma(zero=-1.5), NegativeBinomial(zero=-1.0, dispersion=0.6)]
SHARED: list[Loss] = [Survival(zero=-1.0, cuts=(0.3, 1.1)), Ordinal(classes=4)]
every_loss = pytest.mark.parametrize("loss", COUNTS + SHARED, ids=str)


def draw_targets(loss: Loss, random: np.random.Generator, count: int) -> FloatArray:
    """Draw targets in their encoding, some at the ends of the range."""
    if loss.target_kind == "class":
        return random.integers(loss.categories, size=count).astype(np.float64)
    numbers = np.clip(random.uniform(-1.3, 1.3, size=count), -1.0, 1.0)
    return np.column_stack([numbers, random.integers(2, size=count)]) if loss.target_kind == "time" else numbers


@every_loss
def test_residuals_are_the_derivative_of_the_values_in_both_libraries(loss: Loss) -> None:
    random = np.random.default_rng(1)
    scores, targets = random.normal(scale=1.5, size=(200, loss.outputs)), draw_targets(loss, random, 200)
    residuals = loss.residuals(scores, targets)
    for output in range(loss.outputs):
        nudge = 1e-6 * np.eye(loss.outputs)[output]
        slope = (loss.values(scores + nudge, targets) - loss.values(scores - nudge, targets)) / 2e-6
        np.testing.assert_allclose(residuals[:, output], slope, rtol=1e-5, atol=1e-6)
    with jax.enable_x64(True):
        compiled = jax.jit(loss.residuals)(scores, targets)
    np.testing.assert_allclose(residuals, compiled, rtol=1e-9, atol=1e-12)


@every_loss
def test_the_collected_gradient_is_the_derivative_in_the_weights_and_its_length_is_told_by_two_norms(
    loss: Loss,
) -> None:
    random = np.random.default_rng(2)
    features, targets = random.normal(size=(30, 4)), draw_targets(loss, random, 30)
    weights = random.normal(scale=0.3, size=loss.dimension(4))
    residuals = loss.residuals(features @ loss.matrix(weights, 4), targets)
    norms = np.linalg.norm(features, axis=1)
    lengths = loss.gradient_norms(residuals, norms, features[:, -1])
    for row in range(30):
        own = loss.weight_gradients(np.outer(features[row], loss.residual_columns(residuals[row]))).reshape(-1)
        assert np.linalg.norm(own) == pytest.approx(lengths[row], rel=1e-12)
        for place in range(len(weights)):
            nudge = 1e-6 * np.eye(len(weights))[place]
            above, below = (
                loss.values(features[[row]] @ loss.matrix(weights + sign * nudge, 4), targets[[row]])[0]
                for sign in (1, -1)
            )
            assert own[place] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-6)


@every_loss
@pytest.mark.parametrize("radius", [0.2, 1.0, 3.0])
def test_gradients_and_their_changes_stay_within_the_constants_on_a_ball(loss: Loss, radius: float) -> None:
    random, X = np.random.default_rng(3), 1.3
    claimed = loss.constants(X, 1.0, radius)
    features = random.normal(size=(3000, 3)) ** 3
    features *= (X * np.minimum(1.0, random.uniform(0, 1.5, 3000)) / np.linalg.norm(features, axis=1))[:, None]
    targets = draw_targets(loss, random, 3000)
    for _ in range(5):
        one, other = random.normal(size=(2, loss.dimension(3)))
        one, other = radius * one / np.linalg.norm(one), radius * other / np.linalg.norm(other)
        found = []
        for weights in (one, other):
            residuals = loss.residuals(features @ loss.matrix(weights, 3), targets)
            gradients = np.array(
                [
                    loss.weight_gradients(np.outer(x, own)).reshape(-1)
                    for x, own in zip(features, loss.residual_columns(residuals), strict=True)
                ]
            )
            assert np.linalg.norm(gradients, axis=1).max() <= claimed.lipschitz * (1 + 1e-12)
            found.append(gradients)
        changes = np.linalg.norm(found[0] - found[1], axis=1)
        assert changes.max() <= claimed.smoothness * np.linalg.norm(one - other) * (1 + 1e-9)


@pytest.mark.parametrize("loss", COUNTS, ids=str)
def test_some_record_reaches_the_constants_so_that_they_are_tight(loss: Loss) -> None:
    X, radius = 1.3, 0.7
    claimed, reach = loss.constants(X, 1.0, radius), X * radius
    scores = np.linspace(-reach, reach, 4001)[:, None]
    ends = [np.full(4001, end) for end in (-1.0, 1.0)]
    slopes = [np.abs(loss.residuals(scores, end)).max() for end in ends]
    bends = [(np.diff(loss.residuals(scores, end)[:, 0]) / np.diff(scores[:, 0])).max() for end in ends]
    if not isinstance(loss, Gamma):  # of which the least target is above the scale's zero
        assert X * max(slopes) == pytest.approx(claimed.lipschitz, rel=1e-12)
    assert X**2 * max(bends) == pytest.approx(claimed.smoothness, rel=1e-3)


@pytest.mark.parametrize("loss", COUNTS, ids=str)
@pytest.mark.parametrize("clip", [0.1, 1.0, 5.0])
def test_a_cut_gradient_changes_no_faster_than_claimed_whatever_the_domain(loss: Loss, clip: float) -> None:
    X, most = 1.3, loss.clipped_smoothness(1.3, 1.0, clip)
    scores = np.linspace(-12.0, 12.0, 200_001)[:, None]
    for norm in (0.1, 0.7, X):
        for target in (-1.0, -0.2, 1.0):
            residuals = loss.residuals(scores, np.full(len(scores), target))[:, 0]
            cut = np.clip(residuals, -clip / norm, clip / norm)
            assert norm**2 * (np.diff(cut) / np.diff(scores[:, 0])).max() <= most * (1 + 1e-6)


@every_loss
def test_values_are_0_or_more_unless_the_loss_says_otherwise(loss: Loss) -> None:
    random = np.random.default_rng(4)
    scores, targets = random.normal(scale=3.0, size=(5000, loss.outputs)), draw_targets(loss, random, 5000)
    assert loss.may_be_negative or loss.values(scores, targets).min() >= -1e-12


def test_survival_has_the_minimum_of_a_poisson_regression_of_everybody_s_intervals() -> None:
    random = np.random.default_rng(9)
    features = np.column_stack([random.normal(size=(300, 2)), np.ones(300)])
    times = np.minimum(random.exponential(1 / np.exp(features @ [0.6, -0.3, 0.0])), 2.5)
    events, cuts = (times < 2.5) * 1.0, (0.4, 1.0)
    told = np.column_stack([times, events, np.zeros(300), np.ones(300)])
    rows, spent, ended = [], [], []
    for x, time, event in zip(features, times, events, strict=True):
        for k, (start, end) in enumerate(zip((0.0, *cuts), (*cuts, math.inf), strict=True)):
            if time > start:
                rows.append([*x[:2], *np.eye(3)[k]])
                spent.append(min(time, end) - start)
                ended.append(event * (time <= end))
    exact = sm.GLM(np.array(ended), np.array(rows), family=sm.families.Poisson(), offset=np.log(spent)).fit().params
    np.testing.assert_allclose(minimised(Survival(cuts=cuts), features, told), exact, atol=1e-4)


def test_with_a_part_for_every_event_survival_is_the_cox_model_of_statsmodels() -> None:
    random = np.random.default_rng(10)
    features = np.column_stack([random.normal(size=(120, 2)), np.ones(120)])
    times = np.minimum(random.exponential(1 / np.exp(features @ [0.6, -0.3, 0.0])), 2.5)
    events = (times < 2.5) * 1.0
    times = np.minimum(times, times[events > 0].max())  # nobody is watched for longer than that tells anything
    told = np.column_stack([times, events, np.zeros(120), np.ones(120)])
    cox = sm.PHReg(times, features[:, :2], status=events, ties="breslow").fit(disp=False).params
    # Everybody at risk when an event happens was so for the whole part that it ends: both likelihoods are the same.
    loss = Survival(cuts=tuple(np.sort(times[events > 0])[:-1].tolist()))
    np.testing.assert_allclose(minimised(loss, features, told)[:2], cox, atol=1e-4)
