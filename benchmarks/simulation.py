"""What the simulator costs beside hand-written JAX programs of the same work: python benchmarks/simulation.py

Threads are fixed before JAX starts, so every measurement is a child process of this script. Contestants take
turns and each counts with its best turn, because other programs may share the machine.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ringfence.protocol import Logistic
from ringfence.server.algorithms import minibatch
from ringfence.simulation import engine
from ringfence.simulation.local import LocalRuns, local_sgd

SILOS, RECORDS, FEATURES, ROUNDS = 25, 1238, 50, 35
STEP, CLIP, SIGMA = 0.5, 1.0, 0.015
MANY = 180
LOCAL_RUNS, LOCAL_SILOS, LOCAL_STEPS, LOCAL_ROUNDS = 30, 12, 443, 3
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

Contestants = dict[str, Callable[[], Any]]


def records() -> list[tuple[Any, Any]]:
    """Make silos whose records have norms around 2, so that about half of the gradients are clipped."""
    random = np.random.default_rng(0)
    shape = (SILOS, RECORDS, FEATURES)
    return list(zip(random.normal(size=shape) * 0.3, random.choice([-1.0, 1.0], shape[:2]), strict=True))


def finish(result: Any) -> None:
    """Wait for JAX, which answers before it has computed; NumPy's results are there already."""
    if isinstance(result, jax.Array):
        result.block_until_ready()


