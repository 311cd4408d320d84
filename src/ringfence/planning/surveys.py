"""A plan that asks one question of all records, once, for the whole budget, and trains nothing.

Training on the same records afterwards composes with it in every silo's ledger.
"""

from collections.abc import Sequence

from ringfence.planning.one_question import one_question
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol.plan import Plan, Stage
from ringfence.protocol.questions import Question
from ringfence.protocol.sampling import Full
from ringfence.protocol.schema import Schema


def make_survey(data: Schema, members: Sequence[Member], question: Question, *, run: str | None = None) -> Plan:
    """Return the plan that asks the question, with the least noise that every silo's budget allows."""
    stage = Stage(question=question, rounds=1, sampling=Full())
    return one_question(stage, members, run=run, data=data, **PlanRequest().units(data))
