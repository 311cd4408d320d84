"""What holds for every loss: derivatives, convexity, and the constants L, β and μ that plans and bounds rest on."""

import math

import jax
import numpy as np
import pytest

from ringfence.protocol import (
    Absolute,
    EpsilonInsensitive,
    FloatArray,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MultiSquared,
    NegativeBinomial,
    Ordinal,
    Pinball,
    PoissonLoss,
    Softmax,
    Squared,
    Survival,
)

LOSSES: list[Loss] = [
    Logistic(),
    Softmax(classes=2),
    Softmax(classes=4),
    Squared(),
    Huber(threshold=0.7),
    Hinge(width=0.8),
    Absolute(width=0.6),
    Pinball(quantile=0.8, width=0.5),
    EpsilonInsensitive(margin=0.3, width=0.7),
    MultiSquared(targets=3),
    PoissonLoss(zero=-1.5),
    Gamma(zero=-2.0),
    NegativeBinomial(zero=-1.5, dispersion=0.6),
    Survival(zero=-1.5, cuts=(0.3, 1.1)),
    Ordinal(classes=4),
]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)

BOUND = 1.5
"""The largest scaled target."""


def draw_in_ball(generator: np.random.Generator, count: int, length: int, radius: float) -> FloatArray:
    """Draw points of norm at most `radius`, a good part of them on the sphere and along the axes."""
    points = generator.normal(size=(count, length)) ** 3
    lengths = radius * np.minimum(1.0, generator.uniform(0.0, 1.5, size=(count, 1)))
    result: FloatArray = points / np.linalg.norm(points, axis=1, keepdims=True) * lengths
    return result


def draw_targets(loss: Loss, generator: np.random.Generator, count: int) -> FloatArray:
    """Draw targets in their encoding, some of the numbers at the ends of the range."""
    if loss.target_kind == "label":
        return generator.choice([-1.0, 1.0], size=count)
    if loss.target_kind == "class":
        return generator.integers(loss.categories, size=count).astype(np.float64)
    if loss.target_kind == "numbers":
        return draw_in_ball(generator, count, loss.outputs, BOUND)
    numbers = np.clip(generator.uniform(-1.3 * BOUND, 1.3 * BOUND, size=count), -BOUND, BOUND)
    return np.column_stack([numbers, generator.integers(2, size=count)]) if loss.target_kind == "time" else numbers


def gradients(loss: Loss, weights: FloatArray, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the gradient of every record's loss at its own weights, a column per record."""
    scores = np.einsum("nd,ndo->no", features, loss.matrix(weights, features.shape[1]))
    columns = loss.residual_columns(loss.residuals(scores, targets))
    found = np.moveaxis(loss.weight_gradients(features.T[:, :, None] * columns[None]), 1, -1)
    return found.reshape(-1, len(features))


@every_loss
def test_residuals_are_the_derivative_of_the_values_in_both_libraries(loss: Loss) -> None:
    generator = np.random.default_rng(1)
    scores, targets = generator.normal(scale=1.5, size=(300, loss.outputs)), draw_targets(loss, generator, 300)
    residuals = loss.residuals(scores, targets)
    assert residuals.shape == scores.shape
    for output in range(loss.outputs):
        nudge = 1e-6 * np.eye(loss.outputs)[output]
        slope = (loss.values(scores + nudge, targets) - loss.values(scores - nudge, targets)) / 2e-6
        np.testing.assert_allclose(residuals[:, output], slope, rtol=1e-5, atol=1e-6)
    with jax.enable_x64(True):
        compiled = jax.jit(loss.residuals)(scores, targets)
    np.testing.assert_allclose(residuals, compiled, rtol=1e-9, atol=1e-12)


@every_loss
def test_a_record_s_gradient_is_the_derivative_in_the_weights_and_its_norm_follows_from_two_norms(loss: Loss) -> None:
    generator = np.random.default_rng(2)
    features, targets = generator.normal(size=(30, 4)), draw_targets(loss, generator, 30)
    weights = generator.normal(scale=0.3, size=loss.dimension(4))
    found = gradients(loss, np.tile(weights, (30, 1)), features, targets)
    residuals = loss.residuals(features @ loss.matrix(weights, 4), targets)
    norms = loss.gradient_norms(residuals, np.linalg.norm(features, axis=1), features[:, -1])
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), norms, rtol=1e-12)
    for place, nudge in enumerate(1e-6 * np.eye(len(weights))):
        above, below = (
            loss.values(features @ loss.matrix(at, 4), targets) for at in (weights + nudge, weights - nudge)
        )
        np.testing.assert_allclose(found[place], (above - below) / 2e-6, rtol=1e-4, atol=1e-6)


