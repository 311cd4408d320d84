"""The curvature: a bound on the smoothness β of the averaged loss, for longer steps than the worst case allows."""

from dataclasses import replace

from ringfence.protocol import Curvature, Plan
from ringfence.server.algorithms import algorithm_of
from ringfence.server.queries import findings
from ringfence.server.queries.findings import argument
from ringfence.server.state import Findings, RoundAnswers, ServerState

__all__ = ["argument", "receive", "smoothness"]


def receive(query: Curvature, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Store the finding, and set the algorithm's steps by it."""
    server = findings.receive(query, server, answers)
    beta = smoothness(query, server.plan, server.findings[query.name])
    return replace(server, settings=algorithm_of(server.plan).settings(server.plan, beta))


def smoothness(query: Curvature, plan: Plan, found: Findings) -> float:
    """Return an upper bound on the averaged loss's β.

    The average of the silos' largest eigenvalues is at least the largest eigenvalue of the averaged matrix (a convex
    function), and β of a linear model's loss is proportional to it; the margin covers the noise. A silo that did not
    answer counts with the largest eigenvalue that its features can have.
    """
    largest = plan.data.feature_norm**2
    eigenvalue = max(float(found.statistic[0]), 0.0) + query.margin * found.noise
    everybody = found.weight * eigenvalue + max(1.0 - found.weight, 0.0) * largest
    return (plan.constants.smoothness - plan.ridge) * min(everybody, largest) / largest
