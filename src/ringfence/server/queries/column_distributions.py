"""The survey of columns: a second look between the ends that the first one finds, and then the knots of curves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from ringfence.errors import visible
from ringfence.protocol import ColumnDistributions, FeatureMoments, FloatArray, Plan
from ringfence.server.algorithms.columns import ColumnDistribution, column_distribution, first_axes
from ringfence.server.queries import findings
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True, kw_only=True)
class ColumnsSurvey(Findings):
    """The last round's histograms, every column's distribution, and the knots of the curves."""

    is_plain: ClassVar[bool] = False
    plan: Plan
    columns: tuple[ColumnDistribution, ...]
    knots: FloatArray

    @cached_property
    def axes(self) -> FloatArray:
        """The axes of the first round of feature moments."""
        stages = enumerate(self.plan.stages)
        number = next(number for number, stage in stages if isinstance(stage.query, FeatureMoments))
        noise = math.fsum(terms.stages[number].sigma ** -2 for terms in self.plan.silos) ** -0.5
        return first_axes(self.plan, self.columns, self.knots, noise)


WIDE = 10.0
"""Bounds this many times as wide as the interval in which a column was found are worth a remark."""


def remarks(findings: Mapping[str, Findings]) -> list[str]:
    """Return a sentence for each column whose bounds are much wider than what the survey found, with better bounds."""
    found = findings.get("column-distributions")
    if not isinstance(found, ColumnsSurvey):
        return []
    lines = []
    for (name, column), own in zip(found.plan.data.open_columns.items(), found.columns, strict=True):
        if column.high - column.low > WIDE * (own.upper - own.lower):
            shown = (column.written(end) for end in (column.low, column.high, own.lower, own.upper))
            ends = [each if isinstance(each, str) else f"{each:.3g}" for each in shown]
            lines.append(
                f"Column '{visible(name)}' has bounds from {ends[0]} to {ends[1]}, and its records lie between about "
                f"{ends[2]} and {ends[3]}, as the survey found. Its curve does not suffer; a straight line would: "
                "narrow the bounds in the schema before you train with --curves none."
            )
    return lines


def argument(query: ColumnDistributions, server: ServerState, round: int) -> FloatArray:
    """Return the ends between which each column's distribution is asked for."""
    return np.array([end for lower, upper in _ends(query, server) for end in (lower, upper)])


def receive(query: ColumnDistributions, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Narrow every column's ends to the occupied bins, and place the knots of its curve between them."""
    finding = (
        findings.least_noise(server.plan, answers) or findings.receive(query, server, answers).findings[query.name]
    )
    shares = finding.statistic.reshape(-1, query.bins)
    columns = tuple(
        column_distribution(own, *ends, finding.noise) for own, ends in zip(shares, _ends(query, server), strict=True)
    )
    counts = map(len, server.plan.data.even_knots)
    knots = np.concatenate([column.knots(count) for column, count in zip(columns, counts, strict=True)])
    found = finding.statistic, finding.noise, finding.weight, finding.each
    survey = ColumnsSurvey(*found, plan=server.plan, columns=columns, knots=knots)
    return replace(server.with_finding(query.name, survey), knots=knots)


def _ends(query: ColumnDistributions, server: ServerState) -> list[tuple[float, float]]:
    """Return the columns' ends that the survey has found so far; at first, their bounds."""
    finding = server.findings.get(query.name)
    if isinstance(finding, ColumnsSurvey):
        return [(column.lower, column.upper) for column in finding.columns]
    return [(column.low, column.high) for column in server.plan.data.open_columns.values()]
