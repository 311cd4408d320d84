"""A plan that only asks what the features look like: their means and mean squares, once, for the whole budget.

Its answer helps to fill in a schema's centres and scales where nothing is publicly known of them. Training on the same
records afterwards composes with it in every silo's ledger.
"""

import math
import secrets
from collections.abc import Sequence

from ringfence.planning import calibrate, defaults
from ringfence.planning.charges import plan_events
from ringfence.planning.events import Event
from ringfence.planning.prescribe import Member, told_clearly
from ringfence.protocol.algorithms import MinibatchSGD
from ringfence.protocol.domain import Ball
from ringfence.protocol.plan import Plan, SiloTerms, Survey
from ringfence.protocol.schema import Schema


def make_survey(data: Schema, members: Sequence[Member], *, run: str | None = None) -> Plan:
    """Return the plan of a survey of moments, with the least noise that every silo's budget allows."""
    total = math.fsum(member.records for member in members)
    with told_clearly():
        terms = [
            SiloTerms(
                name=member.name,
                records=member.records,
                batch=member.records,
                sigma=1.0,  # of gradients, which nobody is asked for
                epsilon=member.epsilon,
                delta=member.allowed_delta,
                weight=member.records / total,
                survey_sigma=1.0,
            )
            for member in members
        ]

        def plan(silos: Sequence[SiloTerms]) -> Plan:
            return Plan(
                run=run or secrets.token_hex(8),
                data=data,
                loss=defaults.loss(data),
                clip=1.0,
                domain=Ball(radius=1.0),
                sampling="full",
                rounds=0,
                algorithm=MinibatchSGD(step=1.0),
                survey=Survey(statistic="moments"),
                silos=tuple(silos),
            )

        draft = plan(terms)

        def sigma(own: SiloTerms) -> float:
            def events(sigma: float) -> list[tuple[Event, int]]:
                return plan_events(draft, own.model_copy(update={"survey_sigma": sigma}))

            return calibrate.least_noise(events, epsilon=own.epsilon, delta=own.delta, start=1.0 / own.records)

        return plan([own.model_copy(update={"survey_sigma": sigma(own)}) for own in terms])
