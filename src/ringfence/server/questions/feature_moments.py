"""Feature moments: each round looks along axes that the rounds before found, and the last ones decide how to train."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import FeatureMoments
from ringfence.protocol.questions.feature_moments import WEIGHT, Viewed
from ringfence.server import survey
from ringfence.server.algorithms import algorithm_of
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.metric import directions
from ringfence.server.questions import findings

REACH = 2.5
"""A window reaches this many standard deviations to either side of the centre, and as far as noise may move that."""


@dataclass(frozen=True, kw_only=True)
class Surveyed(Findings):
    """The last round's statistic, and how the next one looks; `shares` are the classes', summed over `rounds`."""

    is_plain: ClassVar[bool] = False
    view: Viewed
    rounds: int = 0
    shares: FloatArray


def argument(question: FeatureMoments, learned: Learned, step: int) -> FloatArray:
    """Return how the round looks."""
    del step
    return _before(question, learned).view.packed()


def receive(question: FeatureMoments, learned: Learned, answers: Answers) -> Learned:
    """Look closer next time, and let the algorithm's steps rely on what was seen so far."""
    before, plan = _before(question, learned), learned.plan
    found = findings.least_noise(plan, answers) or findings.receive(question, learned, answers).findings[question.name]
    triangle, rest = np.split(found.statistic, [found.statistic.size - question.bins(plan)])
    seen = directions(before.view.axes, matrix(triangle), found.noise)
    shares, noise, rounds = rest / WEIGHT, found.noise / WEIGHT, before.rounds + 1
    if plan.loss.target_kind == "number":
        edges = np.linspace(before.view.lower, before.view.upper, len(shares) + 1)
        target = survey.of_number(shares, edges, noise)
    else:
        shares = before.shares + shares
        target = survey.of_labels(shares / rounds, noise / rounds**0.5)
    closer = seen.whitened(seen.edge)
    view = Viewed(closer.axes / closer.norm, *_window(plan, target))
    surveyed = Surveyed(found.statistic, found.noise, found.weight, found.each, view=view, rounds=rounds, shares=shares)
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


def _window(plan: Plan, target: survey.Target) -> tuple[float, float]:
    """Return where to look at the target next, within its public bounds."""
    if plan.loss.target_kind != "number":
        return -1.0, 1.0
    bound, centre = plan.data.target_bound, float(target.centre[0])
    reach = REACH * target.spread + target.uncertainty**0.5
    return max(-bound, centre - reach), min(bound, centre + reach)


def _before(question: FeatureMoments, learned: Learned) -> Surveyed:
    found = learned.findings.get(question.name)
    if isinstance(found, Surveyed):
        return found
    data = learned.plan.data
    view = Viewed(np.eye(data.width) / data.feature_norm, -data.target_bound, data.target_bound)
    return Surveyed(np.zeros(0), 0.0, view=view, shares=np.zeros(question.bins(learned.plan)))
