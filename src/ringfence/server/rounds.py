"""The loop over rounds: ask silos, average what they send, step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RoundRequest, unpack
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms import minibatch

Ask = Callable[[RoundRequest, Sequence[str]], Mapping[str, Answer]]
"""Send a request to the named silos and return what came back; a silo that did not answer is left out."""


@dataclass(frozen=True)
class Outcome:
    """What happened in a round: who answered, who refused and why, whose answer was not usable."""

    round: int
    answered: tuple[str, ...]
    refused: Mapping[str, str]
    unusable: tuple[str, ...]


@dataclass(frozen=True)
class Trained:
    """The learned weights and the history of the rounds."""

    weights: FloatArray
    history: tuple[Outcome, ...]


def run(
    plan: Plan,
    ask: Ask,
    *,
    choices: np.random.Generator | None = None,
    watch: Callable[[Outcome], None] = lambda outcome: None,
) -> Trained:
    """Run the plan's algorithm over all its rounds.

    `choices` decides which silos are asked where the plan leaves it open; it protects nothing, so it may be
    seeded. A silo that refuses for good is not asked again; a round that nobody answers changes nothing.
    """
    choices = choices or np.random.default_rng()
    digest = plan.digest()
    settings = minibatch.settings(plan)
    state = minibatch.init(np.zeros(plan.dimension))
    gone: set[str] = set()
    history: list[Outcome] = []
    for round in range(plan.rounds):
        asked = _asked(plan, gone, choices)
        request = RoundRequest.at(digest, round, minibatch.query(state))
        answers = ask(request, asked) if asked else {}
        updates = {name: vector for name in asked if (vector := _usable(plan, request, name, answers)) is not None}
        refusals = {
            name: answer.reason
            for name in asked
            if isinstance(answer := answers.get(name), Refusal) and _belongs(answer, request, name)
        }
        gone |= {name for name, reason in refusals.items() if reason.is_final}
        if updates:
            gradient = mean_update(plan, updates)
            state = minibatch.step(settings, plan.domain.project, state, gradient, round)
        outcome = Outcome(
            round,
            tuple(updates),
            {name: reason.value for name, reason in refusals.items()},
            tuple(name for name in asked if name in answers and name not in updates and name not in refusals),
        )
        history.append(outcome)
        watch(outcome)
    if not any(outcome.answered for outcome in history):
        reasons = sorted({reason for outcome in history for reason in outcome.refused.values()})
        raise TrainingError(
            f"No silo answered any of the {plan.rounds} rounds ({', '.join(reasons) or 'no answer came back'}), "
            "so there is no model. Check that every silo approved this plan."
        )
    return Trained(minibatch.output(state), tuple(history))


def mean_update(plan: Plan, updates: Mapping[str, FloatArray]) -> FloatArray:
    """Average the updates by the silos' public weights: (N/M)·Σ p_i·g_i over the M that answered.

    With equal weights this is the plain mean. With others it is unbiased when every silo is equally likely to
    be among those that answer.
    """
    share = len(plan.silos) / len(updates)
    weights = {terms.name: terms.weight for terms in plan.silos}
    total: FloatArray = np.sum([share * weights[name] * vector for name, vector in updates.items()], axis=0)
    return total


def _asked(plan: Plan, gone: set[str], choices: np.random.Generator) -> list[str]:
    names = [terms.name for terms in plan.silos if terms.name not in gone]
    if plan.participation.silos is not None:
        chosen = choices.choice(len(names), size=min(plan.participation.silos, len(names)), replace=False)
        return [names[i] for i in sorted(chosen)]
    if plan.participation.probability is not None:
        return [name for name in names if choices.random() < plan.participation.probability]
    return names


_LARGEST = 1e100
"""No honest number is larger, and a step from it cannot overflow; NaN and infinity fail the comparison too."""


def _belongs(answer: Answer, request: RoundRequest, silo: str) -> bool:
    return (answer.plan, answer.round, answer.silo) == (request.plan, request.round, silo)


def _usable(plan: Plan, request: RoundRequest, silo: str, answers: Mapping[str, Answer]) -> FloatArray | None:
    """Return the silo's vector if it is an update of this round in the right shape; silos may be hostile too."""
    answer = answers.get(silo)
    if not isinstance(answer, NoisyUpdate):
        return None
    if not _belongs(answer, request, silo):
        return None
    vector = unpack(answer.vector)
    if vector.shape != (plan.dimension,) or not np.all(np.abs(vector) <= _LARGEST):
        return None
    return vector
