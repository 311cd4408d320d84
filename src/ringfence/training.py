"""Training across silos in one process: real gates, real noise, real ledgers, and a server that sees messages.

This is the whole federation on one machine. The person who runs it is every silo's operator at once, so
approving the plan and granting its budget happen here, in the open, and stand in each silo's ledger.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ringfence import peers
from ringfence.accounting.charges import costs, plan_events
from ringfence.accounting.filters import enough
from ringfence.errors import ApprovalError, TrainingError
from ringfence.metrics.report import EvaluationReport
from ringfence.model import Model
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.guarantee import observers_of
from ringfence.protocol.plan import Plan
from ringfence.server import rounds
from ringfence.server.channels import Collect
from ringfence.server.learned import Findings
from ringfence.server.questions.evaluation import reported
from ringfence.silo import custody
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.silo.records import Records
from ringfence.statement import SiloGuarantee, Statement


@dataclass(frozen=True)
class Silo:
    """A silo of an in-process federation: its records, where its ledger is, and what it must never exceed.

    `cap` is the most that all runs on this data set together may cost; without one, the operator who starts a run
    grants what it needs on top of what was used before, and what is guaranteed of all runs grows. `key` signs what goes
    through a shuffler. Plans divide records by their places, so that those of one ledger must come in one order; of
    records that were read from a file this is checked. They have one ledger (`silo.custody`): `new_beginning` says why
    they get another, and `is_their_ledger` that this one is theirs where the registry does not know it.
    """

    records: Records
    ledger: Path
    cap: Budget | None = None
    key: bytes | None = field(default=None, repr=False)
    new_beginning: str = ""
    is_their_ledger: bool = False


@dataclass(frozen=True)
class TrainingResult:
    """The learned weights, what each silo's ledger says, the rounds, and the statistics that were asked for.

    `evaluation` is what the silos told of the model, if a stage of the plan asked: private like all the rest.
    """

    weights: FloatArray
    statement: Statement
    history: tuple[rounds.RoundOutcome, ...]
    findings: Mapping[str, Findings] = field(default_factory=dict)
    evaluation: EvaluationReport | None = None

    @cached_property
    def model(self) -> Model:
        """The model; TrainingError if the plan trains none."""
        plan, guarantees = self.statement.plan, self.statement.silos
        if not plan.steps:
            raise TrainingError("This plan trains nothing, so there is no model.")
        answered = {name: guarantee.rounds for name, guarantee in guarantees.items()}
        return Model.of(plan, self.weights, answered, guarantees, self.evaluation)


CHOOSING = (
    "Choosing the next run by these numbers tells of these records, which no epsilon here counts; that is what the "
    "private evaluation is for."
)
"""What stands beside every number that was measured on held-out records."""


@dataclass(frozen=True)
class ExactScores:
    """How good a model is, without noise, all records together and per silo. For whoever may see these records."""

    metric: str
    value: float
    per_silo: Mapping[str, float]

    def as_data(self) -> dict[str, Any]:
        """Return the numbers for machines, with the word that they are not private."""
        return {"test": {self.metric: self.value, "per_silo": dict(self.per_silo)}, "test_is_private": False}


def train(
    plan: Plan,
    silos: Mapping[str, Silo],
    *,
    watch: Callable[[rounds.RoundOutcome], None] = lambda outcome: None,
    peer_to_peer: bool = False,
    collect: Collect | None = None,
) -> TrainingResult:
    """Approve the plan at every silo, run its rounds through the gates, and end it.

    With `peer_to_peer` there is no server: every silo takes the steps itself (`ringfence.peers`). A plan that trusts
    a shuffler needs one to `collect` from (`local_shuffler`), and silos with keys. Raises ApprovalError, before
    anything is released anywhere, if a silo's cap does not cover the plan.
    """
    collected = any(stage.channel.is_collected for stage in plan.stages)
    if (collect is not None) != collected or (peer_to_peer and collected):
        raise TrainingError("A plan that trusts a shuffler needs one, and a server; no other plan has use for it.")
    with ExitStack() as open_files:
        gates: dict[str, Gate] = {}
        ledgers: dict[str, Ledger] = {}
        for name, silo in silos.items():
            ledgers[name] = open_files.enter_context(_ledger(plan, name, silo))
            gates[name] = Gate(silo.records, ledgers[name], silo.key)
            if silo.records.marks is not None:
                custody.require_current(ledgers[name], silo.records.marks)
        try:
            for gate in gates.values():
                gate.approve(plan)
            if peer_to_peer:
                trained = peers.run(plan, gates, watch=watch)
            else:
                trained = rounds.run(
                    plan,
                    lambda request, names: {name: gates[name].answer(request) for name in names},
                    watch=watch,
                    collect=collect,
                )
        finally:
            # Also after an error or Ctrl-C: what was not asked for must not stay reserved.
            for name, gate in gates.items():
                if plan.digest() in ledgers[name].account().plans:
                    gate.end(plan)
        guarantees = {name: _guarantee(plan, name, ledger) for name, ledger in ledgers.items()}
        evaluation, statement = reported(plan, trained.findings), Statement(plan, guarantees)
        return TrainingResult(trained.weights, statement, trained.history, trained.findings, evaluation)


def exact_scores(model: Model, tests: Mapping[str, Records]) -> ExactScores:
    """Measure the model, without noise, on at least one silo's records."""
    pooled = model.evaluate(
        np.concatenate([test.features for test in tests.values()]),
        np.concatenate([test.targets for test in tests.values()]),
    )
    ((metric, value),) = pooled.items()
    per_silo = {name: model.evaluate(test.features, test.targets)[metric] for name, test in tests.items()}
    return ExactScores(metric, value, per_silo)


def _ledger(plan: Plan, name: str, silo: Silo) -> Ledger:
    """Open or start the silo's ledger, with a budget that covers the plan if the cap allows it."""
    terms = plan.terms(name)
    if terms is None:
        raise ApprovalError(f"Silo '{name}' has no part in this plan.")
    ledger = _open(name, silo, silo.cap or Budget.of(terms.guarantees))
    account = ledger.account()
    if silo.cap is not None:
        if account.budget != silo.cap:
            ledger.grant(silo.cap)
        return ledger
    delta = max(account.budget.delta, terms.guarantee.delta)
    history = account.commitments(plan, plan_events(plan, terms))
    needed = account.budget.raised(
        [
            enough(history, account.budget.limit(observer).model_copy(update={"delta": delta}))
            for observer in observers_of(account.observers, plan.observers)
        ]
    )
    if not account.budget.covers(needed):
        ledger.grant(needed)
    return ledger


def _open(name: str, silo: Silo, budget: Budget) -> Ledger:
    marks = silo.records.marks
    if marks is not None:
        return custody.open_ledger(
            silo.ledger, marks, silo=name, budget=budget, reason=silo.new_beginning, named=silo.is_their_ledger
        )
    if not silo.ledger.exists():
        return Ledger.create(silo.ledger, silo=name, budget=budget)
    return Ledger.open(silo.ledger, owner=name)


def _guarantee(plan: Plan, name: str, ledger: Ledger) -> SiloGuarantee:
    account = ledger.account()
    approved = account.plans[plan.digest()]
    terms = plan.terms(name)
    assert terms is not None  # noqa: S101 (the gate approved it)
    return SiloGuarantee(
        records=terms.records,
        rounds=len(approved.rounds),
        this_run=terms.guarantees,
        all_runs=account.guarantees(),
        used=costs(approved.charged(), plan.observers, terms.guarantee.delta),
        remarks=tuple(account.remarks),
    )
