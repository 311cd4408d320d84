"""Counts of cells are kept, each silo's own beside their mean: `server.statistics` makes tables of them."""

from collections.abc import Mapping

from ringfence.errors import TrainingError
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Statistics
from ringfence.server.learned import Findings
from ringfence.server.questions.findings import argument, receive
from ringfence.server.statistics import Tables, tabulate

__all__ = ["argument", "receive", "tables"]


def tables(plan: Plan, findings: Mapping[str, Findings]) -> Tables:
    """Return what a run of the plan found, as tables; TrainingError if it asked for no statistics."""
    for number, stage in enumerate(plan.stages):
        if isinstance(stage.question, Statistics) and stage.question.name in findings:
            return tabulate(stage.question, plan, number, findings[stage.question.name])
    raise TrainingError("This run's plan asks for no statistics: `ringfence statistics` makes one that does.")
