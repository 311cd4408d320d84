"""What several test files share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.accounting.charges import task_event
from ringfence.accounting.events import BinomialRelease, Event, SectionRelease
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.guarantee import Observer, against
from ringfence.protocol.messages import Answer, NoisyUpdate, Refusal, RefusalReason, RoundRequest, unpack
from ringfence.protocol.plan import Plan, SiloTerms, StageTerms
from ringfence.protocol.questions import Gradient, Moments, Question
from ringfence.protocol.schedule import Task
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
    return [vector(ask(gate, plan, round)) for round in (range(plan.rounds) if rounds is None else rounds)]


def refusal(answer: Answer) -> RefusalReason:
    """Return why the answer is a refusal, which it must be."""
    assert isinstance(answer, Refusal)
    return answer.reason


def restaged(plan: Plan, question: Question | None = None, /, *, number: int = -1, **changes: Any) -> Plan:
    """Return the plan, checked anew, with other fields of one stage (by default the last), or another question."""
    place = number % len(plan.stages)
    if question is not None:
        changes["question"] = question
    changed = plan.stages[place].model_copy(update=changes)
    return rebuilt(plan, stages=(*plan.stages[:place], changed, *plan.stages[place + 1 :]))


def renoised(plan: Plan, silo: str | None = None, *, number: int = -1, **changes: Any) -> Plan:
    """Return the plan, checked anew, with another sigma or batch of one silo, or all, in one stage."""

    def renewed(terms: SiloTerms) -> SiloTerms:
        if silo not in (None, terms.name):
            return terms
        place = number % len(terms.stages)
        own = terms.stages[place].model_copy(update=changes)
        return terms.model_copy(update={"stages": (*terms.stages[:place], own, *terms.stages[place + 1 :])})

    return rebuilt(plan, silos=tuple(renewed(terms) for terms in plan.silos))


def rebuilt(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other fields, checked as if it were new."""
    fields = {name: getattr(plan, name) for name in Plan.model_fields}
    return Plan(**{**fields, **changes})


def clip_of(plan: Plan) -> float:
    """Return the length that records' gradients are cut to."""
    question = plan.training_stages[0].question
    assert isinstance(question, Gradient)
    return question.clip


def own_terms(plan: Plan, number: int = -1) -> StageTerms:
    """Return what the plan's first silo contributes to one stage, by default the last."""
    return plan.silos[0].stages[number]


def spent(ledger: Ledger, observer: Observer = "anyone") -> float:
    """Return the epsilon of everything charged so far, against the observer."""
    return against(ledger.account().spent(), observer).epsilon


def about_moments(plan: Plan) -> Plan:
    """Return a surveyed plan that asks for moments instead of curvature, at the same cost."""
    before, after = plan.stages[0].question, Moments(bound="joint")

    def scaled(terms: SiloTerms) -> SiloTerms:
        sensitivities = after.sensitivity(plan, terms.records), before.sensitivity(plan, terms.records)
        # A longer answer has more rounding to pay for: a trillionth, but the claim is exact.
        sigma = terms.stages[0].sigma * sensitivities[0] / sensitivities[1] * (1 + 1e-6)
        own = terms.stages[0].model_copy(update={"sigma": sigma})
        return terms.model_copy(update={"stages": (own, *terms.stages[1:])})

    stage = plan.stages[0].model_copy(update={"question": after})
    return rebuilt(plan, stages=(stage, *plan.stages[1:]), silos=tuple(scaled(terms) for terms in plan.silos))


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
    assert not isinstance(event, BinomialRelease | SectionRelease)
    return event.shift
