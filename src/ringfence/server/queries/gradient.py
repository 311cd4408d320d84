"""Gradients, also along axes: the plan's algorithm takes a step."""

from dataclasses import replace

import numpy as np

from ringfence.protocol import FloatArray, Gradient, PreconditionedGradient
from ringfence.server.algorithms import algorithm_of
from ringfence.server.state import RoundAnswers, ServerState


def argument(query: Gradient | PreconditionedGradient, server: ServerState, step: int) -> FloatArray:
    """Return the weights at which the server's algorithm asks for the gradient, and the axes that it is along."""
    weights = algorithm_of(server.plan).query_weights(server.settings, server.state, step)
    if isinstance(query, PreconditionedGradient):
        return np.concatenate([weights, server.settings.axes.packed()])
    return weights


def receive(query: Gradient | PreconditionedGradient, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Take the algorithm's step along the answered gradient."""
    plan, algorithm = server.plan, algorithm_of(server.plan)
    stepped = algorithm.step(server.settings, plan.proximal, server.state, answers.mean, answers.step)
    return replace(server, state=stepped)
