"""Gradients: the plan's algorithm takes a step."""

from dataclasses import replace

from ringfence.protocol import FloatArray, Query
from ringfence.server.algorithms import algorithm_of
from ringfence.server.state import RoundAnswers, ServerState


def argument(query: Query, server: ServerState, step: int) -> FloatArray:
    """Return the weights at which the server's algorithm asks for the gradient."""
    return algorithm_of(server.plan).query_weights(server.settings, server.state, step)


def receive(query: Query, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Take the algorithm's step along the answered gradient."""
    plan, algorithm = server.plan, algorithm_of(server.plan)
    stepped = algorithm.step(server.settings, plan.proximal, server.state, answers.mean, answers.step)
    return replace(server, state=stepped)
