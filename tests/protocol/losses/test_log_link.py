"""Counts and amounts: constants on bounded scores are tight, and hold for clipped gradients."""

import numpy as np
import pytest

from ringfence.protocol import Gamma, Loss, NegativeBinomial, PoissonLoss

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
