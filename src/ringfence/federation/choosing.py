"""Choosing among candidates in one process: all are trained and compared through the gates, for one price.

`ringfence train --try` and `ringfence.model_selection.FederatedSearch` are this function with files and with tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ringfence.errors import TrainingError
from ringfence.metrics.choice import Candidate, Choice
from ringfence.planning.choices import ChoiceProposal
from ringfence.planning.propose import Proposal
from ringfence.protocol.plan import Plan
from ringfence.server.channels import Collect
from ringfence.server.questions.comparison import compared
from ringfence.server.questions.evaluation import reported
from ringfence.server.rounds import RoundOutcome
from ringfence.training import Federation, Silo, TrainingResult, require_collector


@dataclass(frozen=True)
class ChoiceResult:
    """The best candidate: the proposal that it came from, its model and statement, and how all of them compare."""

    proposal: Proposal
    result: TrainingResult
    choice: Choice


def choose(
    proposed: ChoiceProposal,
    silos: Mapping[str, Silo],
    *,
    watch: Callable[[Plan, RoundOutcome], None] = lambda plan, outcome: None,
    collect: Callable[[Plan], Collect] | None = None,
) -> ChoiceResult:
    """Approve all plans at every silo, train every candidate, compare them, and return the best.

    Raises ApprovalError, before anything is released anywhere, if a silo's cap does not cover all of it. `collect` says
    how the rounds of a plan that trusts a shuffler are collected.
    """
    plans = proposed.plans
    collectors = [None if collect is None else collect(each.plan) for each in proposed.candidates]
    for each, collector in zip(proposed.candidates, collectors, strict=True):
        require_collector(each.plan, collector)
    with Federation(plans, silos, proposed.promised) as federation:
        runs = [
            federation.run(each.plan, watch=partial(watch, each.plan), collect=collector)
            for each, collector in zip(proposed.candidates, collectors, strict=True)
        ]
        comparison = proposed.comparison
        judged = federation.run(comparison, watch=partial(watch, comparison), candidates=[run.weights for run in runs])
        found = compared(judged.findings)
        if found is None:
            raise TrainingError(
                "No silo compared the candidates, so none can be chosen. What the silos answered so far stays charged."
            )
        federation.end()
        best = proposed.candidates[found.best]
        others = tuple(plan for plan in plans if plan is not best.plan)
        statement = federation.statement(best.plan, *others)
    choice = Choice(
        unit=comparison.unit,
        records=found.records,
        best=found.best,
        candidates=tuple(
            Candidate(settings=dict(own), plan=each.plan.digest(), above=found.above(number))
            for number, (own, each) in enumerate(zip(proposed.settings, proposed.candidates, strict=True))
        ),
        plans=others,
    )
    run = runs[found.best]
    result = TrainingResult(
        run.weights,
        statement,
        run.history,
        {**run.findings, **judged.findings},
        reported(comparison, judged.findings),
        choice,
    )
    return ChoiceResult(best, result, choice)
