"""Noisy minibatch SGD (Algorithm 2 of the paper; Algorithm 7 for unbalanced silos)."""

from typing import NamedTuple

from ringfence.protocol import FloatArray, MinibatchSGD, Plan
from ringfence.protocol.arrays import Number, namespace
from ringfence.protocol.plan.domain import ProximalStep
from ringfence.server.algorithms.survey import TargetEstimate
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate


class Settings(NamedTuple):
    """Step size, momentum, rounds to skip in the average, growth of its weights, and ridge."""

    step: Number
    momentum: Number
    skip: Number
    growth: Number
    ridge: Number


class State(NamedTuple):
    """The iterate, the velocity, and the weighted sum of the iterates up to round `last`, with its total weight."""

    weights: FloatArray
    velocity: FloatArray
    total: FloatArray
    mass: Number
    last: Number


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Read minibatch SGD's settings from a plan. A smaller `smoothness` than the plan's changes nothing."""
    spec = plan.algorithm
    if not isinstance(spec, MinibatchSGD):
        raise TypeError(f"{spec.name} is not minibatch SGD")
    return Settings(spec.step, spec.momentum, spec.skip, spec.growth, plan.ridge)


def after_survey(plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate) -> None:
    """Return None: minibatch SGD uses no survey."""


def init(start: FloatArray) -> State:
    """Start minibatch SGD at `start`, which must lie in the domain."""
    return State(start, 0.0 * start, 0.0 * start, 0.0, 0.0)


def query_weights(settings: Settings, state: State, round: Number) -> FloatArray:
    """Return minibatch SGD's iterate."""
    return state.weights


def step(settings: Settings, proximal: ProximalStep, state: State, gradient: FloatArray, round: Number) -> State:
    """Take minibatch SGD's step: v ← momentum·v − step·g, w ← Prox(w + v, step); without a lasso, a projected one.

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
    """Return the weighted average of minibatch SGD's iterates, or the last one if no round counted."""
    return mean_of_counted(state.total, state.mass, state.weights)


def mean_of_counted(total: FloatArray, mass: Number, otherwise: FloatArray) -> FloatArray:
    """Return the average of the iterates that counted, or another vector if none did."""
    xp = namespace(otherwise)
    counted = xp.asarray(mass) > 0
    result: FloatArray = xp.where(counted, total / xp.where(counted, mass, 1.0), otherwise)
    return result
