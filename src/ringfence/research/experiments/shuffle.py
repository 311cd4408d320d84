"""`ringfence reproduce shuffle`: what a shuffler buys, and what it costs, measured and on one page.

Excess risks of the same algorithms for three levels of trust (`trust`), simulated; and the time of a round
through real gates and a real shuffler. Cells are kept in one file per part, so that a stopped run resumes.
"""

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ringfence.protocol import FloatArray, Plan, PublicKeys, ShufflerChannel
from ringfence.research.experiments import curves, mnist, shuffle_page, synthetic, trust
from ringfence.research.experiments.shuffle_page import Cost, ShuffleResults
from ringfence.research.experiments.sweeps import SweepPart, Watch, run_parts, sorted_by, write_cells
from ringfence.research.experiments.synthetic import DIFFERENT, PROBLEMS, Size
from ringfence.research.experiments.trust import (
    DIGITS,
    FULL_BATCH,
    MESSAGES,
    METHODS,
    NOBODY,
    ONE_PASS,
    SHUFFLER,
    Method,
)
from ringfence.research.markdown import command
from ringfence.simulation import engine
from ringfence.simulation.cells import Cell, CellGrid, Row, cells
from ringfence.simulation.gradient import clip_of

NAME = "shuffle"
EPSILONS, QUICK_EPSILONS = (0.5, 2.0, 8.0), (2.0,)
SEEDS, DATASETS = 6, 2
QUICK_SEEDS, QUICK_DATASETS = 2, 1
TIMED_ROUNDS, QUICK_TIMED_ROUNDS = 4, 2
TIMED_EPSILON = 2.0
RISKS = ("population", "empirical", "error")
"""Excess population and empirical risk, and on real data the test error: what cells hold, NaN where there is none."""


@dataclass(frozen=True)
class Data:
    """A data set's records silo by silo and all in one place, and how weights are judged, by risk."""

    apart: Any
    together: Any
    judge: Callable[[FloatArray], Mapping[str, FloatArray]]


