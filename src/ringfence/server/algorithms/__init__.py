"""Server algorithms: settings, init, query, step, output as pure functions over a frozen state.

They use only operations that NumPy and JAX share, so one file serves the plain loop, the compiled simulator, a
deployed server and a silo in peer-to-peer mode.
"""

from typing import Any, Protocol

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms import accelerated, minibatch, preconditioned
from ringfence.server.algorithms.step import Step
from ringfence.server.metric import Found
from ringfence.server.survey import Target


class Algorithm(Protocol):
    """What a module of an algorithm offers."""

    def settings(self, plan: Plan, smoothness: float | None = None) -> Any:
        """Read the settings from a plan; `smoothness` is a smaller bound on β than the plan's, if one is known."""

    def prepared(self, plan: Plan, found: Found, target: Target) -> tuple[Any, Any] | None:
        """Return the settings and the state that a survey of features and target leads to, if they better the steps."""

    def init(self, start: FloatArray) -> Any:
        """Return the state before the first round."""

    def query(self, settings: Any, state: Any, round: Any) -> FloatArray:
        """Return the weights to ask the silos about."""

    def step(self, settings: Any, proximal: Step, state: Any, gradient: FloatArray, round: Any) -> Any:
        """Return the state after a round in which somebody answered; `proximal` is the plan's."""

    def output(self, settings: Any, state: Any) -> FloatArray:
        """Return the model."""


ALGORITHMS: dict[str, Algorithm] = {
    "minibatch-sgd": minibatch,
    "accelerated": accelerated,
    "multi-stage": accelerated,
    "localized": accelerated,
    "preconditioned": preconditioned,
}


def algorithm_of(plan: Plan) -> Algorithm:
    """Return the plan's algorithm."""
    return ALGORITHMS[plan.algorithm.name]
