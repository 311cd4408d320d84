"""The losses: their derivatives, and the constants L, β and μ that plans and bounds rest on (theory E2, B28).

What is special to the losses with kinks is in `test_nonsmooth.py`.
"""

import math

import numpy as np
import pytest

from ringfence.protocol import (
    Absolute,
    EpsilonInsensitive,
    FloatArray,
    Hinge,
    Huber,
    Logistic,
    Loss,
    MultiSquared,
    Pinball,
    Softmax,
    Squared,
)
from ringfence.silo.queries.gradient import clipped

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


@every_loss
def test_no_constant_is_nan_however_small_or_free_the_problem_is(loss: Loss) -> None:
    for feature_norm in (0.0, 1.0):
        for weight_norm in (0.0, 1.0, math.inf):
            constants = loss.constants(feature_norm, 1.0, weight_norm)
            assert not math.isnan(constants.lipschitz)
            assert not math.isnan(constants.smoothness)
            if feature_norm == 0.0:
                assert constants.lipschitz == 0.0


def test_values_and_residuals_are_those_of_each_target_alone() -> None:
    generator = np.random.default_rng(1)
    scores, targets = generator.normal(size=(20, 4, 3)), generator.normal(size=(20, 3))
    alone = [Squared().values(scores[..., [place]], targets[:, place]) for place in range(3)]
    np.testing.assert_allclose(MultiSquared(targets=3).values(scores, targets), np.sum(alone, axis=0))
    for place in range(3):
        own = Squared().residuals(scores[..., [place]], targets[:, place])
        np.testing.assert_array_equal(MultiSquared(targets=3).residuals(scores, targets)[..., [place]], own)


@pytest.mark.parametrize("clip", [0.1, 1.0, 10.0])
def test_cut_gradients_are_those_of_a_huber_loss_of_the_residual_s_norm(clip: float) -> None:
    generator = np.random.default_rng(2)
    features, targets = generator.normal(size=(200, 4)), generator.normal(size=(200, 3))
    weights, move = generator.normal(size=(4, 3)), generator.normal(size=(4, 3))
    norms = np.linalg.norm(features, axis=1)

    def huber(at: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(features @ at - targets, axis=1)
        each = [
            Huber(threshold=clip / norm).values(np.array([[size]]), np.zeros(1))[0]
            for norm, size in zip(norms, sizes, strict=True)
        ]
        return np.array(each)

    rows = np.column_stack([targets, np.zeros(200), np.ones(200)])
    cut = clipped(
        MultiSquared(targets=3), clip, scores=features @ weights, norms=norms, constants=features[:, -1], targets=rows
    )
    assert np.max(norms * np.linalg.norm(cut, axis=1)) <= clip * (1 + 1e-12)
    slopes = np.einsum("nd,nk,dk->n", features, cut, move)
    step = 1e-6
    np.testing.assert_allclose(
        slopes, (huber(weights + step * move) - huber(weights - step * move)) / (2 * step), atol=1e-5
    )
