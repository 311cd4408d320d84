"""An evaluation's answers are kept, round by round, and say what to ask next."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ringfence.metrics.estimates import Heard, Round, pooled
from ringfence.metrics.evaluate import next_asked, report
from ringfence.metrics.report import EvaluationReport
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import unpack
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation
from ringfence.server.learned import Answers, Findings, Learned


@dataclass(frozen=True)
class Evaluations(Findings):
    """What was asked and answered in the rounds of the last stage that asked; `metrics.evaluate.report` reads it."""

    is_plain: ClassVar[bool] = False
    stage: int = 0
    rounds: tuple[Round, ...] = ()


def argument(question: Evaluation, learned: Learned, step: int) -> FloatArray:
    """Return the model's weights, and a ruler by what the stage's rounds before have told."""
    plan = learned.plan
    number, round = _place(question, plan, step)
    weights = learned.model() if question.weights is None else unpack(question.weights)
    against = None if question.against is None else unpack(question.against)
    last = round == plan.stages[number].rounds - 1
    return next_asked(question, plan, weights, against, _rounds(question, learned, number), last=last).packed()


def receive(question: Evaluation, learned: Learned, answers: Answers) -> Learned:
    """Keep what every silo answered, beside the question."""
    if not answers.each:
        return learned
    own = {terms.name: terms.stages[answers.stage] for terms in learned.plan.silos}
    heard = {name: Heard(vector, own[name].sigma, own[name].batch) for name, vector in answers.each.items()}
    rounds = (*_rounds(question, learned, answers.stage), Round(argument(question, learned, answers.step), heard))
    whole = pooled(heard)
    found = Evaluations(whole.vector, whole.sigma, stage=answers.stage, rounds=rounds)
    return replace(learned, findings={**learned.findings, question.name: found})


def reported(plan: Plan, findings: Mapping[str, Findings]) -> EvaluationReport | None:
    """Return what a run's findings say of its model, if it was evaluated."""
    found = findings.get(Evaluation().name)
    if not isinstance(found, Evaluations):
        return None
    question = plan.stages[found.stage].question
    return report(question, plan, found.rounds) if isinstance(question, Evaluation) else None


def _rounds(question: Evaluation, learned: Learned, stage: int) -> tuple[Round, ...]:
    before = learned.findings.get(question.name)
    return before.rounds if isinstance(before, Evaluations) and before.stage == stage else ()


def _place(question: Evaluation, plan: Plan, step: int) -> tuple[int, int]:
    """Return the number of the stage that asks, and the round within it."""
    trained = 0
    for number, stage in enumerate(plan.stages):
        if stage.question == question and 0 <= step - trained < stage.rounds:
            return number, step - trained
        trained += stage.rounds * stage.question.trains
    raise LookupError("no stage of the plan asks this question at that step")
