"""How many rounds MNIST takes: test error against rounds for tuned minibatch SGD and tuned acceleration."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence.experiments import curves
from ringfence.experiments.curves import Grid, Problem
from ringfence.experiments.mnist import MNIST
from ringfence.planning import calibrate
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.domain import WholeSpace
from ringfence.server.algorithms import accelerated
from ringfence.simulation import engine
from ringfence.simulation.cells import Cell, Cells, Row, cells

PANEL, EPSILON = "M = 25", 1.5
ROUNDS, QUICK_ROUNDS = (2, 4, 6, 8, 12, 16, 24, 35), (2,)
TRIALS, QUICK_TRIALS = 3, 1
REPEATS = 3
MINIBATCH, ACCELERATED = "minibatch SGD", "accelerated"
ALGORITHMS = (MINIBATCH, ACCELERATED)
CLIPS = (0.35, 0.5, 0.7)
"""Clips in units of L, for both algorithms."""
GRID = Grid(steps=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), clips=CLIPS, momenta=(0.0, 0.7), skip=0.75)
PACES = tuple(2.0**k for k in range(-9, 1))
"""Least υ in units of β. Theory has υ ≥ 2β for the worst problem; tuning may go below."""


def wanted(quick: bool) -> Cells:
    """Return the cells: every algorithm with every number of rounds."""
    grid = {"algorithm": ALGORITHMS, "rounds": QUICK_ROUNDS if quick else ROUNDS}
    return cells(grid, QUICK_TRIALS if quick else TRIALS)


def task(data_dir: Path | None, block: list[Cell]) -> list[Row]:
    """Tune every cell by training loss, run it again with fresh noise, and return its test error."""
    rows: list[Row] = []
    for cell in block:
        problem = replace(_problem(cell.trial, data_dir), rounds=int(cell["rounds"]))
        if cell["algorithm"] == MINIBATCH:
            points = curves.ringfence_tuned(problem, [EPSILON], GRID, seed=cell.trial, repeats=REPEATS)
            error, loss, chosen = points[0].error, points[0].training_loss, points[0].chosen
        else:
            error, loss, chosen = _accelerated_tuned(problem, seed=cell.trial)
        rows.append({"error": error, "training_loss": loss, "chosen": chosen})
    return rows


@lru_cache(maxsize=1)
def _problem(trial: int, data_dir: Path | None) -> Problem:
    return MNIST.build(PANEL, trial, data_dir).ours


def _accelerated_tuned(problem: Problem, *, seed: int) -> tuple[float, float, str]:
    """Choose pace and clip by the training loss, averaged over runs; then run the best with fresh noise."""
    candidates = [(pace * problem.smoothness, clip * problem.lipschitz) for pace, clip in product(PACES, CLIPS)]
    losses, _ = _scores(problem, candidates, [seed + 1000 * r for r in range(REPEATS)])
    best = candidates[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))]
    loss, error = _scores(problem, [best], [seed + 1000 * r + 500 for r in range(REPEATS)])
    return float(error[0]), float(loss[0]), f"pace {best[0]:.3g}, clip {best[1]:.3g}"


def _scores(
    problem: Problem, candidates: Sequence[tuple[float, float]], seeds: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Return every candidate's training loss and test error, averaged over the seeds."""
    count = len(candidates) * len(seeds)
    pace, clip = (np.tile(values, len(seeds)) for values in zip(*candidates, strict=True))
    zeros = jnp.zeros((count, 1), dtype=jnp.float32)
    settings = accelerated.Settings(
        stage=jnp.zeros((count, problem.rounds), dtype=jnp.int32),
        pace=jnp.asarray(pace[:, None], dtype=jnp.float32),
        penalty=zeros,
        recentre=zeros,
        ridge=zeros[:, 0],
        average=zeros[:, 0],
        tail=zeros[:, 0],
    )
    unit = [_unit(n, problem) for n in problem.sizes]
    runs = engine.Configurations(
        settings,
        jnp.asarray(clip, dtype=jnp.float32),
        jnp.asarray(np.outer(clip, unit), dtype=jnp.float32),
        jnp.repeat(jnp.arange(len(seeds)), len(candidates)),
    )
    streams = engine.Streams(jnp.asarray(seeds, dtype=jnp.uint32), jnp.asarray([problem.sizes] * len(seeds)))
    rules = engine.Rules(problem.loss, WholeSpace(), problem.rounds, algorithm="accelerated")
    weights = engine.simulate(rules, engine.federation(problem.silos), streams, runs)
    training = [np.concatenate(parts) for parts in zip(*problem.silos, strict=True)]
    loss, error = _evaluate(problem, weights, training)[0], _evaluate(problem, weights, problem.test)[1]
    return loss.reshape(len(seeds), -1).mean(axis=0), error.reshape(len(seeds), -1).mean(axis=0)


def _evaluate(problem: Problem, weights: Any, records: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    features, targets = (jnp.asarray(part, dtype=jnp.float32) for part in records)
    loss, error = engine.evaluate(problem.loss, weights, features, targets)
    return np.asarray(loss, dtype=np.float64), np.asarray(error, dtype=np.float64)


@lru_cache(maxsize=64)
def _noise(records: int, rounds: int, dimension: int, delta: float) -> float:
    return calibrate.noise(
        "full",
        records=records,
        batch=records,
        rounds=rounds,
        clip=1.0,
        epsilon=EPSILON,
        delta=delta,
        dimension=dimension,
    )


def _unit(records: int, problem: Problem) -> float:
    """Return a silo's noise for a clip of 1."""
    return _noise(records, problem.rounds, problem.dimension, problem.delta)
