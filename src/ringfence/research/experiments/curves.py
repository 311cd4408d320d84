"""The curves of the paper's figures: one trial of one panel, for every epsilon at once.

Every curve chooses its step (and what else it tunes) by the training loss, averaged over repetitions, as the
paper does, and is then run again with fresh noise. That choice looks at the private records and is not counted
in epsilon; only the planner's curve is untuned. Each point carries the epsilon that was asked for and the one
that is true.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from ringfence.accounting import accountant, calibrate
from ringfence.accounting.runs import run_events
from ringfence.planning.propose import BY_BOUND, make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Loss, Participation, Plan, SamplingName, sampling_named
from ringfence.research.experiments.abstract import Geometry, schema_of
from ringfence.research.theory import paper
from ringfence.server.algorithms import minibatch
from ringfence.simulation import engine
from ringfence.simulation.local import LocalRuns, local_sgd, local_sgd_sigma
from ringfence.simulation.trials import simulated_state

CHUNK = 256
"""Runs that are simulated side by side: enough to fill the matrix products, few enough to bound memory."""


@dataclass(frozen=True)
class TrialData:
    """One trial: every silo's training records, the pooled test records, and what is public about them.

    `error_unit` is what an error of 1 means: 1 for a share of wrong labels, the test targets' mean squared
    distance from the training mean for a relative squared error.
    """

    geometry: Geometry
    loss: Loss
    silos: Sequence[tuple[FloatArray, FloatArray]]
    test: tuple[FloatArray, FloatArray]
    rounds: int
    asked: int
    delta: float
    error_unit: float = 1.0

    @property
    def sizes(self) -> list[int]:
        """Training records per silo."""
        return [len(targets) for _, targets in self.silos]

    @property
    def participation(self) -> Participation:
        """All silos, or so many of them in a round."""
        return Participation(silos=self.asked) if self.asked < len(self.silos) else Participation()

    @property
    def dimension(self) -> int:
        """Number of weights."""
        return self.geometry.width * self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """The largest norm of a record's gradient at weights 0, and for classification anywhere."""
        weight_norm = 0.0 if self.loss.name in ("squared", "huber") else math.inf
        return self.loss.constants(self.geometry.feature_norm, self.geometry.target_bound, weight_norm).lipschitz

    @property
    def smoothness(self) -> float:
        """β of a record's loss."""
        return self.loss.constants(self.geometry.feature_norm, self.geometry.target_bound, math.inf).smoothness


@dataclass(frozen=True)
class CurvePoint:
    """A curve's value at one epsilon."""

    epsilon: float
    true_epsilon: float
    error: float
    training_loss: float
    chosen: str


@dataclass(frozen=True)
class Candidate:
    """One setting to be tried: for minibatch SGD all of it, for Local SGD step and clip."""

    step: float
    clip: float
    momentum: float = 0.0
    skip: int = 0

    def __str__(self) -> str:
        return f"step {self.step:.3g}, clip {self.clip:.3g}, momentum {self.momentum:.2g}"


Runner = Callable[[Sequence[Candidate], Sequence[int]], Any]
"""Train all candidates once per seed; return their weights, one row per run, seed after seed."""


@dataclass(frozen=True)
class Grid:
    """A tuning grid: steps in units of 1/β, clips in units of L, momenta, and the share of rounds not averaged."""

    steps: tuple[float, ...]
    clips: tuple[float, ...]
    momenta: tuple[float, ...]
    skip: float = 0.75

    def candidates(self, problem: TrialData) -> list[Candidate]:
        """Return all combinations for a problem."""
        skip = int(self.skip * problem.rounds)
        return [
            Candidate(step / problem.smoothness, clip * problem.lipschitz, momentum, skip)
            for step, clip, momentum in itertools.product(self.steps, self.clips, self.momenta)
        ]


def ringfence_tuned(
    problem: TrialData, epsilons: Sequence[float], grid: Grid, *, seed: int, repeats: int
) -> list[CurvePoint]:
    """Full batches, exact noise, settings by training loss."""
    candidates = grid.candidates(problem)
    return [
        select(
            problem,
            epsilon,
            epsilon,
            candidates,
            _minibatch_runner(problem, full_batch_units(problem, epsilon), "full", problem.sizes),
            seed,
            repeats,
        )
        for epsilon in epsilons
    ]


def ringfence_untuned(problem: TrialData, epsilons: Sequence[float], *, seed: int, repeats: int) -> list[CurvePoint]:
    """The planner's choice by loss bounds, in at most the panel's rounds: only the training looks at the records."""
    members = [Member(f"silo {i}", n, 1.0, problem.delta) for i, n in enumerate(problem.sizes)]
    seeds = [seed + 1000 * r + 500 for r in range(repeats)]
    data, schema = engine.federation(problem.silos), schema_of(problem.geometry, problem.loss)
    points = []
    for epsilon in epsilons:
        plan = make_plan(
            schema,
            [replace(member, epsilon=epsilon) for member in members],
            PlanRequest(
                algorithm=BY_BOUND,
                loss=problem.loss,
                most_rounds=problem.rounds,
                participation=problem.participation,
            ),
        )
        known = [simulated_state(plan, problem.silos, own) for own in seeds]
        streams, runs = engine.from_plans([plan] * repeats, seeds, learned=known)
        weights = engine.simulate(engine.Rules.of(plan), data, streams, runs)
        loss, error = (float(scores.mean()) for scores in losses_and_errors(problem, weights))
        points.append(CurvePoint(epsilon, epsilon, error, loss, _description(plan)))
    return points


