"""The survey of feature means: their average over the rounds estimates the main direction."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ringfence.protocol import FeatureMeans, FloatArray
from ringfence.server.algorithms.survey import TargetSurvey, survey_noise_edge
from ringfence.server.algorithms.whitening import main_direction
from ringfence.server.queries import findings
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True, kw_only=True)
class MeansSurvey(Findings):
    """The statistic, averaged over the rounds, and the state of the target's survey."""

    is_plain: ClassVar[bool] = False
    target: TargetSurvey


def argument(query: FeatureMeans, server: ServerState, round: int) -> FloatArray:
    """Return the target's window."""
    target = _target_survey(query, server)
    return np.stack([target.lower, target.upper], axis=-1)


def receive(query: FeatureMeans, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Average the rounds, narrow the target's window, and set the algorithm's steps by the estimates."""
    plan, before = server.plan, server.findings.get(query.name)
    finding = findings.least_noise(plan, answers) or findings.receive(query, server, answers).findings[query.name]
    histogram = finding.statistic[..., plan.data.width + 1 :]
    target, survey = _target_survey(query, server).updated(plan, histogram, finding.noise)
    statistic, noise = finding.statistic, finding.noise
    if isinstance(before, MeansSurvey):
        share = noise**-2 / (noise**-2 + before.noise**-2)
        statistic = share * statistic + (1 - share) * before.statistic
        noise = float(noise * share**0.5)
    mean, trace = statistic[..., : plan.data.width], statistic[..., plan.data.width]
    edge = survey_noise_edge(plan)
    features = main_direction(mean, trace, noise=noise, edge=edge, norm=plan.data.feature_norm)
    surveyed = MeansSurvey(statistic, noise, finding.weight, finding.each, target=survey)
    return findings.surveyed(server, query, surveyed, features, target)


def _target_survey(query: FeatureMeans, server: ServerState) -> TargetSurvey:
    """Return the state of the target's survey beside feature means; with the public bounds at first."""
    before = server.findings.get(query.name)
    return before.target if isinstance(before, MeansSurvey) else TargetSurvey.initial(server.plan)
