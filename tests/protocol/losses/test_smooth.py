"""The losses: their derivatives, and the constants L, β and μ that plans and bounds rest on (theory E2, B28).

What is special to the losses with kinks is in `test_kinked.py`.
"""

import math

import numpy as np
import pytest

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MultiSquared,
    Pinball,
    Softmax,
    Squared,
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
]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)

ROUNDING = 1.0 + 1e-12


def draw_targets(loss: Loss, generator: np.random.Generator, count: int, bound: float = 1.0) -> FloatArray:
    if loss.target_kind == "label":
        return generator.choice([-1.0, 1.0], size=count)
    if loss.target_kind == "class":
        return generator.integers(loss.outputs, size=count).astype(np.float64)
    if loss.target_kind == "numbers":
        return draw_in_ball(generator, count, (loss.outputs,), bound)
    return generator.uniform(-bound, bound, size=count)


def draw_in_ball(generator: np.random.Generator, count: int, shape: tuple[int, ...], radius: float) -> FloatArray:
    """Draw points of norm at most `radius`, a good part of them on the sphere and along the axes."""
    points = generator.normal(size=(count, *shape)) ** 3
    norms = np.sqrt(np.sum(points**2, axis=tuple(range(1, points.ndim)), keepdims=True))
    lengths = radius * np.minimum(1.0, generator.uniform(0.0, 1.5, size=norms.shape))
    result: FloatArray = points / norms * lengths
    return result


