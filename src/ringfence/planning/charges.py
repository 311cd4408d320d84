"""What a plan costs a silo, as events: of one round's task, and of all rounds together.

Computed from the plan alone, so that the planner, the silo's gate and the ledger's reader agree.
"""

from ringfence.planning import correlation
from ringfence.planning.events import DisjointBatchRelease, Event, GaussianRelease, per_round_event, shift_of
from ringfence.protocol.algorithms import Localized
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, survey_sensitivity, task


def task_event(plan: Plan, terms: SiloTerms, work: Task) -> Event:
    """Return what one round's task costs the silo."""
    if work.query == "survey":
        return GaussianRelease(
            shift_of(
                sensitivity=survey_sensitivity(plan, terms.records),
                sigma=work.sigma,
                dimension=max(work.length, plan.data.width),
                summed=terms.records,
            )
        )
    if work.part is None:
        return per_round_event(
            plan.sampling,
            records=terms.records,
            batch=work.batch,
            clip=plan.clip,
            sigma=work.sigma,
            dimension=work.length,
        )
    rows = plan.rounds if plan.correlation else 1
    shift = shift_of(
        sensitivity=2 * plan.clip / work.batch * correlation.column_norm(plan.correlation, rows),
        sigma=work.sigma,
        dimension=work.length,
        summed=terms.records + rows,
        rows=rows,
    )
    return DisjointBatchRelease(plan.digest(), work.part, shift)


def plan_events(plan: Plan, terms: SiloTerms) -> list[tuple[Event, int]]:
    """Return events that cost as much as all rounds of the plan, if the silo answers them all.

    Disjoint parts cost together what one of them does, so a one-pass run is its first part only.
    """
    events = [(task_event(plan, terms, task(plan, terms, 0, 0)), 1)] if plan.survey else []
    if isinstance(plan.algorithm, Localized):
        first = plan.preliminaries
        for phase in plan.algorithm.phases:
            events.append((task_event(plan, terms, task(plan, terms, first, 0)), phase.rounds))
            first += phase.rounds
    elif plan.rounds:
        gradient = task_event(plan, terms, task(plan, terms, plan.preliminaries, 0))
        events.append((gradient, 1 if plan.sampling == "one-pass" else plan.rounds))
    return events
