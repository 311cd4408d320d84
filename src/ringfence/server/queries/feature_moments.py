"""The survey of feature moments: each round's axes whiten the estimate of the round before."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ringfence.protocol import FeatureMoments, FloatArray
from ringfence.protocol.queries.feature_moments import FeatureMomentsArgument
from ringfence.server.algorithms.survey import TargetSurvey
from ringfence.server.algorithms.whitening import principal_axes
from ringfence.server.queries import findings
from ringfence.server.queries.column_distributions import ColumnsSurvey
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True, kw_only=True)
class MomentsSurvey(Findings):
    """The last round's statistic, the next round's axes, and the state of the target's survey."""

    is_plain: ClassVar[bool] = False
    axes: FloatArray
    target: TargetSurvey


def argument(query: FeatureMoments, server: ServerState, round: int) -> FloatArray:
    """Return the axes and the target's window."""
    before = _before(query, server)
    return FeatureMomentsArgument(before.axes, before.target.lower, before.target.upper).packed()


def receive(query: FeatureMoments, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Whiten the axes, narrow the target's window, and set the algorithm's steps by the estimates."""
    before, plan = _before(query, server), server.plan
    finding = findings.least_noise(plan, answers) or findings.receive(query, server, answers).findings[query.name]
    triangle, histogram = np.split(finding.statistic, [-query.bins(plan)], axis=-1)
    features = principal_axes(before.axes, matrix_of_triangle(triangle, plan.data.width), finding.noise)
    target, survey = before.target.updated(plan, histogram, finding.noise)
    whitened = features.whitened(features.edge)
    axes = whitened.axes.scaled(1 / whitened.norm).packed().reshape(*whitened.moments.shape, -1)
    surveyed = MomentsSurvey(finding.statistic, finding.noise, finding.weight, finding.each, axes=axes, target=survey)
    return findings.surveyed(server, query, surveyed, features, target)


def matrix_of_triangle(triangle: FloatArray, width: int) -> FloatArray:
    """Return the feature moments of an upper triangle whose off-diagonal entries were multiplied by √2."""
    one, other = np.triu_indices(width)
    matrix = np.empty((*triangle.shape[:-1], width, width))
    matrix[..., other, one] = matrix[..., one, other] = triangle * np.where(one == other, 1.0, 0.5**0.5)
    return matrix


def _before(query: FeatureMoments, server: ServerState) -> MomentsSurvey:
    """Return the survey of feature moments so far; at first, along the features' own axes, or those of curves."""
    finding = server.findings.get(query.name)
    if isinstance(finding, MomentsSurvey):
        return finding
    columns, data = server.findings.get("column-distributions"), server.plan.data
    axes = columns.axes if isinstance(columns, ColumnsSurvey) else np.eye(data.width) / data.feature_norm
    return MomentsSurvey(np.zeros(0), 0.0, axes=axes, target=TargetSurvey.initial(server.plan))
