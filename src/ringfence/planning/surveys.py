"""A plan that asks one question of all records, once, for the whole budget, and trains nothing.

Training on the same records afterwards composes with it in every silo's ledger.
"""

from collections.abc import Sequence

from ringfence.planning import defaults
from ringfence.planning.one_question import one_question
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.algorithms import MinibatchSGD
from ringfence.protocol.domain import Ball
from ringfence.protocol.plan import Plan, Stage, Training
from ringfence.protocol.questions import Question
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema


def make_survey(data: Schema, members: Sequence[Member], question: Question, *, run: str | None = None) -> Plan:
    """Return the plan that asks the question, with the least noise that every silo's budget allows."""
    # Nothing is trained, but every plan says what would be.
    training = Training(loss=defaults.loss(data), domain=Ball(radius=1.0), algorithm=MinibatchSGD(step=1.0))
    stage = Stage(question=question, rounds=1, sampling=Full())
    return one_question(stage, members, run=run, data=data, training=training, **PlanRequest().units(data))