def gradients(loss: Loss, weights: FloatArray, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the gradient of every record's loss at its own weights: outer(x, residual)."""
    scores = np.einsum("nd,ndo->no", features, weights)
    result: FloatArray = np.einsum("nd,no->ndo", features, loss.residuals(scores, targets))
    return result


def norms_of(matrices: FloatArray) -> FloatArray:
    result: FloatArray = np.sqrt(np.sum(matrices**2, axis=(1, 2)))
    return result


@every_loss
def test_residuals_are_the_derivative_of_the_values(loss: Loss) -> None:
    generator = np.random.default_rng(1)
    scores = generator.normal(scale=2.0, size=(300, loss.outputs))
    targets = draw_targets(loss, generator, 300, bound=2.0)
    residuals = loss.residuals(scores, targets)
    assert residuals.shape == scores.shape
    for output in range(loss.outputs):
        nudge = np.zeros(loss.outputs)
        nudge[output] = 1e-6
        slope = (loss.values(scores + nudge, targets) - loss.values(scores - nudge, targets)) / 2e-6
        np.testing.assert_allclose(residuals[:, output], slope, atol=1e-6)


@every_loss
def test_the_gradient_in_the_weights_is_the_outer_product_of_features_and_residuals(loss: Loss) -> None:
    generator = np.random.default_rng(2)
    features = generator.normal(size=(40, 3))
    targets = draw_targets(loss, generator, 40)
    weights = generator.normal(size=(3, loss.outputs))
    exact = features.T @ loss.residuals(features @ weights, targets)
    for place in np.ndindex(weights.shape):
        nudge = np.zeros(weights.shape)
        nudge[place] = 1e-6
        above = loss.values(features @ (weights + nudge), targets).sum()
        below = loss.values(features @ (weights - nudge), targets).sum()
        assert exact[place] == pytest.approx((above - below) / 2e-6, abs=1e-5)


def test_values_agree_with_the_textbook_formulas() -> None:
    scores = np.array([[0.3], [-2.0], [4.0]])
    signs = np.array([1.0, -1.0, -1.0])
    np.testing.assert_allclose(Logistic().values(scores, signs), np.log1p(np.exp(-signs * scores[:, 0])))
    numbers = np.array([0.1, 0.5, -1.0])
    np.testing.assert_allclose(Squared().values(scores, numbers), [0.02, 3.125, 12.5])
    np.testing.assert_allclose(Huber(threshold=2.0).values(scores, numbers), [0.02, 3.0, 8.0])
    logits = np.array([[0.0, 1.0, 2.0]])
    expected = -math.log(math.exp(1.0) / (1.0 + math.e + math.exp(2.0)))
    np.testing.assert_allclose(Softmax(classes=3).values(logits, np.array([1.0])), [expected])


def test_softmax_of_two_classes_is_logistic_of_the_difference() -> None:
    generator = np.random.default_rng(3)
    scores = generator.normal(scale=3.0, size=(50, 2))
    labels = generator.integers(2, size=50).astype(np.float64)
    difference = scores[:, 1:] - scores[:, :1]
    np.testing.assert_allclose(
        Softmax(classes=2).values(scores, labels),
        Logistic().values(difference, 2.0 * labels - 1.0),
        rtol=1e-9,
    )


@pytest.mark.parametrize("size", [1e4, 1e100])
def test_logistic_loss_is_exact_and_silent_at_huge_scores(size: float) -> None:
    scores = np.array([[size], [-size]])
    for sign in (1.0, -1.0):
        targets = np.full(2, sign)
        right, wrong = (0, 1) if sign > 0 else (1, 0)
        values = Logistic().values(scores, targets)
        residuals = Logistic().residuals(scores, targets)
        assert (values[right], values[wrong]) == (0.0, size)
        assert (residuals[right, 0], residuals[wrong, 0]) == (0.0, -sign)


@pytest.mark.parametrize("size", [1e4, 1e100])
def test_softmax_loss_is_exact_and_silent_at_huge_scores(size: float) -> None:
    loss = Softmax(classes=3)
    scores = np.array([[size, -size, 0.0], [size, -size, 0.0], [size, size, size]])
    targets = np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(loss.values(scores, targets), [0.0, 2 * size, math.log(3)])
    np.testing.assert_allclose(
        loss.residuals(scores, targets), np.array([[0, 0, 0], [1, -1, 0], [1 / 3, 1 / 3, -2 / 3]]), atol=1e-15
    )


def test_squared_and_huber_losses_are_exact_and_silent_at_huge_scores() -> None:
    scores, targets = np.array([[1e4], [-1e4]]), np.array([0.0, 0.0])
    np.testing.assert_allclose(Squared().values(scores, targets), [5e7, 5e7])
    np.testing.assert_allclose(Huber(threshold=1.0).values(scores, targets), [1e4 - 0.5, 1e4 - 0.5])
    np.testing.assert_array_equal(Huber(threshold=1.0).residuals(scores, targets), [[1.0], [-1.0]])


@every_loss
@pytest.mark.parametrize("feature_norm", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("weight_norm", [0.1, 1.0, 8.0, math.inf])
def test_no_gradient_is_longer_than_the_lipschitz_constant(loss: Loss, feature_norm: float, weight_norm: float) -> None:
    generator = np.random.default_rng(4)
    limit = loss.constants(feature_norm, 1.5, weight_norm).lipschitz
    features = draw_in_ball(generator, 4000, (3,), feature_norm)
    weights = draw_in_ball(generator, 4000, (3, loss.outputs), min(weight_norm, 50.0))
    targets = draw_targets(loss, generator, 4000, bound=1.5)
    assert norms_of(gradients(loss, weights, features, targets)).max() <= limit * ROUNDING


@every_loss
@pytest.mark.parametrize("feature_norm", [0.5, 3.0])
@pytest.mark.parametrize("distance", [1e-3, 0.5, 5.0])
def test_gradients_change_no_faster_than_the_smoothness_allows(
    loss: Loss, feature_norm: float, distance: float
) -> None:
    generator = np.random.default_rng(5)
    limit = loss.constants(feature_norm, 1.0, math.inf).smoothness
    features = draw_in_ball(generator, 4000, (3,), feature_norm)
    targets = draw_targets(loss, generator, 4000)
    here = draw_in_ball(generator, 4000, (3, loss.outputs), 2.0)
    there = here + draw_in_ball(generator, 4000, (3, loss.outputs), distance)
    change = norms_of(gradients(loss, here, features, targets) - gradients(loss, there, features, targets))
    assert np.all(change <= limit * norms_of(here - there) + 1e-12)


@every_loss
def test_losses_are_convex_and_claim_no_strong_convexity(loss: Loss) -> None:
    generator = np.random.default_rng(6)
    one, other = generator.normal(scale=4.0, size=(2, 4000, loss.outputs))
    targets = draw_targets(loss, generator, 4000)
    middle = loss.values((one + other) / 2, targets)
    assert np.all(middle <= (loss.values(one, targets) + loss.values(other, targets)) / 2 + 1e-12)
    # A feature of 0 makes the loss flat in that weight, so no positive μ could be true of every record.
    assert loss.constants(1.0, 1.0, 1.0).strong_convexity == 0.0


@pytest.mark.parametrize(("feature_norm", "weight_norm"), [(1.0, 0.2), (2.0, 1.0), (1.5, 10.0), (3.0, 1e6)])
def test_the_logistic_lipschitz_constant_on_a_ball_is_attained(feature_norm: float, weight_norm: float) -> None:
    generator = np.random.default_rng(7)
    features = draw_in_ball(generator, 500, (3,), feature_norm)
    targets = draw_targets(Logistic(), generator, 500)
    against = -targets[:, None] * features / np.linalg.norm(features, axis=1, keepdims=True) * weight_norm
    steepest = norms_of(gradients(Logistic(), against[:, :, None], features, targets)).max()
    limit = Logistic().constants(feature_norm, 1.0, weight_norm).lipschitz
    assert limit == pytest.approx(feature_norm / (1.0 + math.exp(-weight_norm * feature_norm)))
    assert 0.99 * limit <= steepest <= limit * ROUNDING


def test_the_logistic_lipschitz_constant_on_the_whole_space_is_the_feature_norm() -> None:
    assert Logistic().constants(3.0, 1.0, math.inf).lipschitz == pytest.approx(3.0)
    assert Logistic().constants(3.0, 1.0, 0.0).lipschitz == pytest.approx(1.5)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_softmax_lipschitz_constant_is_attained(classes: int) -> None:
    loss = Softmax(classes=classes)
    features = np.array([[2.0, 0.0]])
    weights = np.zeros((1, 2, classes))
    weights[0, 0, 0] = 50.0  # certain of class 0, and wrong
    steepest = norms_of(gradients(loss, weights, features, np.array([1.0])))[0]
    limit = loss.constants(2.0, 1.0, 100.0).lipschitz
    assert limit == pytest.approx(math.sqrt(2) * 2.0)
    assert 0.99 * limit <= steepest <= limit * ROUNDING


@pytest.mark.parametrize("weight_norm", [0.5, 4.0])
def test_the_squared_lipschitz_constant_is_attained_and_infinite_on_the_whole_space(
    weight_norm: float,
) -> None:
    features = np.array([[2.0, 0.0]])
    weights = np.array([[[-weight_norm], [0.0]]])
    steepest = norms_of(gradients(Squared(), weights, features, np.array([1.5])))[0]
    assert steepest == pytest.approx(Squared().constants(2.0, 1.5, weight_norm).lipschitz)
    assert Squared().constants(2.0, 1.5, math.inf).lipschitz == math.inf


def test_the_huber_lipschitz_constant_is_that_of_the_smaller_of_threshold_and_error() -> None:
    assert Huber(threshold=0.7).constants(2.0, 1.0, math.inf).lipschitz == pytest.approx(1.4)
    assert Huber(threshold=0.7).constants(2.0, 1.0, 5.0).lipschitz == pytest.approx(1.4)
    # Errors of at most 2·0.1 + 0.3 = 0.5 never reach the threshold of 0.7.
    assert Huber(threshold=0.7).constants(2.0, 0.3, 0.1).lipschitz == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("loss", "direction"),
    [
        (Logistic(), [[1.0]]),
        (Softmax(classes=2), [[1.0, -1.0]]),
        (Squared(), [[1.0]]),
        (Huber(threshold=0.7), [[1.0]]),
    ],
    ids=str,
)
def test_the_smoothness_constants_are_attained_at_the_origin(loss: Loss, direction: list[list[float]]) -> None:
    features, targets = np.array([[3.0]]), np.array([1.0 if isinstance(loss, Logistic) else 0.0])
    step = 1e-4 * np.array([direction])
    change = gradients(loss, step, features, targets) - gradients(loss, 0.0 * step, features, targets)
    limit = loss.constants(3.0, 1.0, 1.0).smoothness
    ratio = norms_of(change)[0] / norms_of(step)[0]
    assert 0.99 * limit <= ratio <= limit * (1.0 + 1e-6)


def test_huber_is_the_squared_loss_within_its_threshold_and_linear_beyond() -> None:
    loss = Huber(threshold=0.7)
    targets = np.zeros(101)
    inside = np.linspace(-0.7, 0.7, 101)[:, None]
    np.testing.assert_allclose(loss.values(inside, targets), Squared().values(inside, targets), atol=1e-15)
    np.testing.assert_allclose(loss.residuals(inside, targets), Squared().residuals(inside, targets))
    beyond = np.linspace(0.8, 5.0, 101)[:, None]
    for side in (beyond, -beyond):
        np.testing.assert_array_equal(loss.residuals(side, targets), 0.7 * np.sign(side))
        np.testing.assert_allclose(loss.values(side, targets), 0.7 * beyond[:, 0] - 0.245)
        assert np.all(loss.values(side, targets) < Squared().values(side, targets))


@pytest.mark.parametrize("clip", [0.05, 1.0, 20.0])
def test_clipping_a_squared_loss_gradient_gives_the_gradient_of_a_huber_loss(clip: float) -> None:
    generator = np.random.default_rng(8)
    shortened = 0
    for _ in range(200):
        features = generator.normal(size=(1, 4))
        targets = generator.uniform(-3, 3, size=1)
        weights = generator.normal(size=(1, 4, 1))
        gradient = gradients(Squared(), weights, features, targets)[0]
        length = float(np.linalg.norm(gradient))
        shortened += length > clip
        clipped = gradient * min(1.0, clip / length)
        threshold = clip / float(np.linalg.norm(features))
        huber = gradients(Huber(threshold=threshold), weights, features, targets)[0]
        np.testing.assert_allclose(huber, clipped, rtol=1e-10, atol=1e-14)
    assert shortened == 200 if clip < 0.1 else shortened < 200


@every_loss
def test_no_constant_is_nan_however_small_or_free_the_problem_is(loss: Loss) -> None:
    for feature_norm in (0.0, 1.0):
        for weight_norm in (0.0, 1.0, math.inf):
            constants = loss.constants(feature_norm, 1.0, weight_norm)
            assert not math.isnan(constants.lipschitz)
            assert not math.isnan(constants.smoothness)
            if feature_norm == 0.0:
                assert constants.lipschitz == 0.0
