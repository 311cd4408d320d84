"""The cost of a plan to a silo, as events: of one round's task, and of all rounds together.

Computed from the plan alone, so that the planner, the silo's gate and the ledger's reader agree.
"""

from collections.abc import Collection, Iterable

from ringfence.accounting import accountant
from ringfence.accounting.channels import COSTS
from ringfence.accounting.events import Event, Events, SectionRelease, seen_by
from ringfence.protocol import Guarantee, Observer, Plan, SiloTerms, Task
from ringfence.protocol.plan.plan import task


def task_event(plan: Plan, terms: SiloTerms, work: Task) -> Event:
    """Return the event of one round's task, about the section that its stage asks."""
    channel, section = work.stage.channel, work.stage.section
    release = COSTS[type(channel)](channel, plan, terms, work)
    return release if section is None else SectionRelease(f"{plan.held_out} held out", section, release)


def plan_events(plan: Plan, terms: SiloTerms) -> list[tuple[Event, int]]:
    """Return events that cost as much as all rounds of the plan that the silo may answer.

    Which rounds these are does not matter: all rounds of a stage cost the same. Disjoint parts cost together what one
    of them does, so a one-pass stage is its first part only.
    """
    return [
        (task_event(plan, terms, task(plan, terms, first, 0)), stage.sampling.times(stage.most_answers))
        for stage, first in zip(plan.stages, plan.first_rounds, strict=True)
    ]


def all_events(plans: Iterable[Plan], silo: str) -> list[tuple[Event, int]]:
    """Return the events of all these plans for the silo; plans without it have none."""
    terms = [(plan, plan.terms(silo)) for plan in plans]
    return [event for plan, own in terms if own is not None for event in plan_events(plan, own)]


def person_events(plan: Plan, silos: Collection[str]) -> list[tuple[Event, int]]:
    """Return the plan's events for a person with a record in each of these silos, against anyone.

    Each silo draws its noise, and who takes part, independently, so the silos' releases compose. Only what anyone may
    see is counted: a total over silos would move by the records of all of them.
    """
    return [
        (event.of_silo(terms.name), count)
        for terms in plan.silos
        if terms.name in silos
        for event, count in seen_by("anyone", plan_events(plan, terms))
    ]


def cost(events: Events, guarantee: Guarantee) -> float:
    """Return the epsilon charged for the events against the guarantee's observer, at its delta."""
    return accountant.epsilon(seen_by(guarantee.against, events), guarantee.delta)


def costs(events: Events, observers: Iterable[Observer], delta: float) -> tuple[Guarantee, ...]:
    """Return the total charge for the events against each of the observers, at one delta."""
    return tuple(
        Guarantee(epsilon=accountant.epsilon(seen_by(observer, events), delta), delta=delta, against=observer)
        for observer in observers
    )
