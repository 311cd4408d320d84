"""Gradients along axes: the plan's algorithm takes a step."""

import numpy as np

from ringfence.protocol import FloatArray, PreconditionedGradient
from ringfence.server.queries.gradient import argument as query_weights
from ringfence.server.queries.gradient import receive
from ringfence.server.state import ServerState

__all__ = ["argument", "receive"]


def argument(query: PreconditionedGradient, server: ServerState, step: int) -> FloatArray:
    """Return the weights and the axes."""
    return np.concatenate([query_weights(query, server, step), server.settings.axes.packed()])
