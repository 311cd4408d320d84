"""A survival curve from the shares of records that end in each part of the time, with intervals.

Of those at risk when a part begins, a share has an event in it. Whoever leaves without one in that part is counted as
at risk for half of it, as in a life table: between cuts nobody knows when. The curve is the product of what is left, as
Kaplan and Meier's is, which it equals where nobody leaves between an event and the next cut.
"""

from collections.abc import Mapping

from ringfence.estimates.survival import SurvivalPoint, survival_points
from ringfence.protocol import Plan, SurvivalCurve
from ringfence.server.algorithms.survey import project_onto_simplex
from ringfence.server.state import Findings


def survival_curve_of_run(plan: Plan, findings: Mapping[str, Findings]) -> list[SurvivalPoint] | None:
    """Return the survival curve of the records of all silos that answered; None if the plan asks for none."""
    for stage in plan.stages:
        if isinstance(stage.query, SurvivalCurve) and stage.query.name in findings:
            found = findings[stage.query.name]
            records = sum(terms.records for terms in plan.silos if terms.name in found.each)
            return survival_points(stage.query.cuts, project_onto_simplex(found.statistic), found.noise, records)
    return None
