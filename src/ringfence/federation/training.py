"""Training across silos in one process: real gates, real noise, real ledgers, and a server that sees only messages.

    result = train(plan, {"north": Silo(records, Path("north.ledger"))})
    result.model.save(Path("model.json"))

The caller acts as every silo's operator: the plan is approved and its budget granted here, and each ledger records it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.accounting.charges import costs, plan_events
from ringfence.accounting.filters import enough
from ringfence.errors import ApprovalError, TrainingError
from ringfence.estimates.comparison import Choice
from ringfence.estimates.metrics import EvaluationReport
from ringfence.federation import peers
from ringfence.federation.unclamped import unclamped_targets
from ringfence.model.model import Model
from ringfence.model.statement import SiloGuarantee, Statement
from ringfence.protocol import FloatArray, Guarantee, Plan, observers_of
from ringfence.server import rounds
from ringfence.server.channels import Collect
from ringfence.server.conduct import rounds_answered
from ringfence.server.queries.evaluation import evaluation_of_run
from ringfence.server.state import Findings
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records


@dataclass(frozen=True)
class Silo:
    """A silo of an in-process federation: its records, its ledger's path, and its cap.

    `cap` is the most that all runs on this data set together may cost. Without one, each run is granted what it
    needs on top of earlier runs, and the guarantee over all runs grows. `key` signs what goes
    through a shuffler. Plans divide records by position, so the records of one ledger must keep their order; this is
    checked for records read from a file. Records have one ledger (`silo.ledger.custody`): `new_beginning` gives the
    reason for another one, and `is_their_ledger` confirms this one where the registry does not know it.
    """

    records: Records
    ledger: Path
    cap: Budget | None = None
    key: bytes | None = field(default=None, repr=False)
    new_beginning: str = ""
    is_their_ledger: bool = False


@dataclass(frozen=True)
class TrainingResult:
    """The learned weights, the statement from each silo's ledger, the rounds, and the statistics.

    `knots` are those of the model's curves. `evaluation` is the private evaluation of the model, if a stage of the plan
    asks for one. `choice` compares the
    candidates, if there were several.
    """

    weights: FloatArray
    statement: Statement
    history: tuple[rounds.RoundOutcome, ...]
    findings: Mapping[str, Findings] = field(default_factory=dict)
    evaluation: EvaluationReport | None = None
    choice: Choice | None = None
    knots: FloatArray | None = None

    @cached_property
    def model(self) -> Model:
        """The trained model; TrainingError if the plan trains none."""
        plan, guarantees = self.statement.plan, self.statement.silos
        if not plan.steps:
            raise TrainingError("This plan trains nothing, so there is no model.")
        answered = rounds_answered(plan, self.history)
        return Model.of(
            plan,
            self.weights,
            answered,
            knots=self.knots,
            guarantees=guarantees,
            evaluation=self.evaluation,
            choice=self.choice,
        )


CHOOSING = (
    "If you choose the next run by these numbers, the choice reveals something about these records that no epsilon "
    "covers. Use the private evaluation for that."
)
"""A warning beside every number that was measured without noise."""


@dataclass(frozen=True)
class ExactScores:
    """A model's score without noise, over all records and per silo, for those who may see these records.

    Targets are as in the file. `clamped` is the score with targets clamped to the schema's bounds, as in training, if
    any lies beyond them.
    """

    metric: str
    value: float
    per_silo: Mapping[str, float]
    clamped: float | None = None

    def as_data(self) -> dict[str, Any]:
        """Return scores without noise as plain data that says that it is not private."""
        beside = {} if self.clamped is None else {f"{self.metric}_clamped": self.clamped}
        return {"test": {self.metric: self.value, **beside, "per_silo": dict(self.per_silo)}, "test_is_private": False}

    @property
    def remark(self) -> str:
        """A sentence about targets that training clamped, or an empty text if none was."""
        if self.clamped is None:
            return ""
        return (
            "Some of these targets lie beyond the schema's bounds, to which training clamps them. With clamped "
            f"targets, the overall {self.metric} is {self.clamped:.4g}."
        )


def train(
    plan: Plan,
    silos: Mapping[str, Silo],
    *,
    watch: Callable[[rounds.RoundOutcome], None] = lambda outcome: None,
    peer_to_peer: bool = False,
    collect: Collect | None = None,
) -> TrainingResult:
    """Approve the plan at every silo, run its rounds through the gates, and end it.

    With `peer_to_peer` there is no server: every silo takes the steps itself (`federation.peers`). A plan that trusts
    a shuffler needs one to `collect` from (`local_shuffler`), and silos with keys. Raises ApprovalError, before
    anything is released anywhere, if a silo's cap does not cover the plan.
    """
    require_collector(plan, collect, peer_to_peer=peer_to_peer)
    with local_federation([plan], silos) as federation:
        trained = federation.run(plan, watch=watch, peer_to_peer=peer_to_peer, collect=collect)
        federation.end()
        statement, evaluation = federation.statement(plan), evaluation_of_run(plan, trained.findings)
    return TrainingResult(
        trained.weights, statement, trained.history, trained.findings, evaluation, knots=trained.knots
    )


def require_collector(plan: Plan, collect: Collect | None, *, peer_to_peer: bool = False) -> None:
    """Refuse a plan with a shuffler but without a way to collect from one, and the reverse."""
    collected = any(stage.channel.is_collected for stage in plan.stages)
    if (collect is not None) != collected or (peer_to_peer and collected):
        raise TrainingError("A plan with a shuffler needs a shuffler and a server; other plans take no shuffler.")


@dataclass(frozen=True)
class LocalFederation:
    """The gates and ledgers of silos in one process, at which plans were approved.

    `promised` are each silo's guarantees for all plans together.
    """

    plans: Sequence[Plan]
    promised: Mapping[str, Sequence[Guarantee]]
    gates: dict[str, Gate] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)

    def end(self) -> None:
        """End all plans of the federation: nothing more is answered, and unused reservations are returned."""
        for name, gate in self.gates.items():
            approved = self.ledgers[name].account().plans
            for plan in self.plans:
                if plan.digest() in approved and not approved[plan.digest()].ended:
                    gate.end(plan)

    def approve(self) -> None:
        """Approve all plans at every silo; those that finished earlier repeat their answers and need no approval."""
        for name, gate in self.gates.items():
            approved = self.ledgers[name].account().plans
            for plan in self.plans:
                if plan.digest() not in approved or approved[plan.digest()].ended != "finished":
                    gate.approve(plan)

    def run(
        self,
        plan: Plan,
        *,
        watch: Callable[[rounds.RoundOutcome], None] = lambda outcome: None,
        peer_to_peer: bool = False,
        collect: Collect | None = None,
        candidates: Sequence[FloatArray] = (),
    ) -> rounds.RunResult:
        """Run one of the federation's plans through the gates."""
        if peer_to_peer:
            return peers.train_as_peers(plan, self.gates, watch=watch)
        return rounds.run(
            plan,
            lambda request, names: {name: self.gates[name].answer(request) for name in names},
            watch=watch,
            collect=collect,
            candidates=candidates,
        )

    def statement(self, plan: Plan, *others: Plan) -> Statement:
        """Return each silo's guarantee for these plans together and for everything in its ledger."""
        guarantees = {
            name: _guarantee((plan, *others), name, ledger, self.promised[name])
            for name, ledger in self.ledgers.items()
        }
        return Statement(plan, guarantees, others)


