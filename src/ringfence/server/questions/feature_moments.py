"""Feature moments: each round looks along axes that the rounds before found, and the last ones decide how to train."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import FeatureMoments
from ringfence.protocol.questions.feature_moments import Viewed
from ringfence.server.algorithms import algorithm_of
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.metric import directions
from ringfence.server.questions import findings
from ringfence.server.target_looks import TargetLooks


@dataclass(frozen=True, kw_only=True)
class Surveyed(Findings):
    """The last round's statistic, and how the next one looks: along which axes, and at which part of the target."""

    is_plain: ClassVar[bool] = False
    axes: FloatArray
    target: TargetLooks


def argument(question: FeatureMoments, learned: Learned, step: int) -> FloatArray:
    """Return how the round looks."""
    del step
    before = _before(question, learned)
    return Viewed(before.axes, before.target.lower, before.target.upper).packed()


def receive(question: FeatureMoments, learned: Learned, answers: Answers) -> Learned:
    """Look closer next time, and let the algorithm's steps rely on what was seen so far."""
    before, plan = _before(question, learned), learned.plan
    found = findings.least_noise(plan, answers) or findings.receive(question, learned, answers).findings[question.name]
    triangle, rest = np.split(found.statistic, [found.statistic.size - question.bins(plan)])
    seen = directions(before.axes, matrix(triangle), found.noise)
    target, looks = before.target.seen(plan, rest, found.noise)
    closer = seen.whitened(seen.edge)
    axes = closer.axes.scaled(1 / closer.norm).packed().reshape(plan.data.width, -1)
    surveyed = Surveyed(found.statistic, found.noise, found.weight, found.each, axes=axes, target=looks)
    learned = replace(learned, findings={**learned.findings, question.name: surveyed})
    prepared = algorithm_of(plan).prepared(plan, seen, target)
    return learned if prepared is None else replace(learned, settings=prepared[0], state=prepared[1])


def matrix(triangle: FloatArray) -> FloatArray:
    """Return the symmetric matrix that a triangle tells, what is off its diagonal times √½."""
    width = int((2 * triangle.size) ** 0.5)
    one, other = np.triu_indices(width)
    upper = np.zeros((width, width))
    upper[one, other] = np.where(one == other, triangle / 2, triangle * 0.5**0.5)
    result: FloatArray = upper + upper.T
    return result


def _before(question: FeatureMoments, learned: Learned) -> Surveyed:
    found = learned.findings.get(question.name)
    if isinstance(found, Surveyed):
        return found
    data = learned.plan.data
    axes = np.eye(data.width) / data.feature_norm
    return Surveyed(np.zeros(0), 0.0, axes=axes, target=TargetLooks.none(learned.plan))
