"""A plan that asks for the second moments around a model's weights, which give each coefficient an interval."""

import math
from collections.abc import Sequence

from ringfence.errors import PlanError
from ringfence.planning.one_question import facts_of, one_question
from ringfence.planning.request import Member
from ringfence.protocol.messages import Vector
from ringfence.protocol.plan import Plan, Stage
from ringfence.protocol.questions import SecondMoments
from ringfence.protocol.questions.second_moments import independent
from ringfence.protocol.sampling import Full

ROUNDS = 13
"""Rounds: the pilots, which find out where to ask, and the others, whose answers are averaged."""


def make_summary(trained: Plan, weights: Vector, members: Sequence[Member], *, run: str | None = None) -> Plan:
    """Return the plan of a summary of weights that the plan `trained` led to, on all of these members' records.

    Held-out records are asked too: the estimate solves an equation of the records that are asked, whatever weights it
    starts from, so that the records that trained these are no worse than others; and a ledger charges the dearer of
    its sections, which is not that of the held-out records.
    """
    if any(block.repeats for block in trained.data.blocks):
        raise PlanError(
            "No plan can be made from this: an interaction with a column of categories, or with a spline, adds up to "
            "the other column's own features, so none of these coefficients means anything by itself. Train a model "
            "without that interaction."
        )
    question = SecondMoments(start=weights)
    plan = one_question(
        Stage(question=question, rounds=ROUNDS, sampling=Full()),
        members,
        run=run,
        **facts_of(trained),
    )
    axes = len(independent(plan.data))
    noise = math.hypot(*(terms.weight * terms.stages[0].sigma for terms in plan.silos))
    # Curvatures are about 1/(1.5·axes) along good axes; noise in them is up to 2·√axes times as large as in a number.
    if 3 * axes**1.5 * noise / math.sqrt(ROUNDS - question.pilots) > 1:
        raise PlanError(
            f"No plan can be made from this: with {axes} features the noise that these budgets need hides how the "
            "features vary together, so no coefficient could be estimated. Allow a larger epsilon, ask more silos or "
            "records, or train on fewer features."
        )
    return plan