def race(contestants: Contestants, work: int, turns: int) -> dict[str, dict[str, float]]:
    """Compile each contestant, then let them take turns; return work per second.

    The high-water mark after a contestant's first call covers it and those before it.
    """
    memory, best = {}, {}
    for name, contestant in contestants.items():
        finish(contestant())
        memory[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        best[name] = float("inf")
    for _ in range(turns):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            finish(contestant())
            best[name] = min(best[name], time.perf_counter() - start)
    return {
        name: {
            "per second": round(work / best[name]),
            "high-water MiB so far": round(memory[name]),
        }
        for name in contestants
    }


def compared(measured: dict[str, dict[str, float]], rivals: tuple[str, ...]) -> dict[str, Any]:
    """Add the ratio of the public API to the fastest hand-written program."""
    fastest = max(measured[rival]["per second"] for rival in rivals)
    return {**measured, "api / hand-written": round(measured["api"]["per second"] / fastest, 3)}


def pooled(data: Any, step: Any, clip: Any, sigma: Any, key: Any) -> Any:
    """Two products over all records, and the noise of the silos' average, drawn at once for each run."""
    features, norms, targets = data

    def one_round(carry: Any, round: Any) -> tuple[Any, None]:
        weights, total = carry
        residuals: Any = -targets * jax.nn.sigmoid(-targets * (features @ weights))
        kept = jnp.minimum(1.0, clip / jnp.maximum(jnp.abs(residuals) * norms, 1e-30))
        noise = jax.random.normal(jax.random.fold_in(key, round), weights.shape)
        mean = jnp.tensordot(features, residuals * kept, axes=[[0], [0]]) / len(features)
        gradient = mean + sigma / SILOS**0.5 * noise
        return (weights - step * gradient, total + weights), None

    zero = jnp.zeros((FEATURES, len(step)))
    (_, total), _ = jax.lax.scan(one_round, (zero, zero), jnp.arange(ROUNDS))
    return total / ROUNDS


def silo_by_silo(data: Any, step: Any, clip: Any, sigma: Any, key: Any) -> Any:
    """Do what the deployed system does: a product for each silo, with noise of its own."""
    features, norms, targets = (part.reshape(SILOS, RECORDS, -1) for part in data)

    def one_round(carry: Any, round: Any) -> tuple[Any, None]:
        weights, total = carry
        residuals: Any = -targets * jax.nn.sigmoid(-targets * jnp.einsum("ind,ds->ins", features, weights))
        kept = jnp.minimum(1.0, clip / jnp.maximum(jnp.abs(residuals) * norms, 1e-30))
        means: Any = jnp.einsum("ind,ins->ids", features, residuals * kept) / RECORDS
        noise = sigma * jax.random.normal(jax.random.fold_in(key, round), means.shape)
        return (weights - step * jnp.mean(means + noise, axis=0), total + weights), None

    zero = jnp.zeros((FEATURES, len(step)))
    (_, total), _ = jax.lax.scan(one_round, (zero, zero), jnp.arange(ROUNDS))
    return total / ROUNDS


def two_products(by_silo: bool, data: Any, step: Any) -> Any:
    """Only the two products: no program that multiplies in this way is faster."""
    features = data[0].reshape(SILOS if by_silo else 1, -1, FEATURES)

    def one_round(weights: Any, _: Any) -> tuple[Any, None]:
        scores = jnp.tensordot(features, weights, axes=1)
        if by_silo:
            product = jnp.sum(jnp.einsum("ind,ins->ids", features, scores), axis=0)
        else:
            product = jnp.tensordot(features[0], scores[0], axes=[[0], [0]])
        return weights - 1e-6 * step * product, None

    return jax.lax.scan(one_round, jnp.ones((FEATURES, len(step))), None, length=ROUNDS)[0]


def plain_numpy(silos: list[tuple[Any, Any, Any]], generator: Any) -> Any:
    """Run one configuration in a loop over rounds and silos."""
    weights = np.zeros(FEATURES, dtype=np.float32)
    for _ in range(ROUNDS):
        update = np.zeros(FEATURES)
        for features, norms, targets in silos:
            residuals = -targets / (1.0 + np.exp(targets * (features @ weights)))
            kept = np.minimum(1.0, CLIP / np.maximum(np.abs(residuals) * norms, 1e-30))
            update += features.T @ (residuals * kept) / RECORDS + SIGMA * generator.standard_normal(FEATURES)
        weights = (weights - STEP * update / SILOS).astype(np.float32)
    return weights


def measure_minibatch(count: int, *, with_numpy: bool) -> dict[str, Any]:
    """Race the ways to run `count` configurations of noisy minibatch SGD, each with draws of its own."""
    silos = records()
    data = engine.federation(silos)
    rules = engine.Rules(Logistic(), (engine.SimulatedStage(ROUNDS),))
    streams = engine.Streams(jnp.arange(count, dtype=jnp.uint32), jnp.full((count, 1, SILOS), RECORDS))
    step: Any = jnp.full(count, STEP)
    one: Any = jnp.ones(count)
    clip = CLIP * one
    plain = minibatch.Settings(step, momentum=0.0 * one, skip=0.0 * one, growth=one, ridge=0.0 * one)
    runs = engine.Configurations(plain, clip[:, None], jnp.full((count, 1, SILOS), SIGMA), jnp.arange(count))
    columns = (data.features, data.norms[:, None], data.targets[:, None])
    arguments = (columns, step, clip, jnp.full(count, SIGMA), jax.random.key(0))
    by_hand, by_silo = jax.jit(pooled), jax.jit(silo_by_silo)
    pooled_products, silo_products = (jax.jit(partial(two_products, split)) for split in (False, True))
    contestants: Contestants = {
        "api": lambda: engine.simulate(rules, data, streams, runs),
        "hand-written, pooled": lambda: by_hand(*arguments),
        "hand-written, silo by silo": lambda: by_silo(*arguments),
        "two products only, pooled": lambda: pooled_products(columns, step),
        "two products only, silo by silo": lambda: silo_products(columns, step),
    }
    if with_numpy:
        rows = [np.asarray(part, dtype=np.float32).reshape(SILOS, RECORDS, -1) for part in columns]
        loop = [(x, norm[:, 0], y[:, 0]) for x, norm, y in zip(*rows, strict=True)]
        contestants["numpy loop"] = lambda: plain_numpy(loop, np.random.default_rng(0))
    measured = race(contestants, count * SILOS * ROUNDS, turns=30 if count == 1 else 7)

    # Without noise all of them must have learned the same, or they did not do the same work.
    expected = np.asarray(engine.simulate(rules, data, streams, runs._replace(sigma=0.0 * runs.sigma))).T
    for program in (by_hand, by_silo):
        quiet = program(*arguments[:3], jnp.zeros(count), arguments[4])
        np.testing.assert_allclose(quiet, expected, rtol=1e-3, atol=1e-5)
    return compared(measured, ("hand-written, pooled", "hand-written, silo by silo"))


def local_by_hand(shared: bool, data: Any, step: Any, clip: Any, sigma: Any, key: Any) -> Any:
    """Local SGD; with `shared` draws all runs see the same records and the same noise."""
    features, norms, targets = data
    draws = (1 if shared else LOCAL_RUNS, LOCAL_SILOS)

    def one_round(weights: Any, round: Any) -> tuple[Any, None]:
        round_key = jax.random.fold_in(key, round)
        asked = jax.random.permutation(round_key, SILOS)[:LOCAL_SILOS]

        def local_step(local: Any, number: Any) -> tuple[Any, None]:
            row_key, noise_key = jax.random.split(jax.random.fold_in(round_key, number))
            row = asked * RECORDS + jax.random.randint(row_key, draws, 0, RECORDS)
            x, y = features[row], targets[row]
            residual = -y * jax.nn.sigmoid(-y * jnp.sum(x * local, axis=-1))
            kept = jnp.minimum(1.0, clip / jnp.maximum(jnp.abs(residual) * norms[row], 1e-30))
            noise = jax.random.normal(noise_key, (*draws, FEATURES))
            return local - step * (x * (residual * kept)[..., None] + sigma * noise), None

        start = jnp.broadcast_to(weights[:, None], (LOCAL_RUNS, LOCAL_SILOS, FEATURES))
        local, _ = jax.lax.scan(local_step, start, jnp.arange(LOCAL_STEPS))
        return jnp.mean(local, axis=1), None

    return jax.lax.scan(one_round, jnp.zeros((LOCAL_RUNS, FEATURES)), jnp.arange(LOCAL_ROUNDS))[0]


def measure_local(*, shared: bool) -> dict[str, Any]:
    """Race Local SGD through the public API and by hand."""
    data = engine.federation(records())
    step, clip = jnp.full(LOCAL_RUNS, 0.01), jnp.full(LOCAL_RUNS, CLIP)
    seeds = jnp.arange(1 if shared else LOCAL_RUNS, dtype=jnp.uint32)
    stream = jnp.zeros(LOCAL_RUNS, dtype=jnp.int32) if shared else jnp.arange(LOCAL_RUNS)
    runs = LocalRuns(step, clip, jnp.full((LOCAL_RUNS, SILOS), SIGMA), stream)
    by_hand = jax.jit(partial(local_by_hand, shared))
    columns = (data.features, data.norms, data.targets)
    arguments = (columns, step[:, None, None], clip[:, None], jnp.float32(SIGMA), jax.random.key(0))
    sizes = {"rounds": LOCAL_ROUNDS, "local_steps": LOCAL_STEPS, "asked": LOCAL_SILOS}
    contestants: Contestants = {
        "api": lambda: local_sgd(Logistic(), data, seeds, runs, **sizes),
        "hand-written": lambda: by_hand(*arguments),
    }
    work = LOCAL_RUNS * LOCAL_SILOS * LOCAL_STEPS * LOCAL_ROUNDS
    return compared(race(contestants, work, turns=15), ("hand-written",))


MEASUREMENTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "minibatch, 1 configuration, silo-rounds": lambda alone: measure_minibatch(1, with_numpy=alone),
    f"minibatch, {MANY} configurations, silo-rounds": lambda _: measure_minibatch(MANY, with_numpy=False),
    "Local SGD, draws of its own, local steps": lambda _: measure_local(shared=False),
    "Local SGD, shared draws, local steps": lambda _: measure_local(shared=True),
}


def child(name: str, threads: int) -> dict[str, Any]:
    """Measure in a process that has so many cores; it inherits them from this one."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:threads])
    command = [sys.executable, __file__, name, str(threads)]
    try:
        environment = os.environ | (ONE_THREAD if threads == 1 else {})
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    finally:
        os.sched_setaffinity(0, cores)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main(arguments: list[str]) -> dict[str, Any]:
    """Measure everything, or in a child one thing."""
    if arguments:
        name, threads = arguments
        return MEASUREMENTS[name](threads == "1")
    return {
        f"{threads} thread{'s' * (threads > 1)}": {name: child(name, threads) for name in MEASUREMENTS}
        for threads in (1, 2)
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
