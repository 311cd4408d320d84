"""Server algorithms: settings, init, query_weights, step and output as pure functions over a frozen state.

They use only operations that NumPy and JAX share, so one file serves the plain loop, the compiled simulator, a
deployed server and a silo in peer-to-peer mode.
"""

from typing import Any, Protocol

from ringfence.protocol import FloatArray, Plan
from ringfence.protocol.plan.domain import ProximalStep
from ringfence.server.algorithms import accelerated, minibatch, preconditioned
from ringfence.server.algorithms.survey import TargetEstimate
from ringfence.server.algorithms.whitening import FeatureMomentsEstimate


class Algorithm(Protocol):
    """The functions of an algorithm's module."""

    def settings(self, plan: Plan, smoothness: float | None = None) -> Any:
        """Read an algorithm's settings from a plan; `smoothness` is a smaller bound on β than the plan's, if known."""

    def after_survey(
        self, plan: Plan, features: FeatureMomentsEstimate, target: TargetEstimate
    ) -> tuple[Any, Any] | None:
        """Return settings and state chosen from a survey of features and target; None if it uses no survey."""

    def init(self, start: FloatArray) -> Any:
        """Return an algorithm's state before the first round."""

    def query_weights(self, settings: Any, state: Any, round: Any) -> FloatArray:
        """Return the weights at which an algorithm asks the silos."""

    def step(self, settings: Any, proximal: ProximalStep, state: Any, gradient: FloatArray, round: Any) -> Any:
        """Return an algorithm's state after a round with answers."""

    def output(self, settings: Any, state: Any) -> FloatArray:
        """Return the model of an algorithm's state."""


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
