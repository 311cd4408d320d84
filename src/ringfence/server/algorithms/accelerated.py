"""Accelerated noisy minibatch SGD (Algorithm 1 of the paper), in one run, in stages, or in localized phases.

One recursion serves them all. A run is a list of stages; a stage begins where the last one ended and has its own
pace υ, penalty λ and centre. In the k-th answered round of a stage, with α = 2/(k+1), η = 4υ/(k(k+1)) and μ the
strong convexity of what is minimised (ridge and penalty),

    w_md = [(1−α)(μ+η)·w_ag + α((1−α)μ+η)·w] / (η + (1−α²)μ)          asked of the silos
    w    ← Prox([αμ·w_md + ((1−α)μ+η)·w − α·g] / (μ+η), α/(μ+η))        the paper's argmin, in closed form
    w_ag ← α·w + (1−α)·w_ag                                            the model

The closed form holds for every closed convex set, because the quadratic it minimises has the same curvature in all
directions. Ridge and penalty hold no record, so their gradients are added here; a lasso stands in the argmin itself,
and Prox, which is the projection without one, is its minimiser (`protocol.proximal`).
"""

from typing import Any, NamedTuple

import numpy as np

from ringfence.protocol.algorithms import Accelerated, Localized, MultiStage, tail_begins
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms.step import Step
from ringfence.server.metric import Found
from ringfence.server.survey import Target

_AVERAGES = {"weighted": 0.0, "last": 1.0, "tail": 2.0}


class Settings(NamedTuple):
    """What the steps depend on: the stage of every round, then one entry per stage, then what all share.

    `recentre` is 1 for a stage whose penalty pulls towards where the stage began, 0 for one that keeps the centre.
    """

    stage: Any
    pace: Any
    penalty: Any
    recentre: Any
    ridge: Any
    average: Any
    tail: Any


class State(NamedTuple):
    """The points w and w_ag, the penalty's centre, the stage and its answered rounds, the sum of the tail's points."""

    point: FloatArray
    model: FloatArray
    centre: FloatArray
    stage: Any
    answered: Any
    total: FloatArray
    mass: Any


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Read the settings from a plan; `smoothness` is a smaller bound on β than the plan's, if one is known."""
    spec = plan.algorithm
    if not isinstance(spec, Accelerated | MultiStage | Localized):
        raise TypeError(f"{spec.name} is not an accelerated algorithm")
    smoothness = min(spec.smoothness, spec.smoothness if smoothness is None else smoothness)
    runs = spec.recursions(plan.steps, plan.ridge, smoothness)
    return Settings(
        stage=np.repeat(np.arange(len(runs)), [run.rounds for run in runs]),
        pace=np.array([run.pace for run in runs]),
        penalty=np.array([run.penalty for run in runs]),
        recentre=np.array([1.0 * run.recentres for run in runs]),
        ridge=plan.ridge,
        average=_AVERAGES[spec.average],
        tail=tail_begins(plan.steps),
    )


def prepared(plan: Plan, found: Found, target: Target) -> None:
    """Say nothing: a survey of features and target betters no step of it."""
    del plan, found, target


def init(start: FloatArray) -> State:
    """Begin at `start`, which must lie in the domain."""
    return State(start, start, start, -1, 0.0, 0.0 * start, 0.0)


def query(settings: Settings, state: State, round: Any) -> FloatArray:
    """Return the weights to ask the silos about: w_md, a convex combination of points of the domain."""
    state = _enter(settings, state, round)
    alpha, eta, mu, _ = _coefficients(settings, state, round)
    whole = eta + (1.0 - alpha**2) * mu
    result: FloatArray = (
        (1.0 - alpha) * (mu + eta) * state.model + alpha * ((1.0 - alpha) * mu + eta) * state.point
    ) / whole
    return result


def step(
    settings: Settings,
    proximal: Step,
    state: State,
    gradient: FloatArray,
    round: Any,
) -> State:
    """Take the accelerated, proximal step of the module's text."""
    asked = query(settings, state, round)
    state = _enter(settings, state, round)
    alpha, eta, mu, penalty = _coefficients(settings, state, round)
    whole = gradient + settings.ridge * asked + penalty * (asked - state.centre)
    moved = (alpha * mu * asked + ((1.0 - alpha) * mu + eta) * state.point - alpha * whole) / (mu + eta)
    point = proximal(moved, alpha / (mu + eta))
    counts = 1.0 * (round >= settings.tail)
    return state._replace(
        point=point,
        model=alpha * point + (1.0 - alpha) * state.model,
        answered=state.answered + 1.0,
        total=state.total + counts * point,
        mass=state.mass + counts,
    )


def output(settings: Settings, state: State) -> FloatArray:
    """Return w_ag, the last w, or the mean of the tail's w (w_ag if no round of the tail was answered)."""
    xp = namespace(state.point)
    counted = xp.asarray(state.mass) > 0
    tail = xp.where(counted, state.total / xp.where(counted, state.mass, 1.0), state.model)
    result: FloatArray = xp.where(
        xp.asarray(settings.average) == _AVERAGES["last"],
        state.point,
        xp.where(xp.asarray(settings.average) == _AVERAGES["tail"], tail, state.model),
    )
    return result


def _enter(settings: Settings, state: State, round: Any) -> State:
    """Begin the round's stage if the state is not in it yet: from w_ag, with a new count and perhaps a new centre."""
    xp = namespace(state.point)
    stage = settings.stage[round]
    new = xp.asarray(stage != state.stage)
    moves = new & xp.asarray(settings.recentre[stage] > 0)
    return state._replace(
        point=xp.where(new, state.model, state.point),
        centre=xp.where(moves, state.model, state.centre),
        stage=xp.where(new, stage, state.stage),
        answered=xp.where(new, 0.0, state.answered),
    )


def _coefficients(settings: Settings, state: State, round: Any) -> tuple[Any, Any, Any, Any]:
    """Return α, η, μ and the penalty of the next answered round of the stage."""
    stage = settings.stage[round]
    k = state.answered + 1.0
    penalty = settings.penalty[stage]
    return 2.0 / (k + 1.0), 4.0 * settings.pace[stage] / (k * (k + 1.0)), settings.ridge + penalty, penalty
