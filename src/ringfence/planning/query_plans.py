"""Plans that ask one query and train nothing: statistics, evaluation of a model, summary of its coefficients.

Each has the least noise that every silo's budget allows.
"""

import math
import secrets
from collections.abc import Sequence
from typing import Any

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.accounting.events import require_positive
from ringfence.errors import PlanError
from ringfence.estimates.evaluation import chosen_figures
from ringfence.planning.draft import EVALUATIONS, evaluation_noise
from ringfence.planning.request import Member, PlanRequest, clear_refusals, require_fit
from ringfence.protocol import (
    Evaluation,
    Full,
    Guarantee,
    Plan,
    Query,
    Schema,
    SecondMoments,
    Section,
    SiloTerms,
    Stage,
    StageTerms,
)
from ringfence.protocol.documents.messages import Vector
from ringfence.protocol.plan import sections
from ringfence.protocol.queries.second_moments import independent_features

SUMMARY_ROUNDS = 13
"""Rounds of a summary: the pilots, which find where to ask, and the others, whose answers are averaged."""


def shared_facts(trained: Plan) -> dict[str, Any]:
    """Return the public facts of a training plan that plans about its model repeat."""
    names = ("data", "unit", "person_rule", "rows_per_person", "purpose", "controller", "contact")
    return {name: getattr(trained, name) for name in names} | {"model_loss": trained.loss}


def query_terms(member: Member, total: float, *stages: StageTerms) -> SiloTerms:
    """Return the terms of a silo in a plan that trains nothing: it weighs as much as its share of all records."""
    return SiloTerms(
        name=member.name,
        records=member.all_records,
        weight=member.all_records / total,
        guarantees=(Guarantee(epsilon=member.epsilon, delta=member.allowed_delta),),
        stages=stages,
    )


def make_single_stage_plan(stage: Stage, members: Sequence[Member], *, run: str | None = None, **facts: Any) -> Plan:
    """Return the plan of one stage with the least noise; each member gives its number of all records."""
    total = math.fsum(member.records for member in members)
    name = run or secrets.token_hex(8)

    def terms(member: Member, sigma: float) -> SiloTerms:
        """Return a silo's terms in a single-stage plan with that noise."""
        require_positive("epsilon", member.epsilon)
        asked = sections.size(stage.section, member.records, facts.get("held_out"))
        return query_terms(member, total, StageTerms(batch=max(asked, 1), sigma=sigma))

    def plan(silos: list[SiloTerms]) -> Plan:
        """Return the single-stage plan of these silos."""
        return Plan(run=name, stages=(stage,), silos=tuple(silos), **facts)

    with clear_refusals():
        draft = require_fit(plan([terms(member, 1.0) for member in members]))

        def sigma(member: Member) -> float:
            """Return the least noise with which the single-stage plan keeps to a silo's budget."""
            return calibrate.least_noise(
                lambda sigma: plan_events(draft, terms(member, sigma)),
                epsilon=member.epsilon,
                delta=member.allowed_delta,
                start=1.0 / member.records,
            )

        return plan([terms(member, sigma(member)) for member in members])


def make_query_plan(data: Schema, members: Sequence[Member], query: Query, *, run: str | None = None) -> Plan:
    """Return the plan that asks the query of all records, once, for the whole budget.

    Training on the same records afterwards composes with it in every silo's ledger.
    """
    stage = Stage(query=query, rounds=1, sampling=Full())
    return make_single_stage_plan(stage, members, run=run, data=data, **PlanRequest().privacy_unit(data))


def make_evaluation_plan(
    trained: Plan,
    weights: Vector,
    members: Sequence[Member],
    *,
    against: Vector | None = None,
    all_records: bool = False,
    figures: Sequence[str] | None = None,
    run: str | None = None,
) -> Plan:
    """Return the plan that evaluates weights trained by the plan `trained`, on these members' records.

    It asks the records that training held out, or all of them if there are none or with `all_records`. Each member
    gives its number of all records. `against` are the weights of another model to compare with. `figures` names what to
    measure (`estimates.evaluation.chosen_figures`).
    """
    held_out = None if all_records else trained.held_out
    section: Section | None = None if held_out is None else "held-out"
    records = [sections.size(section, member.records, held_out) for member in members]
    shifts = [calibrate.gaussian_shift(member.epsilon, member.allowed_delta) for member in members]
    chosen = chosen_figures(trained.loss, figures, evaluation_noise(records, shifts))
    query = Evaluation(weights=weights, against=against, figures=chosen)
    return make_single_stage_plan(
        Stage(query=query, rounds=EVALUATIONS, sampling=Full(), section=section),
        members,
        run=run,
        held_out=held_out,
        **shared_facts(trained),
    )


def make_summary_plan(trained: Plan, weights: Vector, members: Sequence[Member], *, run: str | None = None) -> Plan:
    """Return the plan of second moments around trained weights, which give each coefficient an interval.

    All records are asked. The estimate solves an equation of the records, whatever weights it starts from, so those
    that trained the weights do not bias it; and a ledger charges the more expensive section, which is the training one.
    """
    query = SecondMoments(start=weights)
    plan = make_single_stage_plan(
        Stage(query=query, rounds=SUMMARY_ROUNDS, sampling=Full()), members, run=run, **shared_facts(trained)
    )
    axes = len(independent_features(plan.data))
    noise = math.hypot(*(terms.weight * terms.stages[0].sigma for terms in plan.silos))
    # Curvatures are about 1/(1.5·axes) along good axes; noise in them is up to 2·√axes times as large as in a number.
    if 3 * axes**1.5 * noise / math.sqrt(SUMMARY_ROUNDS - query.pilots) > 1:
        raise PlanError(
            f"No plan can be made from this: with {axes} features the noise that these budgets need hides how the "
            "features vary together, so no coefficient could be estimated. Allow a larger epsilon, ask more silos or "
            "records, or train on fewer features: with --curves none, or, where the schema has maps, with fewer knots, "
            "harmonics or Fourier features."
        )
    return plan
