"""Gradients, also along axes: the plan's algorithm takes a step."""

from dataclasses import replace

import numpy as np

from ringfence.protocol import FloatArray, Gradient, Plan, PreconditionedGradient
from ringfence.server.algorithms import algorithm_of
from ringfence.server.state import RoundAnswers, ServerState


def argument(query: Gradient | PreconditionedGradient, server: ServerState, round: int) -> FloatArray:
    """Return the weights at which the server's algorithm asks for the gradient, and the axes that it is along."""
    weights = algorithm_of(server.plan).query_weights(server.settings, server.state, _step(server.plan, round))
    if isinstance(query, PreconditionedGradient):
        return np.concatenate([weights, server.settings.axes.packed()])
    return weights


def receive(query: Gradient | PreconditionedGradient, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Take the algorithm's step along the answered gradient."""
    plan, algorithm, step = server.plan, algorithm_of(server.plan), _step(server.plan, answers.round)
    stepped = algorithm.step(server.settings, plan.proximal, server.state, answers.mean, step)
    return replace(server, state=stepped)


def _step(plan: Plan, round: int) -> int:
    """Return how many training rounds come before a training round of the plan."""
    _, number, within = plan.place(round)
    return sum(stage.rounds for stage in plan.stages[:number] if stage.query.trains) + within
