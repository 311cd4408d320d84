"""A choice among candidates, played as one claim: their plans, and the one that compares them, on one ledger.

A record trains or is held out. Canaries that train move the gradients of every candidate, as in a plan alone. One that
is held out moves what the comparison asks of it: sizes, losses and the evaluation, each as far as any record can. The
server asks everything in either game, so that the ledger's claim is of the whole choice.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ringfence.evidence.audit.adversary import Observation
from ringfence.evidence.audit.plans import CLIP, DOMAIN, OF_RECORDS, SGD, SILO, THREE_NUMBERS, AuditQuery, canary_schema
from ringfence.evidence.audit.worst_cases import EVALUATION_PAIR, evaluation_argument, records_with_canaries
from ringfence.planning.request import Member, PlanRequest
from ringfence.planning.search import CandidateRequest, propose_search
from ringfence.protocol import Comparison, FloatArray, Plan, Section, Squared
from ringfence.protocol.plan import sections
from ringfence.protocol.plan.plan import task
from ringfence.silo.records.records import Records

CANDIDATES = 3
MOST_CANARIES = 32
HELD_OUT = 0.5
"""Half of the records, so that a small silo has some of either kind."""


def choice_plans(query: AuditQuery, *, section: Section) -> list[Plan]:
    """Return the plans of a choice among ridges, for a single silo, that together come to the query's epsilon.

    Canaries are of that section, and the schema is for them; the comparison is the last plan.
    """
    held_out = sections.size("held-out", query.records, HELD_OUT)
    canaries = min(sections.size(section, query.records, HELD_OUT), MOST_CANARIES)
    schema = canary_schema(canaries, OF_RECORDS) if section == "training" else THREE_NUMBERS
    member = Member(SILO, query.records - held_out, query.epsilon, query.delta, held_out=held_out)
    asked = PlanRequest(
        loss=Squared(),
        clip=CLIP,
        domain=DOMAIN,
        algorithm=SGD,
        rounds=max(1, query.rounds // CANDIDATES),
        held_out=HELD_OUT,
    )
    ridges = [replace(asked, ridge=0.1 * number) for number in range(CANDIDATES)]
    return list(propose_search(schema, [CandidateRequest({"ridge": own.ridge}, own, [member]) for own in ridges]).plans)


def is_comparison(plan: Plan) -> bool:
    """Return whether the plan compares the candidates of an audited choice."""
    return not plan.training_numbers


def section_rows(plan: Plan, section: Section) -> list[int]:
    """Return the row numbers of a section of the records, for an audited choice among candidates."""
    return [int(row) for row in sections.members(section, plan.silos[0].records, HELD_OUT)]


def training_records(plan: Plan, coins: FloatArray) -> Records:
    """Return the records of a choice, with canaries among those that train."""
    return records_with_canaries(plan, section_rows(plan, "training")[: len(coins)], coins)


def read_training(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Read the canaries from every round of training: −coin·clip/n in the direction of each."""
    terms = plan.silos[0]
    works = [task(plan, terms, round, plan.place(round).round) for round in range(plan.rounds)]
    canaries = min(plan.data.width, len(section_rows(plan, "training")))
    strength = np.array([np.full(canaries, CLIP / work.batch / work.sigma) for work in works])
    sigma = np.array([[work.sigma] for work in works])
    return Observation(-np.array(answers)[:, :canaries] / sigma, strength)


def held_out_records(plan: Plan, coins: FloatArray) -> Records:
    """Return zeros but for one held-out record: a score just below the bound, and a target at either bound."""
    moved = EVALUATION_PAIR(plan, coins)
    features, targets = np.zeros_like(moved.features), np.zeros_like(moved.targets)
    place = section_rows(plan, "held-out")[0]
    features[place], targets[place] = moved.features[0], moved.targets[0]
    return Records(plan.data, features, targets)


def choice_argument(plan: Plan, stage: int) -> FloatArray:
    """Return the argument that shows the canary best; training starts at weights of 0.

    Of sizes: models that differ by much for one target and by little for the other. Of losses: models of which the last
    is the opposite of the others. Of the evaluation: all blocks alike.
    """
    query = plan.stages[stage].query
    if query.trains:
        return np.zeros(plan.dimension)
    if not isinstance(query, Comparison):
        return evaluation_argument(plan, stage)
    along, models = np.eye(plan.dimension)[0], np.zeros((query.models, plan.dimension))
    models[0] = along
    if query.part == "sizes":
        return np.concatenate([models.reshape(-1), np.full(query.bin_edges, 0.7)])
    models[:-1], models[-1] = along, -along
    return np.concatenate([models.reshape(-1), [1e-3]])
