"""How many rounds MNIST takes: test error against rounds for tuned minibatch SGD and tuned acceleration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence.research.experiments import curves
from ringfence.research.experiments.curves import Candidate, CurvePoint, Grid, Runner, TrialData
from ringfence.research.experiments.mnist import MNIST
from ringfence.server.algorithms import accelerated
from ringfence.simulation import engine
from ringfence.simulation.cells import Cell, CellGrid, Row, cells

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


def wanted(quick: bool) -> CellGrid:
    """Return the cells: every algorithm with every number of rounds."""
    grid = {"algorithm": ALGORITHMS, "rounds": QUICK_ROUNDS if quick else ROUNDS}
    return cells(grid, QUICK_TRIALS if quick else TRIALS)


def task(data_dir: Path | None, block: list[Cell]) -> list[Row]:
    """Tune every cell by training loss, run it again with fresh noise, and return its test error."""
    rows: list[Row] = []
    for cell in block:
        problem = replace(_problem(cell.trial, data_dir), rounds=int(cell["rounds"]))
        if cell["algorithm"] == MINIBATCH:
            (point,) = curves.ringfence_tuned(problem, [EPSILON], GRID, seed=cell.trial, repeats=REPEATS)
        else:
            point = _accelerated_tuned(problem, seed=cell.trial)
        rows.append({"error": point.error, "training_loss": point.training_loss, "chosen": point.chosen})
    return rows


@lru_cache(maxsize=1)
def _problem(trial: int, data_dir: Path | None) -> TrialData:
    return MNIST.build(PANEL, trial, data_dir).ours


@dataclass(frozen=True)
class Paced(Candidate):
    """Setting of an accelerated run: its step is the inverse step scale υ."""

    def __str__(self) -> str:
        return f"pace {self.step:.3g}, clip {self.clip:.3g}"


def _accelerated_tuned(problem: TrialData, *, seed: int) -> CurvePoint:
    """Choose inverse step scale and clip by the mean training loss; then run the best with fresh noise."""
    candidates = [
        Paced(upsilon * problem.smoothness, clip * problem.lipschitz) for upsilon, clip in product(PACES, CLIPS)
    ]
    return curves.select(problem, EPSILON, EPSILON, candidates, _runner(problem), seed, REPEATS)


def _runner(problem: TrialData) -> Runner:
    unit, data = curves.full_batch_units(problem, EPSILON), engine.federation(problem.silos)
    rules = engine.Rules(problem.loss, (engine.SimulatedStage(problem.rounds),), algorithm="accelerated")

    def run(candidates: Sequence[Candidate], seeds: Sequence[int]) -> Any:
        count = len(candidates) * len(seeds)
        upsilon, clip = (np.tile([getattr(c, name) for c in candidates], len(seeds)) for name in ("step", "clip"))
        zeros = jnp.zeros((count, 1), dtype=jnp.float32)
        settings = accelerated.Settings(
            stage=jnp.zeros((count, problem.rounds), dtype=jnp.int32),
            upsilon=jnp.asarray(upsilon[:, None], dtype=jnp.float32),
            penalty=zeros,
            recentre=zeros,
            ridge=zeros[:, 0],
            average=zeros[:, 0],
            tail=zeros[:, 0],
        )
        runs = engine.Configurations(
            settings,
            jnp.asarray(clip[:, None], dtype=jnp.float32),
            jnp.asarray(np.outer(clip, unit)[:, None], dtype=jnp.float32),
            jnp.repeat(jnp.arange(len(seeds)), len(candidates)),
        )
        streams = engine.Streams(jnp.asarray(seeds, dtype=jnp.uint32), jnp.asarray([[problem.sizes]] * len(seeds)))
        return engine.simulate(rules, data, streams, runs)

    return run