@every_loss
@pytest.mark.parametrize("feature_norm", [0.5, 1.3, 3.0])
@pytest.mark.parametrize("weight_norm", [0.1, 1.0, 8.0, math.inf])
def test_gradients_and_their_changes_stay_within_the_constants(
    loss: Loss, feature_norm: float, weight_norm: float
) -> None:
    generator = np.random.default_rng(4)
    claimed = loss.constants(feature_norm, BOUND, weight_norm)
    features, targets = draw_in_ball(generator, 4000, 3, feature_norm), draw_targets(loss, generator, 4000)
    one, other = draw_in_ball(generator, 8000, loss.dimension(3), min(weight_norm, 50.0)).reshape(2, 4000, -1)
    here = gradients(loss, one, features, targets)
    assert np.linalg.norm(here, axis=0).max() <= claimed.lipschitz * (1 + 1e-12)
    for share in (1e-3, 1.0):
        move = share * (other - one)
        change = np.linalg.norm(gradients(loss, one + move, features, targets) - here, axis=0)
        assert np.all(change <= claimed.smoothness * np.linalg.norm(move, axis=1) * (1 + 1e-9) + 1e-12)


@every_loss
def test_losses_are_convex_claim_no_strong_convexity_and_are_0_or_more_unless_they_say_otherwise(loss: Loss) -> None:
    generator = np.random.default_rng(6)
    one, other = generator.normal(scale=4.0, size=(2, 4000, loss.outputs))
    targets = draw_targets(loss, generator, 4000)
    ends = (loss.values(one, targets) + loss.values(other, targets)) / 2
    assert np.all(loss.values((one + other) / 2, targets) <= ends + 1e-12 * (1 + np.abs(ends)))
    assert loss.may_be_negative or loss.values(one, targets).min() >= -1e-12
    # A feature of 0 makes the loss flat in that weight, so no positive μ could be true of every record.
    assert loss.constants(1.0, 1.0, 1.0).strong_convexity == 0.0


@every_loss
def test_no_constant_is_nan_however_small_or_free_the_problem_is(loss: Loss) -> None:
    for feature_norm in (0.0, 1.0):
        for weight_norm in (0.0, 1.0, math.inf):
            constants = loss.constants(feature_norm, 1.0, weight_norm)
            assert not math.isnan(constants.lipschitz)
            assert not math.isnan(constants.smoothness)
            if feature_norm == 0.0:
                assert constants.lipschitz == 0.0


@every_loss
def test_every_loss_broadcasts_over_configurations(loss: Loss) -> None:
    generator = np.random.default_rng(4)
    scores, targets = generator.normal(size=(30, 2, 5, loss.outputs)), draw_targets(loss, generator, 30)
    values, residuals = loss.values(scores, targets), loss.residuals(scores, targets)
    assert (values.shape, residuals.shape) == ((30, 2, 5), scores.shape)
    for place in np.ndindex(2, 5):
        np.testing.assert_allclose(values[:, *place], loss.values(scores[:, *place], targets), rtol=1e-12)
        np.testing.assert_allclose(residuals[:, *place], loss.residuals(scores[:, *place], targets), rtol=1e-12)
