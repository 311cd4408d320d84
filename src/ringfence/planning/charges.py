"""What a plan costs a silo, as events: of one round's task, and of all rounds together.

Computed from the plan alone, so that the planner, the silo's gate and the ledger's reader agree.
"""

from ringfence.errors import AccountingError
from ringfence.planning import correlation
from ringfence.planning.events import (
    BinomialRelease,
    DisjointBatchRelease,
    Event,
    GaussianRelease,
    per_round_event,
    rounding_of,
    shift_of,
)
from ringfence.planning.shuffling import mixing_distance
from ringfence.protocol.algorithms import Localized
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import Task, survey_sensitivity, task
from ringfence.protocol.shuffle import Shuffle

MIXED = 2.0**-160
"""How far, in total variation, a round's shuffled shares may be from telling their total only."""


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
    if plan.shuffle is not None:
        return _shuffled_event(plan, plan.shuffle, terms, work)
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


def counts_rounding(records: int, dimension: int) -> float:
    """Return by how much more than in exact arithmetic counts may move, as a factor.

    Beside the sum's own rounding, its height in counts is computed, and rounded at random, in double precision: a
    height of up to gK is off by at most gK·2⁻⁵² for either neighbour, which is like moving the sum by as much. Over
    all coordinates that is less, relative to g, than what the sum's rounding is allowed once.
    """
    return rounding_of(records, dimension) ** 2


def _shuffled_event(plan: Plan, shuffle: Shuffle, terms: SiloTerms, work: Task) -> BinomialRelease:
    """Return what counts cost that leave the shuffler with those of at least quorum − 1 other honest silos.

    Which others is not the silo's choice, so those with the fewest coins count. Shares that do not hide each silo's own
    counts are refused: then the shuffled guarantee would be none.
    """
    distance = shuffle.blocks(plan.numbers) * mixing_distance(
        parties=shuffle.quorum, shares=shuffle.shares, bits=8 * shuffle.width * shuffle.block
    )
    if distance > MIXED:
        raise AccountingError(
            f"Cut into {shuffle.shares} shares, the counts of {shuffle.quorum} silos are not proved to be hidden from "
            "the server, so the plan's guarantee would not hold: ask for a plan with more shares."
        )
    others = sorted(other.batch for other in plan.silos if other.name != terms.name)
    return BinomialRelease(
        reach=shuffle.levels * counts_rounding(terms.records, plan.dimension),
        trials=shuffle.coins * (terms.batch + sum(others[: shuffle.quorum - 1])),
        own=shuffle.coins * terms.batch,
        dimension=plan.dimension,
        slack=shuffle.slack,
        partition="" if work.part is None else plan.digest(),
        part=work.part or 0,
    )
