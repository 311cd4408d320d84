"""What the server makes of the silos' answers to a survey: functions of noisy messages, so free of further cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan


@dataclass(frozen=True)
class Findings:
    """The answering silos' average of the statistic, the standard deviation of the noise in each number of it, and the
    weight of the silos that answered, of 1 in all."""

    statistic: FloatArray
    noise: float
    weight: float = 1.0


def findings(plan: Plan, mean: FloatArray, answered: Sequence[str]) -> Findings:
    """Put the average beside its noise; `mean` is the server's usual (N/M)·Σ p_i·s_i over the M that answered.

    That is unbiased for a sum, but its weights add up to 1 only if everybody answered; here they are made to.
    """
    terms = [terms for terms in plan.silos if terms.name in answered]
    weight = math.fsum(t.weight for t in terms)
    noise = math.hypot(*(t.weight * t.survey_sigma for t in terms if t.survey_sigma))
    return Findings(mean * len(terms) / (len(plan.silos) * weight), noise / weight, weight)


def smoothness(plan: Plan, found: Findings) -> float | None:
    """Return a bound on the averaged loss's β that the survey supports; None if it asked for something else.

    The silos' largest eigenvalues, averaged, are at least the largest eigenvalue of the averaged matrix (it is a convex
    function), and β of a linear model's loss grows in proportion; the margin covers the noise. A silo that did not
    answer counts with the largest eigenvalue that its features can have.
    """
    if plan.survey is None or plan.survey.statistic != "curvature":
        return None
    largest = plan.data.feature_norm**2
    eigenvalue = max(float(found.statistic[0]), 0.0) + plan.survey.margin * found.noise
    everybody = found.weight * eigenvalue + max(1.0 - found.weight, 0.0) * largest
    return (plan.constants.smoothness - plan.ridge) * min(everybody, largest) / largest


def scales(plan: Plan, found: Findings) -> dict[str, tuple[float, float]]:
    """Return every encoded feature's mean and standard deviation, by name, from a survey of moments.

    A numeric target stands under its own name. Noise may leave a variance at or below 0; it then counts as 0.
    """
    names = [*plan.data.feature_names, *([plan.data.target] if len(found.statistic) > 2 * plan.data.width else [])]
    unit = np.full(len(names), plan.data.feature_norm)
    unit[plan.data.width :] = plan.data.target_bound
    mean, square = np.split(found.statistic, 2)
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    return {name: (float(m * u), float(s * u)) for name, m, s, u in zip(names, mean, deviation, unit, strict=True)}
