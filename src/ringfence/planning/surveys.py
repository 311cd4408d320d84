"""A plan that asks one question of all records, once, for the whole budget, and trains nothing.

Training on the same records afterwards composes with it in every silo's ledger.
"""

import math
import secrets
from collections.abc import Sequence

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import require_positive
from ringfence.planning import defaults
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.protocol.algorithms import MinibatchSGD
from ringfence.protocol.domain import Ball
from ringfence.protocol.guarantee import Guarantee
from ringfence.protocol.plan import Plan, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.questions import Question
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema


def make_survey(data: Schema, members: Sequence[Member], question: Question, *, run: str | None = None) -> Plan:
    """Return the plan that asks the question, with the least noise that every silo's budget allows."""
    for member in members:
        require_positive("epsilon", member.epsilon)
    total = math.fsum(member.records for member in members)
    name = run or secrets.token_hex(8)

    def terms(member: Member, sigma: float) -> SiloTerms:
        return SiloTerms(
            name=member.name,
            records=member.records,
            weight=member.records / total,
            guarantees=(Guarantee(epsilon=member.epsilon, delta=member.allowed_delta),),
            stages=(StageTerms(batch=member.records, sigma=sigma),),
        )

    def plan(silos: Sequence[SiloTerms]) -> Plan:
        return Plan(
            run=name,
            data=data,
            # Nothing is trained, but every plan says what would be.
            training=Training(loss=defaults.loss(data), domain=Ball(radius=1.0), algorithm=MinibatchSGD(step=1.0)),
            stages=(Stage(question=question, rounds=1, sampling=Full()),),
            sums="exact",
            **PlanRequest().units(data),
            silos=tuple(silos),
        )

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
