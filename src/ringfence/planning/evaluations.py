"""A plan that evaluates a model, or two of them against each other."""

from collections.abc import Sequence

from ringfence.planning.draft import EVALUATIONS
from ringfence.planning.one_question import facts_of, one_question
from ringfence.planning.request import Member
from ringfence.protocol.messages import Vector
from ringfence.protocol.plan import Plan, Stage
from ringfence.protocol.questions import Evaluation
from ringfence.protocol.sampling import Full
from ringfence.protocol.sections import Section


def make_evaluation(
    trained: Plan,
    weights: Vector,
    members: Sequence[Member],
    *,
    against: Vector | None = None,
    all_records: bool = False,
    run: str | None = None,
) -> Plan:
    """Return the plan that evaluates weights which the plan `trained` led to, on these members' records.

    Where that plan held records out, this one asks those alone, unless `all_records` are wanted. `members` say how many
    records they have in all. `against` are the weights of a model to compare with.
    """
    held_out = None if all_records else trained.held_out
    question = Evaluation(weights=weights, against=against)
    section: Section | None = None if held_out is None else "held-out"
    return one_question(
        Stage(question=question, rounds=EVALUATIONS, sampling=Full(), section=section),
        members,
        run=run,
        held_out=held_out,
        **facts_of(trained),
    )
