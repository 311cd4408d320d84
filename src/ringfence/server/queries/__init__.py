"""How the server asks queries and uses the answers: one file for each query that needs one, of the same name.

Everything here is post-processing of noisy messages, at no privacy cost.
"""

from typing import Any, Protocol

import numpy as np

from ringfence import protocol
from ringfence.protocol import BaseQuery, FloatArray, Query
from ringfence.server.queries import (
    column_distributions,
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
    protocol.ColumnDistributions: column_distributions,
    protocol.Comparison: comparison,
    protocol.Curvature: curvature,
    protocol.Evaluation: evaluation,
    protocol.FeatureMeans: feature_means,
    protocol.FeatureMoments: feature_moments,
    protocol.Gradient: gradient,
    protocol.PreconditionedGradient: gradient,
    protocol.SecondMoments: second_moments,
}


def requested(query: Query, server: ServerState, round: int) -> FloatArray:
    """Return what a request carries: the knots of open curves, if the answer depends on them, and the argument."""
    argument = handler_of(query).argument(query, server, round)
    if not query.knots(server.plan):
        return argument
    return np.concatenate(
        [np.broadcast_to(server.knots, (*argument.shape[:-1], server.knots.shape[-1])), argument], axis=-1
    )


def handler_of(query: Query) -> QueryAtServer:
    """Return what handles the query at the server: unless the table says otherwise, its statistic is stored."""
    return HANDLERS.get(type(query), findings)
