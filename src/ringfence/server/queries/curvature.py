"""The curvature: a bound on the smoothness β of the averaged loss, for longer steps than the worst case allows."""

from dataclasses import replace

import numpy as np

from ringfence.protocol import Curvature, FloatArray, Plan
from ringfence.server.algorithms import algorithm_of
from ringfence.server.queries import findings
from ringfence.server.queries.findings import argument
from ringfence.server.state import Findings, RoundAnswers, ServerState

__all__ = ["argument", "receive", "smoothness"]


def receive(query: Curvature, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Store the finding, and set the algorithm's steps by it."""
    server = findings.receive(query, server, answers)
    beta = smoothness(query, server.plan, server.findings[query.name])
    settings = [algorithm_of(server.plan).settings(server.plan, float(own)) for own in beta.flat]
    together = type(settings[0])(*(np.stack(values) for values in zip(*settings, strict=True)))
    return replace(server, settings=together if beta.ndim else settings[0])


def smoothness(query: Curvature, plan: Plan, found: Findings) -> FloatArray:
    """Return an upper bound on the averaged loss's β.

    The average of the silos' largest eigenvalues is at least the largest eigenvalue of the averaged matrix (a convex
    function), and β of a linear model's loss is proportional to it; the margin covers the noise. A silo that did not
    answer counts with the largest eigenvalue that its features can have.
    """
    largest = plan.data.feature_norm**2
    eigenvalue = np.maximum(found.statistic[..., 0], 0.0) + query.margin * found.noise
    everybody = found.weight * eigenvalue + max(1.0 - found.weight, 0.0) * largest
    return np.asarray((plan.constants.smoothness - plan.ridge) * np.minimum(everybody, largest) / largest)
