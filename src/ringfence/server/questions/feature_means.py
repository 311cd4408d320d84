"""Feature means: the rounds' means together tell the main direction, along which gradients are cut less."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import FeatureMeans
from ringfence.protocol.questions.feature_means import Window
from ringfence.server.algorithms import algorithm_of
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.metric import main_direction
from ringfence.server.questions import findings
from ringfence.server.survey import look_edge
from ringfence.server.target_looks import TargetLooks


@dataclass(frozen=True, kw_only=True)
class Surveyed(Findings):
    """The statistic, averaged over the rounds, and how the next round looks at the target."""

    is_plain: ClassVar[bool] = False
    target: TargetLooks


def argument(question: FeatureMeans, learned: Learned, step: int) -> FloatArray:
    """Return the window."""
    del step
    target = _looks(question, learned)
    return Window(target.lower, target.upper).packed()


def receive(question: FeatureMeans, learned: Learned, answers: Answers) -> Learned:
    """Look closer at the target next time, and let the algorithm's steps rely on what was seen so far."""
    plan, before = learned.plan, learned.findings.get(question.name)
    found = findings.least_noise(plan, answers) or findings.receive(question, learned, answers).findings[question.name]
    told = found.statistic[plan.data.width + 1 :]
    target, looks = _looks(question, learned).seen(plan, told, found.noise)
    statistic, noise = found.statistic, found.noise
    if isinstance(before, Surveyed):
        share = noise**-2 / (noise**-2 + before.noise**-2)
        statistic = share * statistic + (1 - share) * before.statistic
        noise = float(noise * share**0.5)
    surveyed = Surveyed(statistic, noise, found.weight, found.each, target=looks)
    learned = replace(learned, findings={**learned.findings, question.name: surveyed})
    mean, trace = np.split(statistic[: plan.data.width + 1], [plan.data.width])
    seen = main_direction(mean, float(trace[0]), noise=noise, edge=look_edge(plan), norm=plan.data.feature_norm)
    prepared = algorithm_of(plan).prepared(plan, seen, target)
    return learned if prepared is None else replace(learned, settings=prepared[0], state=prepared[1])


def _looks(question: FeatureMeans, learned: Learned) -> TargetLooks:
    found = learned.findings.get(question.name)
    return found.target if isinstance(found, Surveyed) else TargetLooks.none(learned.plan)
