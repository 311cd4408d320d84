"""The comparison: norms of differences set the clipping norm of the losses; the best candidate becomes the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ringfence.errors import TrainingError
from ringfence.estimates import comparison
from ringfence.estimates.answers import pooled_answer
from ringfence.estimates.comparison import ComparedLosses
from ringfence.protocol import Comparison, FloatArray
from ringfence.server.queries.findings import noisy_answers
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True)
class ComparisonFindings(Findings):
    """The clipping norm of differences of losses, and the result of the comparison, once it is known."""

    is_plain: ClassVar[bool] = False
    clip: float = 0.0
    compared: ComparedLosses | None = None


def argument(query: Comparison, server: ServerState, round: int) -> FloatArray:
    """Return the candidates' weights, and the bin edges of norms, or the clipping norm."""
    models = np.array(server.candidates)
    if len(models) != query.models:
        raise TrainingError(
            f"The plan compares {query.models} models, but {len(models)} are given: train its candidates first."
        )
    finding = server.findings.get(query.name)
    bin_edges = comparison.difference_edges(server.plan, models)
    if query.part == "losses":  # without a histogram of norms, the largest possible one: nothing is clipped
        bin_edges = np.array([finding.clip]) if isinstance(finding, ComparisonFindings) else bin_edges[-1:]
    return np.concatenate([models.reshape(-1), bin_edges])


def receive(query: Comparison, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Choose the clipping norm, or the best candidate."""
    if not answers.each:
        return server
    asked = query.read(server.plan, argument(query, server, answers.round))[1]
    pooled = pooled_answer(noisy_answers(server.plan, answers.stage, answers.each))
    if query.part == "losses":
        compared = ComparedLosses.of(query, float(asked[0]), pooled)
        finding = ComparisonFindings(pooled.vector, pooled.sigma, clip=compared.clip, compared=compared)
        return server.with_finding(query.name, finding, chosen=compared.best)
    next_stage = min(answers.stage + 1, len(server.plan.stages) - 1)
    later = pooled_answer(noisy_answers(server.plan, next_stage, answers.each))
    clip = comparison.difference_clip(query, asked, pooled, later.sigma)
    return server.with_finding(query.name, ComparisonFindings(pooled.vector, pooled.sigma, clip=clip))


def comparison_of_run(findings: Mapping[str, Findings]) -> ComparedLosses | None:
    """Return the result of a run's comparison, if its candidates were compared."""
    finding = findings.get("comparison")
    return finding.compared if isinstance(finding, ComparisonFindings) else None
