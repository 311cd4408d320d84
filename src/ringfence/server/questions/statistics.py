"""Counts of cells are kept, each silo's own beside their mean: `server.statistics` makes tables of them."""

from collections.abc import Mapping

import numpy as np

from ringfence.errors import TrainingError
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Statistics
from ringfence.server.learned import Answers, Findings, Learned
from ringfence.server.questions.findings import with_findings
from ringfence.server.statistics import Tables, tabulate


def argument(question: Statistics, learned: Learned, step: int) -> FloatArray:
    """Return the start: the answer does not depend on it."""
    del question, step
    return np.zeros(learned.plan.dimension)


def receive(question: Statistics, learned: Learned, answers: Answers) -> Learned:
    """Keep what was found."""
    return with_findings(question, learned, answers)


def tables(plan: Plan, findings: Mapping[str, Findings]) -> Tables:
    """Return what a run of the plan found, as tables; TrainingError if it asked for no statistics."""
    for number, stage in enumerate(plan.stages):
        if isinstance(stage.question, Statistics) and stage.question.name in findings:
            return tabulate(stage.question, plan, number, findings[stage.question.name])
    raise TrainingError("This run's plan asks for no statistics: `ringfence statistics` makes one that does.")
