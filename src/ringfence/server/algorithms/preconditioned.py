"""Heavy-ball descent along axes that a survey found or a schema suggests: clipped rounds where features vary alike.

With axes A (a row each), momentum m, step η, and g the mean of the records' gradients along the axes,

    w ← Proj((I + η·ridge·AᵀA)⁻¹ (w + m·(w − w_before) − η·Aᵀg))          the model is the mean of the last points

which is a step in the metric AᵀA; the ridge, which holds no record, is taken implicitly, so that no strength of it is
too much for the step. Where no survey is made, or none was answered, axes, clip and step are those for features and a
target as the schema lets one expect them.
"""

from typing import Any, NamedTuple

from ringfence.protocol.algorithms import Preconditioned
from ringfence.protocol.arrays import FloatArray, namespace
from ringfence.protocol.axes import Axes
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms.step import Step
from ringfence.server.metric import Found
from ringfence.server.survey import Target, decided, expected, points_averaged


class Settings(NamedTuple):
    """What the steps depend on."""

    axes: Axes
    step: float
    momentum: float
    pull: float
    skip: Any


class State(NamedTuple):
    """Where the next round is asked, where the last one was, and the sum of the points that count, and their number."""

    weights: FloatArray
    before: FloatArray
    total: FloatArray
    count: Any


def _spec(plan: Plan) -> Preconditioned:
    if not isinstance(plan.algorithm, Preconditioned):
        raise TypeError(f"{plan.algorithm.name} is not preconditioned")
    return plan.algorithm


def settings(plan: Plan, smoothness: float | None = None) -> Settings:
    """Return the settings of a server that knows nothing yet but the schema."""
    del smoothness
    return prepared(plan, *expected(plan, _spec(plan)))[0]


def prepared(plan: Plan, found: Found, target: Target) -> tuple[Settings, State]:
    """Return the settings and the state that a survey of the features leads to."""
    momentum = _spec(plan).momentum
    axes, step, start = decided(plan, found, target, momentum)
    skip = plan.steps - points_averaged(plan.loss, plan.steps)
    return Settings(axes, step, momentum, step * plan.ridge, skip), init(start)


def init(start: FloatArray) -> State:
    """Begin at `start`, which must lie in the domain."""
    return State(start, start, 0.0 * start, 0.0)


def query(settings: Settings, state: State, round: Any) -> FloatArray:
    """Return the weights to ask the silos about."""
    del settings, round
    return state.weights


def step(
    settings: Settings,
    proximal: Step,
    state: State,
    gradient: FloatArray,
    round: Any,
) -> State:
    """Take a projected step of the module's text; `gradient` is along the axes."""
    shape = (settings.axes.width, -1)
    moved = settings.momentum * (state.weights - state.before).reshape(shape)
    pulled = settings.step * settings.axes.back(gradient.reshape(shape))
    weights = settings.axes.shrunk(state.weights.reshape(shape) + moved - pulled, settings.pull)
    moved_to, counts = proximal(weights.reshape(-1), settings.step), 1.0 * (round >= settings.skip)
    return State(moved_to, state.weights, state.total + counts * moved_to, state.count + counts)


def output(settings: Settings, state: State) -> FloatArray:
    """Return the mean of the points that count, or the last point if none does."""
    del settings
    xp = namespace(state.weights)
    counted = xp.asarray(state.count) > 0
    result: FloatArray = xp.where(counted, state.total / xp.where(counted, state.count, 1.0), state.weights)
    return result
