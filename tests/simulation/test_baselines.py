"""Local SGD walks as its definition says, and a loss of one's own is clipped record by record."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.events import FixedSizeRelease
from ringfence.accounting.runs import run_events
from ringfence.protocol import Ball, Logistic, Proximal, Softmax, Squared
from ringfence.research.experiments.one_shot import one_shot
from ringfence.server.algorithms import minibatch
from ringfence.silo.queries.gradient import clipped_mean
from ringfence.simulation import engine
from ringfence.simulation.custom import CustomLoss
from ringfence.simulation.local import LocalRuns, local_sgd, local_sgd_sigma

pytestmark = pytest.mark.usefixtures("double_precision")


def silos(loss: Any, sizes: tuple[int, ...] = (20, 30, 25)) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(2)
    made = []
    for size in sizes:
        targets = random.integers(3, size=size) * 1.0 if isinstance(loss, Softmax) else random.choice([-1.0, 1.0], size)
        made.append((random.normal(size=(size, 4)), targets))
    return made


@pytest.mark.parametrize("loss", [Logistic(), Softmax(classes=3)], ids=lambda loss: loss.name)
def test_local_sgd_equals_its_definition_step_by_step_with_the_same_draws(loss: Any) -> None:
    parts = silos(loss)
    data = engine.federation(parts, dtype=np.float64)
    rounds, local_steps, asked, step, clip, seed = 3, 4, 2, 0.3, 0.5, 11
    sigma = np.array([0.1, 0.2, 0.3])
    runs = LocalRuns(jnp.array([step]), jnp.array([clip]), jnp.asarray(sigma[None]), jnp.array([0]))
    compiled = local_sgd(
        loss, data, jnp.array([seed], dtype=jnp.uint32), runs, rounds=rounds, local_steps=local_steps, asked=asked
    )

    weights = np.zeros((4, loss.outputs))
    for round in range(rounds):
        round_key = jax.random.fold_in(jax.random.key(np.uint32(seed)), round)
        chosen = np.asarray(jax.random.permutation(round_key, 3))[:asked]
        local = [weights.copy() for _ in chosen]
        for number in range(local_steps):
            key = jax.random.fold_in(round_key, number + 1)
            luck = np.asarray(jax.random.uniform(key, (asked,)))
            noise = np.asarray(jax.random.normal(key, (asked, weights.size), np.float64))
            for place, silo in enumerate(chosen):
                features, targets = parts[silo]
                row = int(luck[place] * len(targets))
                x, y = features[row], targets[row : row + 1]
                gradient = np.outer(x, loss.residuals(x[None] @ local[place], y)[0])
                gradient *= min(1.0, clip / np.linalg.norm(gradient))
                noisy = gradient + sigma[silo] * noise[place].reshape(weights.shape)
                local[place] = local[place] - step * noisy
        weights = np.mean(local, axis=0)
    np.testing.assert_allclose(np.asarray(compiled[0]), weights.reshape(-1), rtol=1e-9)


def test_local_sgd_s_noise_pays_for_every_local_step() -> None:
    query: Any = {"records": 200, "clip": 1.0}
    sigma = local_sgd_sigma(**query, rounds=5, local_steps=20, epsilon=2.0, delta=1e-5, dimension=3)
    events = run_events("fixed", 100, batch=1, sigma=sigma, dimension=3, **query)
    assert isinstance(events[0][0], FixedSizeRelease)
    assert accountant.epsilon(events, 1e-5) == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize("classes", [1, 3])
def test_a_custom_loss_that_is_a_built_in_one_gives_the_same_clipped_means(classes: int) -> None:
    built_in: Any = Logistic() if classes == 1 else Softmax(classes=3)

    def logistic(scores: Any, target: Any) -> Any:
        return jnp.logaddexp(0.0, -target * scores[0])

    def softmax(scores: Any, target: Any) -> Any:
        return jax.nn.logsumexp(scores) - scores[target.astype(int)]

    own = CustomLoss(logistic if classes == 1 else softmax, classes)
    ((features, targets),) = silos(built_in, (30,))
    arguments: Any = {
        "weights": jnp.asarray(np.random.default_rng(0).normal(size=(4, 2, classes))),
        "features": jnp.asarray(features),
        "norms": jnp.asarray(np.linalg.norm(features, axis=1)),
        "targets": jnp.asarray(targets),
        "shares": jnp.full(30, 1 / 30),
    }
    clip: Any = jnp.array([0.2, 5.0])
    np.testing.assert_allclose(
        clipped_mean(own, clip, **arguments), clipped_mean(built_in, clip, **arguments), rtol=1e-9
    )


def test_a_custom_loss_runs_through_the_engine() -> None:
    """A smooth asymmetric loss that Ringfence does not ship: log-cosh, tilted."""
    tilted = CustomLoss(lambda u, y: jnp.log(jnp.cosh(u[0] - y)) + 0.3 * (u[0] - y))
    data = engine.federation(silos(Logistic()), dtype=np.float64)
    values: Any = (jnp.array([value]) for value in (0.5, 0.0, 150.0, 1.0, 0.0))
    settings = minibatch.Settings(*values)
    runs = engine.Configurations(settings, jnp.array([[jnp.inf]]), jnp.zeros((1, 1, 3)), jnp.array([0]))
    streams = engine.Streams(jnp.array([1], dtype=jnp.uint32), data.sizes[None, None])
    weights = engine.simulate(
        engine.Rules(tilted, (engine.SimulatedStage(200),), Proximal(Ball(radius=50.0))), data, streams, runs
    )
    scores = data.features @ weights[0][:, None]
    gradient = data.features.T @ tilted.residuals(scores, data.targets) / len(data.targets)
    assert np.abs(gradient).max() < 1e-3


def test_one_shot_averages_models_that_each_silo_trained_alone_with_its_own_draws() -> None:
    parts = silos(Logistic())
    sizes = np.array([20, 30, 25])
    settings: Any = (jnp.array([value, value]) for value in (0.5, 0.0, 0.0, 1.0, 0.0))
    streams = engine.Streams(jnp.array([5, 6], dtype=jnp.uint32), jnp.asarray([[sizes], [sizes]]))
    runs = engine.Configurations(
        minibatch.Settings(*settings), jnp.ones((2, 1)), jnp.full((2, 1, 3), 0.1), jnp.array([0, 1])
    )
    rules = engine.Rules(Logistic(), (engine.SimulatedStage(6),), Proximal(Ball(radius=50.0)))
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
    rules = engine.Rules(Squared(), (engine.SimulatedStage(400),), Proximal(Ball(radius=50.0)))
    averaged = one_shot(rules, parts, streams, runs, dtype=np.float64)
    federated = engine.simulate(rules, engine.federation(parts, dtype=np.float64), streams, runs)
    features = np.concatenate([x for x, _ in parts])
    targets = np.concatenate([y for _, y in parts])
    (one, many), _ = engine.evaluate(Squared(), jnp.concatenate([averaged, federated]), features, targets)
    assert one > 1.5 * many
