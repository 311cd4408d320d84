"""The curvature bounds β of the averaged loss, so that steps need not assume the worst."""

from dataclasses import replace

from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Curvature
from ringfence.server.algorithms import algorithm_of
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.questions import findings
from ringfence.server.questions.findings import argument

__all__ = ["argument", "receive", "smoothness"]


def receive(question: Curvature, learned: Learned, answers: Answers) -> Learned:
    """Keep what was found, and let the algorithm's steps rely on it."""
    learned = findings.receive(question, learned, answers)
    beta = smoothness(question, learned.plan, learned.findings[question.name])
    return replace(learned, settings=algorithm_of(learned.plan).settings(learned.plan, beta))


def smoothness(question: Curvature, plan: Plan, found: Findings) -> float:
    """Return a bound on the averaged loss's β that the answers support.

    The silos' largest eigenvalues, averaged, are at least the largest eigenvalue of the averaged matrix (it is a convex
    function), and β of a linear model's loss grows in proportion; the margin covers the noise. A silo that did not
    answer counts with the largest eigenvalue that its features can have.
    """
    largest = plan.data.feature_norm**2
    eigenvalue = max(float(found.statistic[0]), 0.0) + question.margin * found.noise
    everybody = found.weight * eigenvalue + max(1.0 - found.weight, 0.0) * largest
    return (plan.constants.smoothness - plan.ridge) * min(everybody, largest) / largest
