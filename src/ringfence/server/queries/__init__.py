"""How the server asks queries and uses the answers: one file for each query that needs one, of the same name.

Everything here is post-processing of noisy messages, at no privacy cost.
"""

from typing import Any, Protocol

from ringfence import protocol
from ringfence.protocol import BaseQuery, FloatArray, Query
from ringfence.server.queries import (
    comparison,
    curvature,
    evaluation,
    feature_means,
    feature_moments,
    findings,
    gradient,
    second_moments,
)
from ringfence.server.state import RoundAnswers, ServerState


class QueryAtServer(Protocol):
    """The functions of a query's file."""

    def argument(self, query: Any, server: ServerState, round: int) -> FloatArray:
        """Return a query's argument for the request of a round of the plan."""

    def receive(self, query: Any, server: ServerState, answers: RoundAnswers) -> ServerState:
        """Return the server's state after a round with answers to a query."""


HANDLERS: dict[type[BaseQuery], QueryAtServer] = {
    protocol.Comparison: comparison,
    protocol.Curvature: curvature,
    protocol.Evaluation: evaluation,
    protocol.FeatureMeans: feature_means,
    protocol.FeatureMoments: feature_moments,
    protocol.Gradient: gradient,
    protocol.PreconditionedGradient: gradient,
    protocol.SecondMoments: second_moments,
}


def handler_of(query: Query) -> QueryAtServer:
    """Return what handles the query at the server: unless the table says otherwise, its statistic is stored."""
    return HANDLERS.get(type(query), findings)
