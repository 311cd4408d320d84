"""What several test files share."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from ringfence.planning.charges import task_event
from ringfence.planning.events import BinomialRelease, Event
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, NoisyUpdate, Reason, Refusal, RoundRequest, unpack
from ringfence.protocol.plan import Plan, SiloTerms, Survey
from ringfence.protocol.schedule import Task, survey_sensitivity, task
from ringfence.silo import randomness
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.mechanism import Draws

MakePlan = Callable[..., Plan]


def ask(gate: Gate, plan: Plan, round: int, weights: FloatArray | float = 0.0) -> Answer:
    """Ask a gate for a round at the given weights."""
    return gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension) + weights))


def vector(answer: Answer) -> FloatArray:
    """Return the numbers of an answer, which must not be a refusal."""
    assert isinstance(answer, NoisyUpdate)
    return unpack(answer.vector)


def ask_all(gate: Gate, plan: Plan, rounds: Iterable[int] | None = None) -> list[FloatArray]:
    """Ask for the given rounds, or all; every one must be answered."""
    return [vector(ask(gate, plan, round)) for round in (range(plan.exchanges) if rounds is None else rounds)]


def refusal(answer: Answer) -> Reason:
    """Return why the answer is a refusal, which it must be."""
    assert isinstance(answer, Refusal)
    return answer.reason


def about_moments(plan: Plan) -> Plan:
    """Return a surveyed plan that asks for moments instead of curvature, at the same cost."""
    moments = plan.model_copy(update={"survey": Survey(statistic="moments")})

    def scaled(terms: SiloTerms) -> SiloTerms:
        work = task(plan, terms, 0, 0)
        sigma = work.sigma * survey_sensitivity(moments, terms.records) / survey_sensitivity(plan, terms.records)
        # A longer answer has more rounding to pay for: a trillionth, but the claim is exact.
        return terms.model_copy(update={"survey_sigma": sigma * (1 + 1e-6)})

    made = moments.model_copy(update={"silos": tuple(scaled(terms) for terms in plan.silos)})
    return Plan.model_validate(made.model_dump())


def watch_draws(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, Draws]]:
    """Return a list in which every draw of a gate will appear, with the task it was for."""
    seen: list[tuple[Task, Draws]] = []
    real = randomness.draw

    def watched(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
        seen.append((work, real(plan, terms, work)))
        return seen[-1][1]

    monkeypatch.setattr(randomness, "draw", watched)
    return seen


def charged_when_drawn(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[int]:
    """Return a list in which, at every draw, the number of charges on the disk will appear."""
    seen: list[int] = []
    real = randomness.draw

    def watched(plan: Plan, terms: SiloTerms, work: Task) -> Draws:
        with Ledger.open(path) as second_reader:
            rounds = second_reader.account().plans[plan.digest()].rounds
        seen.append(len(rounds))
        assert task_event(plan, terms, work) in [round.event for round in rounds.values()]
        return real(plan, terms, work)

    monkeypatch.setattr(randomness, "draw", watched)
    return seen


def shift_in(event: Event) -> float:
    """Return the shift of a Gaussian event."""
    assert not isinstance(event, BinomialRelease)
    return event.shift
