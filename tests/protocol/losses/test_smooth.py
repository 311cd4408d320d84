"""The smooth losses: their values, and that their constants L and β are attained (theory E2, B28)."""

import math

import numpy as np
import pytest

from ringfence.protocol import Huber, Logistic, Loss, MultiSquared, Softmax, Squared
from ringfence.silo.queries.gradient import clipped


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
def test_losses_are_exact_and_silent_at_huge_scores(size: float) -> None:
    scores = np.array([[size], [-size]])
    for sign in (1.0, -1.0):
        targets, wrong = np.full(2, sign), np.array([sign < 0, sign > 0])
        np.testing.assert_array_equal(Logistic().values(scores, targets), size * wrong)
        np.testing.assert_array_equal(Logistic().residuals(scores, targets)[:, 0], -sign * wrong)
    np.testing.assert_allclose(Squared().values(scores, np.zeros(2)), [size**2 / 2] * 2)
    np.testing.assert_allclose(Huber(threshold=1.0).values(scores, np.zeros(2)), [size - 0.5] * 2)
    np.testing.assert_array_equal(Huber(threshold=1.0).residuals(scores, np.zeros(2)), [[1.0], [-1.0]])
    logits = np.array([[size, -size, 0.0], [size, -size, 0.0], [size, size, size]])
    softmax, classes = Softmax(classes=3), np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(softmax.values(logits, classes), [0.0, 2 * size, math.log(3)])
    expected = np.array([[0, 0, 0], [1, -1, 0], [1 / 3, 1 / 3, -2 / 3]])
    np.testing.assert_allclose(softmax.residuals(logits, classes), expected, atol=1e-15)


@pytest.mark.parametrize(
    ("loss", "weights", "target", "expected"),
    [
        *((Logistic(), [-weight], 1.0, 2.0 / (1.0 + math.exp(-2.0 * weight))) for weight in (0.2, 1.0, 10.0, 1e6)),
        *((Softmax(classes=classes), [50.0] + [0.0] * (classes - 1), 1.0, 2.0 * math.sqrt(2)) for classes in (2, 5)),
        *((Squared(), [-weight], 1.5, 2.0 * (2.0 * weight + 1.5)) for weight in (0.5, 4.0)),
        (Huber(threshold=0.7), [-5.0], 1.0, 1.4),
        (Huber(threshold=0.7), [-0.1], 0.3, 1.0),  # errors of at most 2·0.1 + 0.3 never reach the threshold
    ],
    ids=str,
)
def test_the_lipschitz_constant_on_a_ball_is_attained(
    loss: Loss, weights: list[float], target: float, expected: float
) -> None:
    feature, target_bound = 2.0, abs(target)
    limit = loss.constants(feature, target_bound, float(np.linalg.norm(weights))).lipschitz
    steepest = feature * np.linalg.norm(loss.residuals(feature * np.array([weights]), np.array([target])))
    assert limit == pytest.approx(expected)
    assert 0.99 * limit <= steepest <= limit * (1 + 1e-12)


def test_on_the_whole_space_the_squared_lipschitz_constant_is_infinite_and_huber_s_its_threshold() -> None:
    assert Squared().constants(2.0, 1.5, math.inf).lipschitz == math.inf
    assert Huber(threshold=0.7).constants(2.0, 1.0, math.inf).lipschitz == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("loss", "direction"),
    [(Logistic(), [1.0]), (Softmax(classes=2), [1.0, -1.0]), (Squared(), [1.0]), (Huber(threshold=0.7), [1.0])],
    ids=str,
)
def test_the_smoothness_constants_are_attained_at_the_origin(loss: Loss, direction: list[float]) -> None:
    target, step = np.array([1.0 if isinstance(loss, Logistic) else 0.0]), 1e-4 * np.array([direction])
    change = 3.0 * np.linalg.norm(loss.residuals(3.0 * step, target) - loss.residuals(0.0 * step, target))
    limit = loss.constants(3.0, 1.0, 1.0).smoothness
    assert 0.99 * limit <= change / np.linalg.norm(step) <= limit * (1.0 + 1e-6)


def test_values_and_residuals_are_those_of_each_target_alone() -> None:
    generator = np.random.default_rng(1)
    scores, targets = generator.normal(size=(20, 4, 3)), generator.normal(size=(20, 3))
    alone = [Squared().values(scores[..., [place]], targets[:, place]) for place in range(3)]
    np.testing.assert_allclose(MultiSquared(targets=3).values(scores, targets), np.sum(alone, axis=0))
    for place in range(3):
        own = Squared().residuals(scores[..., [place]], targets[:, place])
        np.testing.assert_array_equal(MultiSquared(targets=3).residuals(scores, targets)[..., [place]], own)


@pytest.mark.parametrize("clip", [0.1, 1.0, 10.0])
def test_clipped_gradients_are_those_of_a_huber_loss_of_the_residual_s_norm(clip: float) -> None:
    generator = np.random.default_rng(2)
    features, targets = generator.normal(size=(200, 4)), generator.normal(size=(200, 3))
    weights, move = generator.normal(size=(4, 3)), generator.normal(size=(4, 3))
    norms = np.linalg.norm(features, axis=1)

    def huber(at: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(features @ at - targets, axis=1)
        inner = np.minimum(sizes, clip / norms)
        return np.asarray(inner * (sizes - 0.5 * inner))

    loss, rows = MultiSquared(targets=3), np.column_stack([targets, np.zeros(200), np.ones(200)])
    found = clipped(loss, clip, scores=features @ weights, norms=norms, constants=features[:, -1], targets=rows)
    assert np.max(norms * np.linalg.norm(found, axis=1)) <= clip * (1 + 1e-12)
    slopes = np.einsum("nd,nk,dk->n", features, found, move)
    np.testing.assert_allclose(slopes, (huber(weights + 1e-6 * move) - huber(weights - 1e-6 * move)) / 2e-6, atol=1e-5)
