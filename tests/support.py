"""What several test files share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence import protocol
from ringfence.accounting.charges import task_event
from ringfence.accounting.events import BinomialRelease, Event, SectionRelease
from ringfence.protocol import Answer, FloatArray, Plan
from ringfence.protocol.plan.guarantee import against
from ringfence.silo.gate import sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.ledger.ledger import Ledger

MakePlan = Callable[..., Plan]
Drawn = list[tuple[protocol.Task, Draws]]
"""A gate's draws, each with the task it was for."""


def ask(gate: Gate, plan: Plan, round: int, weights: FloatArray | float = 0.0) -> Answer:
    """Ask a gate for a round at the given weights."""
    return gate.answer(protocol.RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension) + weights))


def approved_by(gate: Gate, plan: Plan) -> Plan:
    """Return the plan, once the gate has approved it."""
    gate.approve(plan)
    return plan


def vector(answer: Answer) -> FloatArray:
    """Return the numbers of an answer, which must not be a refusal."""
    assert isinstance(answer, protocol.NoisyUpdate)
    return protocol.unpack(answer.vector)


def ask_all(gate: Gate, plan: Plan, rounds: Iterable[int] | None = None) -> list[FloatArray]:
    """Ask for the given rounds, or all; every one must be answered."""
    return [vector(ask(gate, plan, round)) for round in (range(plan.rounds) if rounds is None else rounds)]


def refusal(answer: Answer) -> protocol.RefusalReason:
    """Return why the answer is a refusal, which it must be."""
    assert isinstance(answer, protocol.Refusal)
    return answer.reason


def restaged(plan: Plan, query: protocol.Query | None = None, /, *, number: int = -1, **changes: Any) -> Plan:
    """Return the plan, checked anew, with other fields of one stage (by default the last), or another query."""
    place = number % len(plan.stages)
    if query is not None:
        changes["query"] = query
    changed = plan.stages[place].model_copy(update=changes)
    return rebuilt(plan, stages=(*plan.stages[:place], changed, *plan.stages[place + 1 :]))


def renoised(plan: Plan, silo: str | None = None, *, number: int = -1, **changes: Any) -> Plan:
    """Return the plan, checked anew, with another sigma or batch of one silo, or all, in one stage."""

    def renewed(terms: protocol.SiloTerms) -> protocol.SiloTerms:
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
    query = plan.training_stages[0].query
    assert isinstance(query, protocol.Gradient)
    return query.clip


def own_terms(plan: Plan, number: int = -1) -> protocol.StageTerms:
    """Return what the plan's first silo contributes to one stage, by default the last."""
    return plan.silos[0].stages[number]


def spent(ledger: Ledger, observer: protocol.Observer = "anyone") -> float:
    """Return the epsilon of everything charged so far, against the observer."""
    return against(ledger.account().spent(), observer).epsilon


def watch_draws(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Return a list in which every draw of a gate will appear, with the task it was for."""
    seen: Drawn = []
    real = sampling.draw

    def watched(plan: Plan, terms: protocol.SiloTerms, work: protocol.Task) -> Draws:
        seen.append((work, real(plan, terms, work)))
        return seen[-1][1]

    monkeypatch.setattr(sampling, "draw", watched)
    return seen


def charged_when_drawn(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[int]:
    """Return a list in which, at every draw, the number of charges on the disk will appear."""
    seen: list[int] = []
    real = sampling.draw

    def watched(plan: Plan, terms: protocol.SiloTerms, work: protocol.Task) -> Draws:
        with Ledger.open(path) as second_reader:
            rounds = second_reader.account().plans[plan.digest()].rounds
        seen.append(len(rounds))
        assert task_event(plan, terms, work) in [round.event for round in rounds.values()]
        return real(plan, terms, work)

    monkeypatch.setattr(sampling, "draw", watched)
    return seen


def shift_in(event: Event) -> float:
    """Return the shift of a Gaussian event."""
    assert not isinstance(event, BinomialRelease | SectionRelease)
    return event.shift
