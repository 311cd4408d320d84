"""Second moments: the first rounds tell where to ask, the answers from there are averaged, silo by silo."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ringfence.inference.asking import first, following
from ringfence.inference.coefficients import Silo
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.questions.second_moments import Asked
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.questions.findings import with_findings


@dataclass(frozen=True, kw_only=True)
class Measured(Findings):
    """The last round's statistic, where the next one asks, and what every silo answered from there."""

    asked: Asked
    silos: Mapping[str, Silo]


def argument(question: SecondMoments, learned: Learned, step: int) -> FloatArray:
    """Return where the round asks."""
    del step
    return _before(question, learned)[0].packed()


def receive(question: SecondMoments, learned: Learned, answers: Answers) -> Learned:
    """Choose the next place after a pilot round; keep the silos' answers of the others."""
    (asked, silos), plan = _before(question, learned), learned.plan
    found = with_findings(question, learned, answers).findings[question.name]
    if answers.round < question.pilots:
        asked, silos = following(plan, asked, found.statistic, found.noise), {}
    else:
        terms = {own.name: own for own in plan.silos}
        silos = {
            **silos,
            **{
                name: silos[name].joined(answer)
                if name in silos
                else Silo(terms[name].weight, terms[name].stages[answers.stage].sigma, answer)
                for name, answer in answers.each.items()
            },
        }
    measured = Measured(found.statistic, found.noise, found.weight, asked=asked, silos=silos)
    return replace(learned, findings={**learned.findings, question.name: measured})


def _before(question: SecondMoments, learned: Learned) -> tuple[Asked, Mapping[str, Silo]]:
    found = learned.findings.get(question.name)
    return (found.asked, found.silos) if isinstance(found, Measured) else (first(question, learned.plan), {})
