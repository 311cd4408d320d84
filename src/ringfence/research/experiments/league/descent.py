"""Clipped descent at an exact epsilon, with its settings chosen on the test set, as nobody can."""

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray
from ringfence.research.experiments.abstract import Geometry
from ringfence.research.experiments.league.own import Trained
from ringfence.research.experiments.league.tables import LeagueTable
from ringfence.server.algorithms import minibatch
from ringfence.simulation import engine
from ringfence.simulation.gradient import StackedSilos

ROUNDS = (8, 30, 100)
STEPS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
CLIPS = (0.01, 0.03, 0.1, 0.3, 1.0)
MOMENTA = (0.0, 0.9)
"""Rounds, steps in units of 1/β, clips in units of L (both by the schema's bounds), and momenta that are tried."""
AVERAGED = 0.25
"""The share of rounds, the last ones, whose weights are averaged."""
TUNING_SEEDS = (10_001, 10_002, 10_003, 10_004)
"""Seeds of the runs that settings are chosen by; what is shown has others."""

Setting = tuple[float, float, float]
"""Step, clip and momentum."""


def tuned(table: LeagueTable, epsilon: float, seeds: Sequence[int]) -> list[Trained]:
    """Run the settings with the least mean test error, with fresh noise for each seed."""
    candidates = list(itertools.product(STEPS, CLIPS, MOMENTA))
    best, rounds, setting = math.inf, ROUNDS[0], candidates[0]
    for count in ROUNDS:
        weights = _run(table, epsilon, count, candidates, TUNING_SEEDS)
        errors = np.mean([[_finite(table.error(row)) for row in rows] for rows in weights], axis=0)
        if errors.min() < best:
            best, rounds, setting = float(errors.min()), count, candidates[int(np.argmin(errors))]
    chosen = "step {:g}, clip {:g}, momentum {:g}".format(*setting)
    return [Trained(row, rounds, chosen) for (row,) in _run(table, epsilon, rounds, [setting], seeds)]


def _finite(error: float) -> float:
    return error if math.isfinite(error) else math.inf


def _run(
    table: LeagueTable, epsilon: float, rounds: int, settings: Sequence[Setting], seeds: Sequence[int]
) -> FloatArray:
    """Return the weights of every seed and setting; every silo's noise is exact for its own ε and δ over all rounds."""
    geometry = Geometry.of(table.schema)
    bound = 0.0 if table.is_number else math.inf  # of numbers, the gradient's bound at weights 0
    largest = table.loss.constants(geometry.feature_norm, geometry.target_bound, bound).lipschitz
    smooth = table.loss.constants(geometry.feature_norm, geometry.target_bound, math.inf).smoothness
    runs = [(step / smooth, largest * clip, momentum) for _ in seeds for step, clip, momentum in settings]
    columns: Any = (jnp.asarray(column, dtype=jnp.float32) for column in zip(*runs, strict=True))
    steps, clips, momenta = columns
    unit = [
        2 * math.sqrt(rounds) / (size * gaussian_shift(epsilon, table.deltas[name]))
        for name, size in table.sizes.items()
    ]
    ones: Any = jnp.ones(len(runs), dtype=jnp.float32)
    skip: Any = jnp.full(len(runs), int((1 - AVERAGED) * rounds))
    found = engine.simulate(
        engine.Rules(table.loss, (engine.SimulatedStage(rounds),)),
        _federation(table),
        engine.Streams(jnp.asarray(seeds, dtype=jnp.uint32), jnp.asarray([[list(table.sizes.values())]] * len(seeds))),
        engine.Configurations(
            minibatch.Settings(steps, momenta, skip, ones, 0 * ones),
            clips[:, None],
            (clips[:, None] * jnp.asarray(unit, dtype=jnp.float32))[:, None],
            jnp.repeat(jnp.arange(len(seeds)), len(settings)),
        ),
    )
    return np.asarray(found, dtype=np.float64).reshape(len(seeds), len(settings), -1)


@lru_cache(maxsize=1)
def _federation(table: LeagueTable) -> StackedSilos:
    return engine.federation([(own.features, own.targets) for own in table.silos.values()])
