"""Counts of cells are kept, each silo's own beside their mean: `estimates.statistics` makes tables of them."""

from collections.abc import Mapping

from ringfence.errors import TrainingError
from ringfence.estimates.statistics import StatisticsTables, statistics_tables
from ringfence.protocol import Plan, Statistics
from ringfence.server.state import Findings


def statistics_of_run(plan: Plan, findings: Mapping[str, Findings]) -> StatisticsTables:
    """Return what a run of the plan found, as tables; TrainingError if it asked for no statistics."""
    for number, stage in enumerate(plan.stages):
        if isinstance(stage.query, Statistics) and stage.query.name in findings:
            return statistics_tables(stage.query, plan, number, findings[stage.query.name].each)
    raise TrainingError("This run's plan asks for no statistics: `ringfence statistics` makes one that does.")
