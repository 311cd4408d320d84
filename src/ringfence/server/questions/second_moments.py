"""Second moments: the first rounds tell where to ask; the answers from there, in two halves, are averaged by silo.

The second half asks where the first one points to, and the average of all answers counts as one from the average
place. Of a loss whose curvature changes by T, that is wrong by ½T times the product of both halves' errors, which are
of different noise; one place alone would be wrong by ½T times the square of its error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ringfence.errors import TrainingError
from ringfence.inference.asking import first, following
from ringfence.inference.coefficients import SiloAnswer, pooled
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.questions.second_moments import Asked
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.questions import findings


@dataclass(frozen=True, kw_only=True)
class Measured(Findings):
    """The last round's statistic, where the next one asks, and what was answered after the pilot rounds.

    `places` are the weights of those rounds.
    """

    asked: Asked
    places: tuple[FloatArray, ...] = ()
    answered: Mapping[str, SiloAnswer] = field(default_factory=dict)

    @property
    def silos(self) -> dict[str, SiloAnswer]:
        """The silos that answered all of those rounds: other averages would be of other places."""
        return {name: silo for name, silo in self.answered.items() if silo.rounds == len(self.places)}

    @property
    def at(self) -> Asked:
        """The place that the silos' averages are of."""
        return self.asked._replace(weights=np.mean(self.places, axis=0))


def argument(question: SecondMoments, learned: Learned, step: int) -> FloatArray:
    """Return where the round asks."""
    del step
    return _before(question, learned).asked.packed()


def receive(question: SecondMoments, learned: Learned, answers: Answers) -> Learned:
    """Choose the next place after a pilot round, and once more after half of the others, which are kept."""
    before, plan = _before(question, learned), learned.plan
    found = findings.receive(question, learned, answers).findings[question.name]
    after = Measured(found.statistic, found.noise, found.weight, asked=before.asked)
    if answers.round < question.pilots:
        asked = following(plan, before.asked, found.statistic, found.noise)
        after = replace(after, asked=asked)
    else:
        own = {terms.name: terms for terms in plan.silos}
        heard = {
            name: before.answered[name].joined(answer)
            if name in before.answered
            else SiloAnswer(own[name].weight, own[name].stages[answers.stage].sigma, answer)
            for name, answer in answers.each.items()
        }
        places = (*before.places, before.asked.weights)
        after = replace(after, places=places, answered={**before.answered, **heard})
        if answers.round + 1 == (question.pilots + plan.stages[answers.stage].rounds) // 2:
            asked = following(plan, before.asked, *pooled(after.silos)[:2])
            after = replace(after, asked=before.asked._replace(weights=asked.weights))
    return replace(learned, findings={**learned.findings, question.name: after})


def measured(found: Mapping[str, Findings]) -> Measured:
    """Return what a run found, of silos that answered all that intervals rest on; TrainingError if there is none."""
    for one in found.values():
        if isinstance(one, Measured) and one.silos:
            return one
    raise TrainingError("No silo answered the rounds that intervals need, so there is no summary.")


def _before(question: SecondMoments, learned: Learned) -> Measured:
    found = learned.findings.get(question.name)
    start = first(question, learned.plan)
    return found if isinstance(found, Measured) else Measured(np.zeros(0), 0.0, asked=start)
