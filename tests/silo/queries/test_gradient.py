"""The gradient's clipped mean, and the floating-point version of it for public data, against a loop over records."""

from typing import Any

import numpy as np
import pytest

from ringfence.protocol import Gradient, Huber, Logistic, Ordinal, Softmax, Squared
from ringfence.protocol.plan.plan import task
from ringfence.silo.gate.mechanism import Draws, release
from ringfence.silo.queries import gradient
from ringfence.silo.queries.gradient import clipped_mean
from ringfence.silo.records.records import Records
from tests.protocol.plan_document import plan_of as document
from tests.support import MakePlan, clip_of, own_terms

LOSSES = [Logistic(), Softmax(classes=4), Squared(), Huber(threshold=0.5)]


def targets_for(loss: Any, count: int, random: np.random.Generator) -> Any:
    if isinstance(loss, Softmax):
        return random.integers(loss.classes, size=count).astype(float)
    return random.choice([-1.0, 1.0], size=count)


def mean(loss: Any, clip: float, weights: Any, features: Any, targets: Any, batch: int) -> Any:
    return clipped_mean(
        loss,
        clip,
        weights=weights.reshape(features.shape[1], -1),
        features=features,
        norms=np.sqrt((features**2).sum(axis=1)),
        targets=targets,
        shares=np.full(len(targets), 1.0 / batch),
    ).reshape(-1)


def test_weights_so_small_that_they_would_slow_the_processor_down_count_as_zeros(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, total, seen = document({"training.loss": {"name": "squared"}}), gradient.clipped_total, []

    def watched(loss: Any, most: float, weights: Any, *rest: Any) -> Any:
        seen.append(weights)
        return total(loss, most, weights, *rest)

    monkeypatch.setattr(gradient, "clipped_total", watched)
    records = Records(plan.data, np.ones((5, plan.data.width)), np.zeros(5))
    for size in (1e-308, 1e-320, -2e-151, 1e-140):
        gradient.total(Gradient(clip=1.0), plan, np.full(plan.dimension, size), records, np.ones(5))
    assert [np.any(weights) for weights in seen] == [False, False, False, True]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_clipping_agrees_with_per_record_gradients_clipped_one_by_one(loss: Any) -> None:
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(30, 5)), targets_for(loss, 30, random)
    weights = random.normal(size=5 * loss.outputs)
    expected = np.zeros((5, loss.outputs))
    for x, y in zip(features, targets, strict=True):
        gradient = np.outer(x, loss.residuals(x[None] @ weights.reshape(5, -1), np.array([y]))[0])
        expected += gradient * min(1.0, 0.3 / np.linalg.norm(gradient)) / 30
    np.testing.assert_allclose(mean(loss, 0.3, weights, features, targets, 30), expected.reshape(-1), atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_configurations_side_by_side_give_what_each_gives_alone(loss: Any) -> None:
    random = np.random.default_rng(1)
    features, targets = random.normal(size=(30, 5)), targets_for(loss, 30, random)
    weights, clips = random.normal(size=(5, 3, loss.outputs)), np.array([0.1, 0.5, 9.0])
    together = clipped_mean(
        loss,
        clips,
        weights=weights,
        features=features,
        norms=np.sqrt((features**2).sum(axis=1)),
        targets=targets,
        shares=np.full(30, 1 / 30),
    )
    for place, clip in enumerate(clips):
        alone = mean(loss, clip, weights[:, place], features, targets, 30)
        np.testing.assert_allclose(together[:, place].reshape(-1), alone, atol=1e-15)


def test_the_answer_is_the_mean_over_the_batch_of_those_who_take_part(plan_of: MakePlan, records: Records) -> None:
    """Also where not as many take part as the batch counts, which happens by chance under Poisson sampling."""
    plan = plan_of(sampling="poisson", clip=0.5)
    work = task(plan, plan.silos[0], 0, 0)
    weights, few = np.full(4, 0.3), np.array([3, 17, 21])
    chosen = np.zeros(40)
    chosen[few] = 1.0
    answer = release(plan, work, weights, records, Draws(chosen, np.zeros(4)))
    used = records.take(few)
    expected = mean(plan.loss, clip_of(plan), weights, used.features, used.targets, own_terms(plan).batch)
    assert own_terms(plan).batch == 18
    np.testing.assert_allclose(answer, expected, atol=work.sigma * 2.0**-30)


def test_where_outputs_share_slopes_too_a_clipped_gradient_is_as_long_as_the_clip() -> None:
    loss, random = Ordinal(classes=4), np.random.default_rng(3)
    for _ in range(20):
        features = random.normal(size=(1, 5)) * [3.0, 0.1, 1.0, 1.0, 0.7]
        slopes, thresholds = random.normal(size=4), random.normal(size=3)
        weights = np.concatenate([np.repeat(slopes[:, None], 3, axis=1), thresholds[None]])
        assert np.linalg.norm(mean(loss, 0.1, weights, features, np.array([1.0]), 1)) == pytest.approx(0.1)
