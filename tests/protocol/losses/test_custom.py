"""What is checked of a custom loss by computing it: a record's value and slope are the same beside any others."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ringfence.protocol import Absolute, EpsilonInsensitive, FloatArray, Gamma, Huber, Logistic, PoissonLoss, Squared
from ringfence.protocol.losses.base import LinearLoss
from ringfence.protocol.losses.custom import mixes_records


@dataclass(frozen=True)
class Meddling(LinearLoss):
    """A squared error whose slope has a bit more of something."""

    more: Callable[[FloatArray], FloatArray]

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        result: FloatArray = (scores[:, 0] - targets) ** 2
        return result

    def residuals(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        return 2 * (scores - targets[:, None]) + 1e-12 * self.more(scores)


MEDDLING: dict[str, Callable[[FloatArray], FloatArray]] = {
    "the mean": lambda scores: np.mean(scores) + 0 * scores,
    "the finite mean": lambda scores: np.mean(scores[np.isfinite(scores) & (np.abs(scores) < 10)]) + 0 * scores,
    "the largest": lambda scores: np.max(scores) + 0 * scores,
    "how many there are": lambda scores: float(len(scores)) + 0 * scores,
    "how many are huge": lambda scores: float(np.sum(np.abs(scores) > 1e200)) + 0 * scores,
    "whether one is no number": lambda scores: float(np.isnan(scores).any()) + 0 * scores,
    "whether one is infinite": lambda scores: float(np.isinf(scores).any()) + 0 * scores,
    "whether one is tiny": lambda scores: float(((scores != 0) & (np.abs(scores) < 1e-300)).any()) + 0 * scores,
    "the first": lambda scores: scores[:1] + 0 * scores,
    "the one before": lambda scores: np.roll(scores, 1),
    "the place": lambda scores: np.arange(len(scores))[:, None] + 0 * scores,
    "the rank": lambda scores: np.argsort(np.argsort(scores[:, 0]))[:, None] + 0 * scores,
}


@pytest.mark.parametrize("more", MEDDLING.values(), ids=MEDDLING)
def test_a_slope_that_depends_on_other_records_by_a_trillionth_is_noticed(
    more: Callable[[FloatArray], FloatArray],
) -> None:
    assert mixes_records(Meddling(more), 3.0, 1.0)


@pytest.mark.parametrize(
    "loss",
    [Squared(), Huber(threshold=0.7), Logistic(), PoissonLoss(zero=-1.5), Gamma(zero=-2.0), Absolute(width=0.6),
     EpsilonInsensitive(margin=0.3, width=0.7), Meddling(lambda scores: scores)],
    ids=lambda loss: getattr(loss, "name", "the score"),
)  # fmt: skip
def test_no_bit_of_a_loss_that_takes_records_one_at_a_time_depends_on_others(loss: LinearLoss) -> None:
    assert not mixes_records(loss, 3.0, 1.0)
