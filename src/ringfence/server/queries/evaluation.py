"""The evaluation: answers are stored, and each round's bin edges follow from the rounds before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ringfence.estimates.answers import AnsweredRound, pooled_answer
from ringfence.estimates.evaluation import evaluation_report, next_evaluation_request
from ringfence.estimates.metrics import EvaluationReport
from ringfence.protocol import Evaluation, FloatArray, Plan, unpack
from ringfence.server.queries.findings import noisy_answers
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True)
class EvaluationFindings(Findings):
    """Requests and answers of the last evaluation stage; `estimates.evaluation.evaluation_report` reads them."""

    is_plain: ClassVar[bool] = False
    stage: int = 0
    rounds: tuple[AnsweredRound, ...] = ()


def argument(query: Evaluation, server: ServerState, round: int) -> FloatArray:
    """Return the model's weights, and bin edges chosen from the stage's earlier rounds."""
    plan = server.plan
    stage, number, place = plan.place(round)
    weights = server.model() if query.weights is None else unpack(query.weights)
    against = None if query.against is None else unpack(query.against)
    last = place == stage.rounds - 1
    return next_evaluation_request(query, plan, weights, against, _rounds(query, server, number), last=last).packed()


def receive(query: Evaluation, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Store every silo's answer beside the request."""
    if not answers.each:
        return server
    noisy = noisy_answers(server.plan, answers.stage, answers.each)
    rounds = (*_rounds(query, server, answers.stage), AnsweredRound(argument(query, server, answers.round), noisy))
    pooled = pooled_answer(noisy)
    finding = EvaluationFindings(pooled.vector, pooled.sigma, stage=answers.stage, rounds=rounds)
    return server.with_finding(query.name, finding)


def evaluation_of_run(plan: Plan, findings: Mapping[str, Findings], *, by_silo: bool = True) -> EvaluationReport | None:
    """Return the evaluation of a run's model, if it was evaluated; `by_silo` also on each silo's own records."""
    finding = findings.get(Evaluation().name)
    if not isinstance(finding, EvaluationFindings):
        return None
    query = plan.stages[finding.stage].query
    if not isinstance(query, Evaluation):
        return None
    return evaluation_report(query, plan, finding.rounds, by_silo=by_silo)


def _rounds(query: Evaluation, server: ServerState, stage: int) -> tuple[AnsweredRound, ...]:
    """Return the answered rounds of an evaluation's stage so far."""
    before = server.findings.get(query.name)
    return before.rounds if isinstance(before, EvaluationFindings) and before.stage == stage else ()
