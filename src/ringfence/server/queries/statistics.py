"""The tables and the survival curve of a run, from the silos' own counts and shares beside their means.

Of those at risk when a part of the time begins, a share has an event in it. Who leaves without one in that part counts
as at risk for half of it, as in a life table: between cuts nobody knows when. The curve is the product of what is left,
as Kaplan and Meier's is, which it equals where nobody leaves between an event and the next cut.
"""

from collections.abc import Mapping

from ringfence.errors import TrainingError
from ringfence.estimates.statistics import StatisticsTables, statistics_tables
from ringfence.estimates.survival import SurvivalPoint, survival_points
from ringfence.protocol import Plan, Statistics, SurvivalCurve
from ringfence.server.algorithms.survey import project_onto_simplex
from ringfence.server.state import Findings


def statistics_of_run(plan: Plan, findings: Mapping[str, Findings], *, by_silo: bool = True) -> StatisticsTables:
    """Return what a run of the plan found, as tables; `by_silo` also each silo's and how they differ.

    TrainingError if it asked for no statistics.
    """
    for number, stage in enumerate(plan.stages):
        if isinstance(stage.query, Statistics) and stage.query.name in findings:
            return statistics_tables(stage.query, plan, number, findings[stage.query.name].each, by_silo=by_silo)
    raise TrainingError("This run's plan asks for no statistics: `ringfence statistics` makes one that does.")


def survival_curve_of_run(plan: Plan, findings: Mapping[str, Findings]) -> list[SurvivalPoint] | None:
    """Return the survival curve of the records of all silos that answered; None if the plan asks for none."""
    for stage in plan.stages:
        if isinstance(stage.query, SurvivalCurve) and stage.query.name in findings:
            found = findings[stage.query.name]
            records = sum(terms.records for terms in plan.silos if terms.name in found.each)
            return survival_points(stage.query.cuts, project_onto_simplex(found.statistic), found.noise, records)
    return None