@contextmanager
def local_federation(
    plans: Sequence[Plan], silos: Mapping[str, Silo], promised: Mapping[str, Sequence[Guarantee]] | None = None
) -> Iterator[LocalFederation]:
    """Approve the plans at every silo; at the end, end them and close the ledgers.

    `promised` are the silos' guarantees for all plans together, by default those of the only plan. Every silo's ledger
    is granted a budget that covers all plans, if its cap allows it, and approves all of them before anything is asked:
    ApprovalError if a cap does not cover them.
    """
    federation = LocalFederation(plans, promised or {terms.name: terms.guarantees for terms in plans[0].silos})
    with ExitStack() as open_files:
        try:
            for name, silo in silos.items():
                ledger = open_files.enter_context(_ledger(plans, name, silo, federation.promised))
                federation.ledgers[name] = ledger
                federation.gates[name] = Gate(silo.records, ledger, silo.key)
                if silo.records.marks is not None:
                    custody.require_current(ledger, silo.records.marks)
            federation.approve()
            yield federation
        finally:
            federation.end()  # also after an error or Ctrl-C: unused rounds must not stay reserved


def exact_scores(model: Model, tests: Mapping[str, Records]) -> ExactScores:
    """Measure the model without noise on at least one silo's records, with targets as in the file."""
    tests = {name: test.encoded(model.data) for name, test in tests.items()}
    features = np.concatenate([test.features for test in tests.values()])
    clamped = np.concatenate([test.targets for test in tests.values()])
    targets = np.concatenate([unclamped_targets(test) for test in tests.values()])
    ((metric, value),) = model.evaluate(features, targets).items()
    per_silo = {name: model.evaluate(test.features, unclamped_targets(test))[metric] for name, test in tests.items()}
    beside = None if np.array_equal(targets, clamped) else model.evaluate(features, clamped)[metric]
    return ExactScores(metric, value, per_silo, beside)