def _description(plan: Plan) -> str:
    survey = ", survey" if plan.rounds > plan.steps else ""
    return f"{plan.algorithm.name}, {plan.steps} rounds{survey}"


def paper_recipe(
    problem: TrialData,
    epsilons: Sequence[float],
    steps: Sequence[float],
    clips: Sequence[float],
    *,
    seed: int,
    repeats: int,
) -> list[CurvePoint]:
    """The paper's noise formula, batch and grid, with the average of all query points; the epsilon is the true one.

    `clips` are the constants L that the paper puts into its formula; gradients are clipped there. Where the
    loss's own bound is smaller than L, as it is where the paper doubles it, the true epsilon takes the smaller.
    """
    bound = problem.lipschitz if problem.loss.name in ("logistic", "softmax") else math.inf
    points = []
    for epsilon in epsilons:
        units, batches, truths = [], [], []
        for n in problem.sizes:
            batch = paper.practical_batch(records=n, rounds=problem.rounds, epsilon=epsilon)
            shape: Any = {"records": n, "batch": batch, "rounds": problem.rounds, "dimension": problem.dimension}
            unit = paper.practical_noise(**shape, clip=1.0, epsilon=epsilon, delta=problem.delta).sigma
            events = run_events("fixed", clip=min(1.0, bound / min(clips)), sigma=unit, **shape)
            units.append(unit)
            batches.append(batch)
            truths.append(accountant.epsilon(events, problem.delta))
        candidates = [Candidate(step, clip) for step in steps for clip in clips]
        runner = _minibatch_runner(problem, units, "fixed", batches)
        points.append(select(problem, epsilon, max(truths), candidates, runner, seed, repeats))
    return points


def local(
    problem: TrialData,
    epsilons: Sequence[float | None],
    candidates: Sequence[Candidate],
    *,
    local_steps: Callable[[float | None], int],
    seed: int,
    repeats: int,
) -> list[CurvePoint]:
    """Local SGD with noise that pays for all its steps, or without noise where epsilon is None."""
    points = []
    for epsilon in epsilons:
        count = local_steps(epsilon)
        unit = [0.0 if epsilon is None else _local_unit(problem, n, count, epsilon) for n in problem.sizes]
        runner = _local_runner(problem, unit, count)
        nominal = math.inf if epsilon is None else epsilon
        points.append(select(problem, nominal, nominal, candidates, runner, seed, repeats))
    return points


def non_private_minibatch(problem: TrialData, grid: Grid, *, seed: int) -> CurvePoint:
    """Minibatch SGD with full batches and neither noise nor clipping."""
    skip = int(grid.skip * problem.rounds)
    candidates = [
        Candidate(step / problem.smoothness, 1e30, momentum, skip)
        for step, momentum in itertools.product(grid.steps, grid.momenta)
    ]
    runner = _minibatch_runner(problem, [0.0] * len(problem.silos), "full", problem.sizes)
    return select(problem, math.inf, math.inf, candidates, runner, seed, 1)


