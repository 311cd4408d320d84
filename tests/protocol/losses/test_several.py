"""Several targets: one loss of them is the sum of each alone, and cutting its gradients leaves a convex loss."""

import numpy as np
import pytest

from ringfence.protocol.losses import Huber, MultiSquared, Squared
from ringfence.silo.questions.gradient import clipped

LOSS = MultiSquared(targets=3)


def test_values_and_residuals_are_those_of_each_target_alone() -> None:
    generator = np.random.default_rng(1)
    scores, targets = generator.normal(size=(20, 4, 3)), generator.normal(size=(20, 3))
    alone = [Squared().values(scores[..., [place]], targets[:, place]) for place in range(3)]
    np.testing.assert_allclose(LOSS.values(scores, targets), np.sum(alone, axis=0))
    for place in range(3):
        own = Squared().residuals(scores[..., [place]], targets[:, place])
        np.testing.assert_array_equal(LOSS.residuals(scores, targets)[..., [place]], own)


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
    cut = clipped(LOSS, clip, scores=features @ weights, norms=norms, constants=features[:, -1], targets=rows)
    assert np.max(norms * np.linalg.norm(cut, axis=1)) <= clip * (1 + 1e-12)
    slopes = np.einsum("nd,nk,dk->n", features, cut, move)
    step = 1e-6
    np.testing.assert_allclose(
        slopes, (huber(weights + step * move) - huber(weights - step * move)) / (2 * step), atol=1e-5
    )
