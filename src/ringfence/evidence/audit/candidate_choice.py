"""A choice among candidates, played as one claim: their plans, and the one that compares them, on one ledger.

A record trains or is held out. Canaries that train move the gradients of every candidate, as in a plan alone. One that
is held out moves what the comparison asks of it: sizes, losses and the evaluation, each as far as any record can. The
server asks everything in either game, so that the ledger's claim is of the whole choice.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ringfence.audit.adversary import Observation
from ringfence.audit.one_canary import evaluation_argument, evaluation_records
from ringfence.audit.plans import CLIP, DOMAIN, OF_RECORDS, SGD, SILO, THREE_NUMBERS, AuditQuestion, canary_schema
from ringfence.planning.choices import CandidatePlan, propose_choice
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import sections
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.losses import Squared
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Comparison
from ringfence.protocol.schedule import task
from ringfence.protocol.sections import Section
from ringfence.silo.records import Records

CANDIDATES = 3
MOST_CANARIES = 32
HELD_OUT = 0.5
"""Half of the records, so that a small silo has some of either kind."""


def plans(question: AuditQuestion, *, section: Section) -> list[Plan]:
    """Return the plans of a choice among ridges, for a single silo, that together come to the question's epsilon.

    Canaries are of that section, and the schema is for them; the comparison is the last plan.
    """
    held_out = sections.size("held-out", question.records, HELD_OUT)
    canaries = min(sections.size(section, question.records, HELD_OUT), MOST_CANARIES)
    schema = canary_schema(canaries, OF_RECORDS) if section == "training" else THREE_NUMBERS
    member = Member(SILO, question.records - held_out, question.epsilon, question.delta, held_out=held_out)
    asked = PlanRequest(
        loss=Squared(),
        clip=CLIP,
        domain=DOMAIN,
        algorithm=SGD,
        rounds=max(1, question.rounds // CANDIDATES),
        held_out=HELD_OUT,
    )
    ridges = [replace(asked, ridge=0.1 * number) for number in range(CANDIDATES)]
    return list(propose_choice(schema, [CandidatePlan({"ridge": own.ridge}, own, [member]) for own in ridges]).plans)


def compares(plan: Plan) -> bool:
    """Tell whether it is the plan that compares candidates."""
    return not plan.training_numbers


def rows(plan: Plan, section: Section) -> list[int]:
    """Return where the records of a section stand."""
    return [int(row) for row in sections.members(section, plan.silos[0].records, HELD_OUT)]


def training_records(plan: Plan, coins: FloatArray) -> Records:
    """Canaries, each in a direction of its own, among those that train; all others are zeros."""
    records, places = plan.silos[0].records, rows(plan, "training")[: len(coins)]
    features, targets = np.zeros((records, plan.data.width)), np.zeros(records)
    features[places, np.arange(len(places))] = 1.0
    targets[places] = coins
    return Records(plan.data, features, targets)


def read_training(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Read what every round says of the canaries: −coin·clip/n in the direction of each."""
    terms = plan.silos[0]
    works = [task(plan, terms, round, plan.place(round).round) for round in range(plan.rounds)]
    canaries = min(plan.data.width, len(rows(plan, "training")))
    strength = np.array([np.full(canaries, CLIP / work.batch / work.sigma) for work in works])
    sigma = np.array([[work.sigma] for work in works])
    return Observation(-np.array(answers)[:, :canaries] / sigma, strength)


def held_out_records(plan: Plan, coins: FloatArray) -> Records:
    """One record with a score just below the bound, and the one bound or the other for a target, that is held out."""
    moved = evaluation_records(plan, coins)
    features, targets = np.zeros_like(moved.features), np.zeros_like(moved.targets)
    place = rows(plan, "held-out")[0]
    features[place], targets[place] = moved.features[0], moved.targets[0]
    return Records(plan.data, features, targets)


def argument(plan: Plan, stage: int) -> FloatArray:
    """Ask what shows most; candidates are asked at 0 first.

    Of sizes: models that differ by much for one target and by little for the other. Of losses: models of which the last
    is the opposite of the others. Of the evaluation: all blocks alike.
    """
    question = plan.stages[stage].question
    if question.trains:
        return np.zeros(plan.dimension)
    if not isinstance(question, Comparison):
        return evaluation_argument(plan, stage)
    along, models = np.eye(plan.dimension)[0], np.zeros((question.models, plan.dimension))
    models[0] = along
    if question.part == "sizes":
        return np.concatenate([models.reshape(-1), np.full(question.ruler, 0.7)])
    models[:-1], models[-1] = along, -along
    return np.concatenate([models.reshape(-1), [1e-3]])