def optimum(problem: TrialData) -> CurvePoint:
    """The minimiser of the pooled training loss: what no algorithm here can beat on the training records."""
    features = np.concatenate([features for features, _ in problem.silos])
    targets = np.concatenate([targets for _, targets in problem.silos])
    shape = (features.shape[1], problem.loss.outputs)

    def objective(weights: FloatArray) -> tuple[float, FloatArray]:
        scores = features @ weights.reshape(shape)
        gradient = features.T @ problem.loss.residuals(scores, targets) / len(targets)
        return float(np.mean(problem.loss.values(scores, targets))), gradient.reshape(-1)

    fitted = minimize(objective, np.zeros(problem.dimension), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    error = float(_evaluate(problem, jnp.asarray(fitted.x[None], dtype=jnp.float32), problem.test)[1][0])
    return CurvePoint(math.inf, math.inf, error, float(fitted.fun), "L-BFGS")


def select(
    problem: TrialData,
    epsilon: float,
    true_epsilon: float,
    candidates: Sequence[Candidate],
    run: Runner,
    seed: int,
    repeats: int,
) -> CurvePoint:
    """Choose the candidate with the least training loss, averaged over `repeats` runs; then run it with fresh noise.

    The runs that it was chosen by would flatter it: among many, the lucky ones win.
    """
    best = 0
    if len(candidates) > 1:
        losses = _scores(problem, candidates, run, [seed + 1000 * r for r in range(repeats)])[0].mean(axis=0)
        best = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    fresh = [seed + 1000 * r + 500 for r in range(repeats)]
    loss, error = (float(scores.mean()) for scores in _scores(problem, [candidates[best]], run, fresh))
    return CurvePoint(epsilon, true_epsilon, error, loss, str(candidates[best]))


def _scores(
    problem: TrialData, candidates: Sequence[Candidate], run: Runner, seeds: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Train the candidates, and return their training losses and test errors: one row per seed."""
    outcomes = []
    chunk = max(1, CHUNK // len(seeds))
    for start in range(0, len(candidates), chunk):
        weights = run(candidates[start : start + chunk], seeds)
        outcomes.append([scores.reshape(len(seeds), -1) for scores in losses_and_errors(problem, weights)])
    losses, errors = (np.concatenate(scores, axis=1) for scores in zip(*outcomes, strict=True))
    return losses, errors


def losses_and_errors(problem: TrialData, weights: Any) -> tuple[FloatArray, FloatArray]:
    """Return every run's training loss and test error."""
    training = (
        np.concatenate([features for features, _ in problem.silos]),
        np.concatenate([targets for _, targets in problem.silos]),
    )
    return _evaluate(problem, weights, training)[0], _evaluate(problem, weights, problem.test)[1]


def _evaluate(
    problem: TrialData, weights: Any, records: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    features, targets = (jnp.asarray(part, dtype=jnp.float32) for part in records)
    loss, error = engine.evaluate(problem.loss, weights, features, targets)
    relative = np.asarray(error, dtype=np.float64) / problem.error_unit
    return np.asarray(loss, dtype=np.float64), np.sqrt(relative) if problem.error_unit != 1.0 else relative


def full_batch_units(problem: TrialData, epsilon: float) -> list[float]:
    """Return every silo's noise for a clip of 1."""
    units = {
        n: calibrate.noise(
            "full",
            records=n,
            batch=n,
            rounds=problem.rounds,
            clip=1.0,
            epsilon=epsilon,
            delta=problem.delta,
            dimension=problem.dimension,
        )
        for n in set(problem.sizes)
    }
    return [units[n] for n in problem.sizes]


def _minibatch_runner(
    problem: TrialData, unit: Sequence[float], sampling: SamplingName, batch: Sequence[int]
) -> Runner:
    """Simulate candidates whose silos add `unit` times the clip as noise; candidates share each seed's draws."""
    data = engine.federation(problem.silos)
    stage = engine.SimulatedStage(problem.rounds, sampling_named(sampling), problem.participation)
    rules = engine.Rules(problem.loss, (stage,))

    def run(candidates: Sequence[Candidate], seeds: Sequence[int]) -> Any:
        streams = engine.Streams(jnp.asarray(seeds, dtype=jnp.uint32), jnp.asarray([[batch]] * len(seeds)))
        columns = [[c.step, c.momentum, c.skip, 1.0, 0.0] for _ in seeds for c in candidates]
        settings: Any = (jnp.asarray(column, dtype=jnp.float32) for column in zip(*columns, strict=True))
        clip, stream = _per_run(candidates, seeds)
        sigma = clip[:, None] * jnp.asarray(unit, dtype=jnp.float32)
        runs = engine.Configurations(minibatch.Settings(*settings), clip[:, None], sigma[:, None], stream)
        return engine.simulate(rules, data, streams, runs)

    return run


def _per_run(candidates: Sequence[Candidate], seeds: Sequence[int]) -> tuple[Any, Any]:
    """Return every run's clip and the number of its seed, seed after seed."""
    clip = jnp.asarray([c.clip for _ in seeds for c in candidates], dtype=jnp.float32)
    return clip, jnp.repeat(jnp.arange(len(seeds)), len(candidates))


def _local_unit(problem: TrialData, records: int, local_steps: int, epsilon: float) -> float:
    return local_sgd_sigma(
        records=records,
        rounds=problem.rounds,
        local_steps=local_steps,
        clip=1.0,
        epsilon=epsilon,
        delta=problem.delta,
        dimension=problem.dimension,
    )


def _local_runner(problem: TrialData, unit: Sequence[float], local_steps: int) -> Runner:
    data = engine.federation(problem.silos)

    def run(candidates: Sequence[Candidate], seeds: Sequence[int]) -> Any:
        clip, stream = _per_run(candidates, seeds)
        runs = LocalRuns(
            jnp.asarray([c.step for _ in seeds for c in candidates], dtype=jnp.float32),
            clip,
            clip[:, None] * jnp.asarray(unit, dtype=jnp.float32),
            stream,
        )
        return local_sgd(
            problem.loss,
            data,
            jnp.asarray(seeds, dtype=jnp.uint32),
            runs,
            rounds=problem.rounds,
            local_steps=local_steps,
            asked=problem.asked,
        )

    return run
