"""A plan that asks one question and trains nothing, with the least noise that every silo's budget allows."""

import math
import secrets
from collections.abc import Sequence
from typing import Any

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import require_positive
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.protocol import sections
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.plan import Plan, SiloTerms, Stage, StageTerms
from ringfence.protocol.questions import Question
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema


def facts_of(trained: Plan) -> dict[str, Any]:
    """Return the public facts of a plan that a question about its model shares with it."""
    names = ("data", "unit", "person_rule", "rows_per_person", "purpose", "controller", "contact")
    return {name: getattr(trained, name) for name in names} | {"model_loss": trained.loss}


def one_question(stage: Stage, members: Sequence[Member], *, run: str | None = None, **facts: Any) -> Plan:
    """Return the plan of that stage and of these public facts; `members` say how many records they have in all."""
    total = math.fsum(member.records for member in members)
    name = run or secrets.token_hex(8)

    def terms(member: Member, sigma: float) -> SiloTerms:
        require_positive("epsilon", member.epsilon)
        asked = sections.size(stage.section, member.records, facts.get("held_out"))
        return SiloTerms(
            name=member.name,
            records=member.records,
            weight=member.records / total,
            guarantees=(Guarantee(epsilon=member.epsilon, delta=member.allowed_delta),),
            stages=(StageTerms(batch=max(asked, 1), sigma=sigma),),
        )

    def plan(silos: list[SiloTerms]) -> Plan:
        return Plan(run=name, stages=(stage,), sums="exact", silos=tuple(silos), **facts)

    with clear_refusals():
        draft = require_fit(plan([terms(member, 1.0) for member in members]))

        def sigma(member: Member) -> float:
            return calibrate.least_noise(
                lambda sigma: plan_events(draft, terms(member, sigma)),
                epsilon=member.epsilon,
                delta=member.allowed_delta,
                start=1.0 / member.records,
            )

        return plan([terms(member, sigma(member)) for member in members])


def make_survey(data: Schema, members: Sequence[Member], question: Question, *, run: str | None = None) -> Plan:
    """Return the plan that asks the question of all records, once, for the whole budget.

    Training on the same records afterwards composes with it in every silo's ledger.
    """
    stage = Stage(question=question, rounds=1, sampling=Full())
    return one_question(stage, members, run=run, data=data, **PlanRequest().units(data))
