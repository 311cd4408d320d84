"""Training several candidates in one process, comparing them privately, and returning the best.

`ringfence train --try` and `ringfence.estimators.FederatedSearch` call it. All candidates share one budget.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ringfence.errors import TrainingError
from ringfence.estimates.comparison import Candidate, Choice
from ringfence.federation.training import Silo, TrainingResult, local_federation, require_collector
from ringfence.planning.search import SearchProposal
from ringfence.protocol import Plan
from ringfence.server.channels import Collect
from ringfence.server.queries.comparison import comparison_of_run
from ringfence.server.queries.evaluation import evaluation_of_run
from ringfence.server.rounds import RoundOutcome


def train_and_choose(
    proposed: SearchProposal,
    silos: Mapping[str, Silo],
    *,
    watch: Callable[[Plan, RoundOutcome], None] = lambda plan, outcome: None,
    collect: Callable[[Plan], Collect] | None = None,
) -> tuple[TrainingResult, Choice]:
    """Approve all plans at every silo, train every candidate, compare them, and return the best with the comparison.

    Raises ApprovalError, before anything is released anywhere, if a silo's cap does not cover all of it. `collect`
    returns the way to collect the rounds of a plan that trusts a shuffler.
    """
    plans = proposed.plans
    collectors = [None if collect is None else collect(each.plan) for each in proposed.candidates]
    for each, collector in zip(proposed.candidates, collectors, strict=True):
        require_collector(each.plan, collector)
    with local_federation(plans, silos, proposed.promised) as federation:
        runs = [
            federation.run(each.plan, watch=partial(watch, each.plan), collect=collector)
            for each, collector in zip(proposed.candidates, collectors, strict=True)
        ]
        comparison = proposed.comparison
        judged = federation.run(comparison, watch=partial(watch, comparison), candidates=[run.weights for run in runs])
        found = comparison_of_run(judged.findings)
        if found is None:
            raise TrainingError(
                "No silo compared the candidates, so none can be chosen. What the silos answered so far stays charged."
            )
        federation.end()
        best = proposed.candidates[found.best].plan
        others = tuple(plan for plan in plans if plan is not best)
        statement = federation.statement(best, *others)
    choice = Choice(
        unit=comparison.unit,
        records=found.records,
        best=found.best,
        candidates=tuple(
            Candidate(settings=dict(own), plan=each.plan.digest(), above=found.above_best(number))
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
        evaluation_of_run(comparison, judged.findings),
        choice,
    )
    return result, choice
