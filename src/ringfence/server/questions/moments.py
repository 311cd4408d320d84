"""The moments tell every feature's mean and standard deviation."""

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Moments
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.questions.findings import with_findings


def argument(question: Moments, learned: Learned, step: int) -> FloatArray:
    """Return the start: the answer does not depend on it."""
    del question, step
    return np.zeros(learned.plan.dimension)


def receive(question: Moments, learned: Learned, answers: Answers) -> Learned:
    """Keep what was found."""
    return with_findings(question, learned, answers)


def scales(plan: Plan, found: Findings) -> dict[str, tuple[float, float]]:
    """Return every encoded feature's mean and standard deviation, by name.

    A numeric target stands under its own name. Noise may leave a variance at or below 0; it then counts as 0.
    """
    names = [*plan.data.feature_names, *([plan.data.target] if len(found.statistic) > 2 * plan.data.width else [])]
    unit = np.full(len(names), plan.data.feature_norm)
    unit[plan.data.width :] = plan.data.target_bound
    mean, square = np.split(found.statistic, 2)
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return {name: (float(m * u), float(s * u)) for name, m, s, u in zip(names, mean, deviation, unit, strict=True)}
