"""Noisy minibatch SGD (Algorithm 2 of the paper; Algorithm 7 for unbalanced silos)."""

from typing import NamedTuple, TypeAlias

from ringfence.protocol.algorithms import MinibatchSGD
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms.step import Step
from ringfence.server.metric import Found
from ringfence.server.survey import Target

Number: TypeAlias = FloatArray | float
"""A number, or in the simulator an array of them."""


class Settings(NamedTuple):
    """What the steps depend on."""

    step: Number
    momentum: Number
    skip: Number
    growth: Number
    ridge: Number


class State(NamedTuple):
    """Where the next round is asked, the velocity, and the weighted sum of the query points up to round `last`."""

    weights: FloatArray
    velocity: FloatArray
    total: FloatArray
    mass: Number
    last: Number


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Read the settings from a plan. A smaller `smoothness` than the plan's changes nothing: the step is given."""
    del smoothness
    spec = plan.algorithm
    if not isinstance(spec, MinibatchSGD):
        raise TypeError(f"{spec.name} is not minibatch SGD")
    return Settings(spec.step, spec.momentum, spec.skip, spec.growth, plan.ridge)


def prepared(plan: Plan, found: Found, target: Target) -> None:
    """Say nothing: a survey of features and target betters no step of it."""
    del plan, found, target


def init(start: FloatArray) -> State:
    """Begin at `start`, which must lie in the domain."""
    return State(start, 0.0 * start, 0.0 * start, 0.0, 0.0)


def query(settings: Settings, state: State, round: Number) -> FloatArray:
    """Return the weights to ask the silos about."""
    del settings, round
    return state.weights


def step(
    settings: Settings,
    proximal: Step,
    state: State,
    gradient: FloatArray,
    round: Number,
) -> State:
    """Take a proximal step: v ← momentum·v − step·g, w ← Prox(w + v, step); without a lasso, a projected one.

    The average weighs round r by growth^r, in units of the last round counted so that it cannot overflow.
    """
    counts = 1.0 * (round >= settings.skip)
    fade = settings.growth ** (state.last - round)
    velocity = settings.momentum * state.velocity - settings.step * (gradient + settings.ridge * state.weights)
    return State(
        proximal(state.weights + velocity, settings.step),
        velocity,
        fade * state.total + counts * state.weights,
        fade * state.mass + counts,
        1.0 * round,
    )


def output(settings: Settings, state: State) -> FloatArray:
    """Return the weighted average of the query points, or the last point if no round counted."""
    del settings
    xp = namespace(state.weights)
    counted = xp.asarray(state.mass) > 0
    result: FloatArray = xp.where(counted, state.total / xp.where(counted, state.mass, 1.0), state.weights)
    return result
