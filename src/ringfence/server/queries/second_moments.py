"""The second moments: pilot rounds choose the weights; the answers there, in two halves, are averaged by silo.

The second half is asked at the estimate of the first, and the average of all answers counts as one at the average
weights. If the curvature of the loss has the derivative T, the error is ½T times the product of both halves' errors,
which have independent noise; with one half alone it would be ½T times the square of its error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ringfence.errors import TrainingError
from ringfence.estimates.coefficients import SiloMoments, first_moment_request, next_moment_request, pooled_moments
from ringfence.protocol import FloatArray, SecondMoments
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.server.queries import findings
from ringfence.server.state import Findings, RoundAnswers, ServerState


@dataclass(frozen=True, kw_only=True)
class SecondMomentsFindings(Findings):
    """The last round's statistic, the next round's argument, and the silos' answers after the pilot rounds.

    `places` are the weights of those rounds.
    """

    asked: MomentsArgument
    places: tuple[FloatArray, ...] = ()
    answered: Mapping[str, SiloMoments] = field(default_factory=dict)

    @property
    def silos(self) -> dict[str, SiloMoments]:
        """The silos that answered all rounds of second moments: averages of others are at other weights."""
        return {name: silo for name, silo in self.answered.items() if silo.rounds == len(self.places)}

    @property
    def at(self) -> MomentsArgument:
        """The argument with the average weights, at which the silos' averaged second moments count."""
        return self.asked._replace(weights=np.mean(self.places, axis=0))


def argument(query: SecondMoments, server: ServerState, round: int) -> FloatArray:
    """Return the next round's argument for second moments."""
    return _before(query, server).asked.packed()


def receive(query: SecondMoments, server: ServerState, answers: RoundAnswers) -> ServerState:
    """Choose the next weights after a pilot round, and once more after half of the others, whose answers are stored."""
    before, plan = _before(query, server), server.plan
    stage, _, round = plan.place(answers.round)
    finding = findings.receive(query, server, answers).findings[query.name]
    after = SecondMomentsFindings(finding.statistic, finding.noise, finding.weight, asked=before.asked)
    if round < query.pilots:
        asked = next_moment_request(plan, before.asked, finding.statistic, finding.noise)
        after = replace(after, asked=asked)
    else:
        own = {terms.name: terms for terms in plan.silos}
        averages = {
            name: before.answered[name].joined(answer)
            if name in before.answered
            else SiloMoments(own[name].weight, own[name].stages[answers.stage].sigma, answer)
            for name, answer in answers.each.items()
        }
        places = (*before.places, before.asked.weights)
        after = replace(after, places=places, answered={**before.answered, **averages})
        if round + 1 == (query.pilots + stage.rounds) // 2:
            asked = next_moment_request(plan, before.asked, *pooled_moments(after.silos)[:2])
            after = replace(after, asked=before.asked._replace(weights=asked.weights))
    return server.with_finding(query.name, after)


def measured_moments(findings: Mapping[str, Findings]) -> SecondMomentsFindings:
    """Return a run's second moments; TrainingError if no silo answered all rounds that intervals need."""
    for finding in findings.values():
        if isinstance(finding, SecondMomentsFindings) and finding.silos:
            return finding
    raise TrainingError("No silo answered the rounds that intervals need, so there is no summary.")


def _before(query: SecondMoments, server: ServerState) -> SecondMomentsFindings:
    """Return the second moments so far; before the first round, only its argument."""
    finding = server.findings.get(query.name)
    if isinstance(finding, SecondMomentsFindings):
        return finding
    return SecondMomentsFindings(np.zeros(0), 0.0, asked=first_moment_request(query, server.plan))