def _ledger(plans: Sequence[Plan], name: str, silo: Silo, promised: Mapping[str, Sequence[Guarantee]]) -> Ledger:
    """Open or start the silo's ledger, with a budget that covers the plans if the cap allows it."""
    terms = [own for plan in plans if (own := plan.terms(name)) is not None]
    if len(terms) != len(plans):
        raise ApprovalError(f"Silo '{name}' is not part of this plan.")
    ledger = _open(name, silo, silo.cap or Budget.of(promised[name]))
    account = ledger.account()
    if silo.cap is not None:
        if account.budget != silo.cap:
            ledger.grant(silo.cap, note="the cap of a run in one process")
        return ledger
    delta = max(account.budget.delta, promised[name][0].delta)
    asked = {plan.digest(): plan_events(plan, own) for plan, own in zip(plans, terms, strict=True)}
    history = account.commitments(asked)
    needed = account.budget.raised(
        [
            enough(history, account.budget.limit(observer).model_copy(update={"delta": delta}))
            for observer in observers_of(account.observers, *(plan.observers for plan in plans))
        ]
    )
    if not account.budget.covers(needed):
        ledger.grant(needed, note="what a run without a cap needed")
    return ledger


def _open(name: str, silo: Silo, budget: Budget) -> Ledger:
    """Open the ledger of a silo's data for training in this process, or start one."""
    marks = silo.records.marks
    if marks is not None:
        return custody.open_ledger(
            silo.ledger, marks, silo=name, budget=budget, reason=silo.new_beginning, named=silo.is_their_ledger
        )
    if not silo.ledger.exists():
        return Ledger.create(silo.ledger, silo=name, budget=budget)
    return Ledger.open(silo.ledger, owner=name)


def _guarantee(plans: Sequence[Plan], name: str, ledger: Ledger, promise: Sequence[Guarantee]) -> SiloGuarantee:
    """Return a silo's guarantee for these plans, and for all runs in its ledger, after training."""
    account = ledger.account()
    approved = [account.plans[plan.digest()] for plan in plans]
    terms = plans[0].terms(name)
    assert terms is not None  # noqa: S101 (the gate approved it)
    charged = [event for each in approved for event in each.charged()]
    return SiloGuarantee(
        records=terms.records,
        rounds=sum(len(each.rounds) for each in approved),
        this_run=tuple(promise),
        all_runs=account.guarantees(),
        used=costs(charged, observers_of(*(plan.observers for plan in plans)), promise[0].delta),
        remarks=tuple(account.remarks),
    )