def reproduce(
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Watch = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet, and write the figure, cells.csv and index.md beside them.

    `quick` rehearses everything on one tiny problem, without MNIST.
    """
    size, rounds = (synthetic.QUICK, QUICK_TIMED_ROUNDS) if quick else (synthetic.FULL, TIMED_ROUNDS)
    parts = [
        SweepPart(
            partial(_excess, size, data_dir), list(wanted(quick)), ("problem", "method", "epsilon", "trial"), "excess"
        ),
        SweepPart(partial(_cost, size, rounds), list(cells({"epsilon": (TIMED_EPSILON,)}, 1)), ("epsilon",), "cost"),
    ]
    rows = run_parts(NAME, parts, out, quick=quick, watch=watch)
    ordered = sorted_by(rows["excess"], ("problem", "method", "epsilon", "trial", "seed"))
    write_cells(ordered, out / "cells.csv")
    points = shuffle_page.summary(rows["excess"])
    epsilons = sorted({point.epsilon for point in points})
    results = ShuffleResults(
        size=size,
        points=points,
        noises={name: [trust.noise(size, name, epsilon) for epsilon in epsilons] for name in (FULL_BATCH, ONE_PASS)},
        cost=Cost.of(rows["cost"][0]),
        runs=len({(row["trial"], row["seed"]) for row in rows["excess"]}),
        datasets=len({row["trial"] for row in rows["excess"]}),
    )
    return shuffle_page.write(results, out, command(NAME, out, quick))


def wanted(quick: bool) -> CellGrid:
    """Return the cells; a trial is a data set."""
    grid = {
        "problem": (DIFFERENT,) if quick else (*PROBLEMS, DIGITS),
        "method": tuple(METHODS),
        "epsilon": QUICK_EPSILONS if quick else EPSILONS,
        "seed": tuple(range(QUICK_SEEDS if quick else SEEDS)),
    }
    return cells(grid, QUICK_DATASETS if quick else DATASETS)


def run(plan: Plan, method: Method, data: Data, seeds: Sequence[int], sigma: float | None = None) -> FloatArray:
    """Train once per seed, side by side, in single precision; one row of weights each. `sigma` replaces the plan's."""
    streams, runs = engine.from_plans([plan] * len(seeds), seeds)
    if sigma is not None:
        runs = runs._replace(sigma=jnp.full_like(runs.sigma, sigma))
    federation = data.together if method.has_all_records_in_one_place else data.apart
    return np.asarray(engine.simulate(engine.Rules.of(plan), federation, streams, runs), dtype=np.float64)


def _excess(size: Size, data_dir: Path | None, block: list[Cell]) -> list[Row]:
    """Run all seeds of one method on one data set, and judge them in double precision."""
    name, method, epsilon = str(block[0]["problem"]), METHODS[str(block[0]["method"])], float(block[0]["epsilon"])
    plan, problem = trust.plan_for(name, method, size, epsilon), trust.problem_of(name, size)
    sigma = None
    if method.trust == MESSAGES:
        records = problem.silos * problem.records
        sigma = trust.message_noise(records, plan.steps, epsilon, problem.delta, clip_of(plan.training_stages[0]))
        if math.isnan(sigma):  # refused: there is nothing to run
            return [{"rounds": plan.steps, **dict.fromkeys(RISKS, math.nan)} for _ in block]
    data = _data(name, size, block[0].trial, data_dir)
    weights = run(plan, method, data, [1000 * cell.trial + int(cell["seed"]) for cell in block], sigma)
    judged = data.judge(weights)
    return [{"rounds": plan.steps, **{risk: float(judged[risk][i]) for risk in RISKS}} for i in range(len(block))]


@lru_cache(maxsize=2)
def _data(name: str, size: Size, trial: int, data_dir: Path | None) -> Data:
    return digits(trial, data_dir) if name == DIGITS else drawn(name, size, trial)


def drawn(name: str, size: Size, trial: int) -> Data:
    """Return a synthetic data set, judged by its known population."""
    data, population = synthetic.dataset(name, size, trial), synthetic.population(name, size)
    labels = np.concatenate([targets for _, targets in data.silos])

    def judge(weights: FloatArray) -> Mapping[str, FloatArray]:
        return {
            "population": population.excess(weights),
            "empirical": data.sample.excess(weights),
            "error": np.full(len(weights), math.nan),
        }

    return Data(data.federation, engine.federation([(data.sample.features, labels)]), judge)


def digits(trial: int, data_dir: Path | None) -> Data:
    """Return a split of MNIST, judged by the least training loss and by the test error."""
    ours = mnist.build("M = 25", trial, data_dir).ours
    features, labels = (np.concatenate(parts) for parts in zip(*ours.silos, strict=True))
    least = curves.optimum(ours).training_loss

    def judge(weights: FloatArray) -> Mapping[str, FloatArray]:
        losses = np.mean(np.logaddexp(0.0, -labels[:, None] * (features @ weights.T)), axis=0)
        wrong = np.mean(np.sign(ours.test[0] @ weights.T) != ours.test[1][:, None], axis=0)
        return {"population": np.full(len(weights), math.nan), "empirical": losses - least, "error": wrong}

    return Data(engine.federation(ours.silos), engine.federation([(features, labels)]), judge)


def _cost(size: Size, rounds: int, block: list[Cell]) -> list[Row]:
    """Time rounds of the same algorithm in this process, through real gates, without and with a real shuffler."""
    from ringfence.federation.local_shuffler import local_shuffler

    epsilon = float(block[0]["epsilon"])
    problem = trust.problem_of(PROBLEMS[0], size)

    def planned(whom: str, keys: PublicKeys) -> Plan:
        return trust.propose_for(problem, Method(FULL_BATCH, whom), epsilon, rounds=rounds, keys=keys).plan

    with local_shuffler([f"silo {i}" for i in range(size.silos)]) as local:
        shuffled = planned(SHUFFLER, local.keys)
        seconds = _seconds(size, planned(NOBODY, local.keys), local), _seconds(size, shuffled, local)
    (stage,) = shuffled.stages
    channel = stage.channel
    assert isinstance(channel, ShufflerChannel)  # noqa: S101 (as asked for)
    numbers = channel.numbers(shuffled, stage)
    return [
        {
            "seconds_plain": seconds[0],
            "seconds_shuffled": seconds[1],
            "rounds": rounds,
            "shares": channel.shares,
            "messages": channel.messages(numbers),
            "envelope": channel.envelope_bytes(numbers),
        }
    ]


def _seconds(size: Size, plan: Plan, local: Any) -> float:
    """Return the time of a round, from the end of the first to that of the last: approving a plan is not a round."""
    from ringfence.federation.training import Silo, train
    from ringfence.silo.records.records import Records

    held: list[tuple[FloatArray, FloatArray]] = synthetic.dataset(PROBLEMS[0], size, 0).silos
    ends: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ringfence-") as folder:
        silos = {
            terms.name: Silo(Records(plan.data, *own), Path(folder) / f"{number}.ledger", key=local.silos[terms.name])
            for number, (terms, own) in enumerate(zip(plan.silos, held, strict=True))
        }
        collect = local.collect(plan) if any(stage.channel.is_collected for stage in plan.stages) else None
        train(plan, silos, watch=lambda _: ends.append(time.perf_counter()), collect=collect)
    return (ends[-1] - ends[0]) / (len(ends) - 1)
