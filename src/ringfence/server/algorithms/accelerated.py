"""Accelerated noisy minibatch SGD (Algorithm 1 of the paper), in one run, in stages, or in localized phases.

One recursion serves them all. A run is a list of stages; a stage starts where the last one ended and has its own υ
υ (an inverse step size), penalty λ and centre. In the k-th answered round of a stage, with α = 2/(k+1),
η = 4υ/(k(k+1)) and μ the strong convexity of the objective (ridge and penalty),

    w_md = [(1−α)(μ+η)·w_ag + α((1−α)μ+η)·w] / (η + (1−α²)μ)          asked of the silos
    w    ← Prox([αμ·w_md + ((1−α)μ+η)·w − α·g] / (μ+η), α/(μ+η))        the paper's argmin, in closed form
    w_ag ← α·w + (1−α)·w_ag                                            the model

The closed form holds for every closed convex set, because the quadratic it minimises has the same curvature in all
directions. Ridge and penalty hold no record, so their gradients are added here; a lasso stands in the argmin itself,
and Prox, which is the projection without one, is its minimiser (`protocol.plan.domain`).
"""

from typing import Any, NamedTuple

import numpy as np

from ringfence.protocol import Accelerated, FloatArray, Localized, MultiStage, Plan
from ringfence.protocol.arrays import namespace
from ringfence.protocol.plan.algorithms import tail_begins
from ringfence.protocol.plan.domain import ProximalStep
from ringfence.server.algorithms.minibatch import mean_of_counted
from ringfence.server.algorithms.survey import TargetEstimate
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate

_AVERAGES = {"weighted": 0.0, "last": 1.0, "tail": 2.0}


class Settings(NamedTuple):
    """The stage of every round, then one entry per stage, then settings of the whole run.

    `recentre` is 1 for a stage whose penalty is centred at its start, 0 for one that keeps the centre.
    """

    stage: Any
    upsilon: Any
    penalty: Any
    recentre: Any
    ridge: Any
    average: Any
    tail: Any


class State(NamedTuple):
    """The iterates w and w_ag, the penalty's centre, the stage and its answered rounds, the sum of the tail's w."""

    iterate: FloatArray
    model: FloatArray
    centre: FloatArray
    stage: Any
    answered: Any
    total: FloatArray
    mass: Any


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Read accelerated SGD's settings from a plan; `smoothness` is a smaller bound on β than the plan's, if known."""
    spec = plan.algorithm
    if not isinstance(spec, Accelerated | MultiStage | Localized):
        raise TypeError(f"{spec.name} is not an accelerated algorithm")
    smoothness = min(spec.smoothness, spec.smoothness if smoothness is None else smoothness)
    runs = spec.recursions(plan.steps, plan.ridge, smoothness)
    return Settings(
        stage=np.repeat(np.arange(len(runs)), [run.rounds for run in runs]),
        upsilon=np.array([run.upsilon for run in runs]),
        penalty=np.array([run.penalty for run in runs]),
        recentre=np.array([1.0 * run.recentres for run in runs]),
        ridge=plan.ridge,
        average=_AVERAGES[spec.average],
        tail=tail_begins(plan.steps),
    )


def after_survey(plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate) -> None:
    """Return None: accelerated SGD uses no survey of features."""


def init(start: FloatArray) -> State:
    """Start accelerated SGD at `start`, which must lie in the domain."""
    return State(start, start, start, -1, 0.0, 0.0 * start, 0.0)


def query_weights(settings: Settings, state: State, round: Any) -> FloatArray:
    """Return accelerated SGD's w_md, a convex combination of iterates in the domain."""
    state = _enter(settings, state, round)
    alpha, eta, mu, _ = _coefficients(settings, state, round)
    whole = eta + (1.0 - alpha**2) * mu
    result: FloatArray = (
        (1.0 - alpha) * (mu + eta) * state.model + alpha * ((1.0 - alpha) * mu + eta) * state.iterate
    ) / whole
    return result


def step(settings: Settings, proximal: ProximalStep, state: State, gradient: FloatArray, round: Any) -> State:
    """Take the accelerated proximal step above."""
    asked = query_weights(settings, state, round)
    state = _enter(settings, state, round)
    alpha, eta, mu, penalty = _coefficients(settings, state, round)
    whole = gradient + settings.ridge * asked + penalty * (asked - state.centre)
    moved = (alpha * mu * asked + ((1.0 - alpha) * mu + eta) * state.iterate - alpha * whole) / (mu + eta)
    iterate = proximal(moved, alpha / (mu + eta))
    counts = 1.0 * (round >= settings.tail)
    return state._replace(
        iterate=iterate,
        model=alpha * iterate + (1.0 - alpha) * state.model,
        answered=state.answered + 1.0,
        total=state.total + counts * iterate,
        mass=state.mass + counts,
    )


def output(settings: Settings, state: State) -> FloatArray:
    """Return accelerated SGD's w_ag, last w, or mean of the tail's w (w_ag if no round of the tail was answered)."""
    xp = namespace(state.iterate)
    tail = mean_of_counted(state.total, state.mass, state.model)
    result: FloatArray = xp.where(
        xp.asarray(settings.average) == _AVERAGES["last"],
        state.iterate,
        xp.where(xp.asarray(settings.average) == _AVERAGES["tail"], tail, state.model),
    )
    return result


def _enter(settings: Settings, state: State, round: Any) -> State:
    """Start the round's stage of accelerated SGD if it has not begun: at w_ag, a new count, perhaps a new centre."""
    xp = namespace(state.iterate)
    stage = settings.stage[round]
    new = xp.asarray(stage != state.stage)
    moves = xp.logical_and(new, settings.recentre[stage] > 0)
    return state._replace(
        iterate=xp.where(new, state.model, state.iterate),
        centre=xp.where(moves, state.model, state.centre),
        stage=xp.where(new, stage, state.stage),
        answered=xp.where(new, 0.0, state.answered),
    )


def _coefficients(settings: Settings, state: State, round: Any) -> tuple[Any, Any, Any, Any]:
    """Return α, η, μ and the penalty of the next answered round of accelerated SGD's stage."""
    stage = settings.stage[round]
    k = state.answered + 1.0
    penalty = settings.penalty[stage]
    return 2.0 / (k + 1.0), 4.0 * settings.upsilon[stage] / (k * (k + 1.0)), settings.ridge + penalty, penalty
