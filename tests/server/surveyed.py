"""Plans that begin with a survey, for three silos of unequal weights and noises, and silos that answer it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ringfence.protocol import Answer, Curvature, FloatArray, Plan, Query, RoundRequest
from ringfence.server.channels.own_noise import mean_update
from ringfence.server.queries.findings import receive
from ringfence.server.rounds import Ask
from ringfence.server.state import Findings, RoundAnswers, ServerState
from tests.server.quadratics import make_plan, quadratics, update

SHARES, SIGMAS = (0.1, 0.3, 0.6), (0.3, 0.05, 0.1)
FALSE_ALARM = 1e-6

GRADIENTS = quadratics((1, 0), (0, 1), (2, 2))


def surveyed(survey: Query | None = None, **changes: Any) -> Plan:
    """Make a plan with a survey, of the curvature unless told otherwise."""
    return make_plan(SHARES, survey=survey or Curvature(), survey_sigmas=SIGMAS, **changes)


def found(plan: Plan, answers: Mapping[str, FloatArray]) -> Findings:
    """Average the answers as the server does."""
    query = plan.stages[0].query
    answered = RoundAnswers(0, 0, tuple(answers), mean_update(plan, answers))
    return receive(query, ServerState.initial(plan), answered).findings[query.name]


def answers_at(plan: Plan, exact: Sequence[float], random: np.random.Generator | None = None) -> dict[str, FloatArray]:
    """Answer a survey of curvature with the given eigenvalues and, given a generator, the silos' noise."""
    noise = np.zeros(3) if random is None else np.array(SIGMAS) * random.normal(size=3)
    return {terms.name: np.array([value]) for terms, value in zip(plan.silos, exact + noise, strict=True)}


def surveying(survey: Callable[[RoundRequest, str], Answer], gradients: Ask) -> Ask:
    """Answer round 0 by one function and the rounds of gradients by another."""

    def ask(request: RoundRequest, asked: Sequence[str]) -> Mapping[str, Answer]:
        return {name: survey(request, name) for name in asked} if request.round == 0 else gradients(request, asked)

    return ask


def curved(value: float) -> Ask:
    """Make silos that find that curvature, then send gradients of quadratics."""
    return surveying(lambda request, name: update(request, name, np.array([value])), GRADIENTS)
