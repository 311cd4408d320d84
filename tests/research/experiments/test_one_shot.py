"""One-shot averaging is the mean of models that silos trained alone, and biased where silos differ."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.protocol import Ball, Logistic, Squared
from ringfence.research.experiments.one_shot import one_shot
from ringfence.server.algorithms import minibatch
from ringfence.simulation import engine
from tests.simulation.test_baselines import silos


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Compare in float64."""
    with jax.enable_x64(True):
        yield


def test_one_shot_averages_models_that_each_silo_trained_alone_with_its_own_draws() -> None:
    parts = silos(Logistic())
    sizes = np.array([20, 30, 25])
    settings: Any = (jnp.array([value, value]) for value in (0.5, 0.0, 0.0, 1.0, 0.0))
    streams = engine.Streams(jnp.array([5, 6], dtype=jnp.uint32), jnp.asarray([[sizes], [sizes]]))
    runs = engine.Configurations(
        minibatch.Settings(*settings), jnp.ones((2, 1)), jnp.full((2, 1, 3), 0.1), jnp.array([0, 1])
    )
    rules = engine.Rules(Logistic(), Ball(radius=50.0), (engine.SimulatedStage(6),))
    together = np.asarray(one_shot(rules, parts, streams, runs, dtype=np.float64))
    alone = [
        np.asarray(
            engine.simulate(
                rules,
                engine.federation([part], dtype=np.float64),
                engine.Streams(streams.seed + np.uint32(7919 * place), streams.batch[..., place : place + 1]),
                runs._replace(sigma=runs.sigma[..., :1]),
            )
        )
        for place, part in enumerate(parts)
    ]
    np.testing.assert_allclose(together, np.average(alone, axis=0, weights=sizes), rtol=1e-9)
    assert not np.allclose(together[0], together[1])


def test_one_shot_averaging_is_biased_where_silos_differ_however_little_noise_there_is() -> None:
    """Two silos on different stretches of a curve: the average of their lines is not the best line."""
    random = np.random.default_rng(0)
    left = random.uniform(-1.0, -0.5, 400)
    right = random.uniform(0.0, 1.0, 400)
    parts = [(np.stack([x, np.ones_like(x)], axis=1), x**2) for x in (left, right)]
    settings: Any = (jnp.array([value]) for value in (0.5, 0.9, 300.0, 1.0, 0.0))
    streams = engine.Streams(jnp.array([1], dtype=jnp.uint32), jnp.array([[[400, 400]]]))
    clip, sigma = jnp.array([[jnp.inf]]), jnp.zeros((1, 1, 2))
    runs = engine.Configurations(minibatch.Settings(*settings), clip, sigma, jnp.array([0]))
    rules = engine.Rules(Squared(), Ball(radius=50.0), (engine.SimulatedStage(400),))
    averaged = one_shot(rules, parts, streams, runs, dtype=np.float64)
    federated = engine.simulate(rules, engine.federation(parts, dtype=np.float64), streams, runs)
    features = np.concatenate([x for x, _ in parts])
    targets = np.concatenate([y for _, y in parts])
    (one, many), _ = engine.evaluate(Squared(), jnp.concatenate([averaged, federated]), features, targets)
    assert one > 1.5 * many
