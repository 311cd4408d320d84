"""Heavy-ball descent along whitening axes, from a survey or the schema's prior.

With axes A (a row each), momentum m, step η, and g the mean of the records' gradients along the axes,

    w ← Proj((I + η·ridge·AᵀA)⁻¹ (w + m·(w − w_before) − η·Aᵀg))          the model is the mean of the last iterates

which is a step in the metric AᵀA. The step of the ridge, which depends on no record, is implicit, so that it is stable
for any ridge. Without a survey, or without answers to it, axes, clip and step size come from the schema's prior.
"""

from typing import Any, NamedTuple

from ringfence.protocol import Axes, FloatArray, Plan, Preconditioned
from ringfence.protocol.arrays import Number
from ringfence.protocol.plan.domain import ProximalStep
from ringfence.server.algorithms.minibatch import mean_of_counted
from ringfence.server.algorithms.survey import TargetEstimate, averaged_iterates, choose_descent, prior_of_survey
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate


class Settings(NamedTuple):
    """Axes, step size, momentum, shrinkage by the ridge (None without one), and rounds to skip in the average."""

    axes: Axes
    step: Number
    momentum: float
    shrinkage: Number | None
    skip: Any


class State(NamedTuple):
    """The iterate, the one before, and the sum and number of the iterates to average."""

    weights: FloatArray
    previous: FloatArray
    total: FloatArray
    count: Any


def _spec(plan: Plan) -> Preconditioned:
    """Return the plan's preconditioned descent; TypeError for another algorithm."""
    if not isinstance(plan.algorithm, Preconditioned):
        raise TypeError(f"{plan.algorithm.name} is not preconditioned")
    return plan.algorithm


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Return preconditioned descent's settings without a survey, from the schema's prior."""
    return after_survey(plan, *prior_of_survey(plan, _spec(plan)))[0]


def after_survey(plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate) -> tuple[Settings, State]:
    """Return preconditioned descent's settings and the start that minimise the expected error after a survey."""
    momentum = _spec(plan).momentum
    axes, step, start = choose_descent(plan, features, target, momentum)
    skip = plan.steps - averaged_iterates(plan.loss, plan.steps)
    return Settings(axes, step, momentum, step * plan.ridge if plan.ridge else None, skip), init(start)


def init(start: FloatArray) -> State:
    """Start preconditioned descent at `start`, which must lie in the domain."""
    return State(start, start, 0.0 * start, 0.0)


def query_weights(settings: Settings, state: State, round: Any) -> FloatArray:
    """Return preconditioned descent's iterate."""
    return state.weights


def step(settings: Settings, proximal: ProximalStep, state: State, gradient: FloatArray, round: Any) -> State:
    """Take preconditioned descent's projected step above; `gradient` is along the axes."""
    shape = (settings.axes.width, -1)
    moved = settings.momentum * (state.weights - state.previous).reshape(shape)
    descent = settings.step * settings.axes.back(gradient.reshape(shape))
    weights = state.weights.reshape(shape) + moved - descent
    if settings.shrinkage is not None:
        weights = settings.axes.shrunk(weights, settings.shrinkage)
    moved_to, counts = proximal(weights.reshape(-1), settings.step), 1.0 * (round >= settings.skip)
    return State(moved_to, state.weights, state.total + counts * moved_to, state.count + counts)


def output(settings: Settings, state: State) -> FloatArray:
    """Return the mean of preconditioned descent's last iterates, or the last one if none counted."""
    return mean_of_counted(state.total, state.count, state.weights)
