"""Whatever happens at a gate, in whatever order: what left ≤ what was charged ≤ the budget, in both views.

A machine that hypothesis drives approves, ends and revokes plans, changes the budget, asks for rounds (new, repeated,
at other weights, out of order, of unknown plans) through two gates on one ledger, cuts the power at every moment of
every write, and restarts. Beside it stands a model of a few dictionaries that says what must come back.

RINGFENCE_EFFORT makes it try more (`tests.generated`).
"""

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import Event, seen_by
from ringfence.errors import ApprovalError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Answer, Observer, Plan, PublicKeys, Refusal, RefusalReason, RoundRequest, SiloTerms
from ringfence.protocol.plan.guarantee import against
from ringfence.protocol.plan.plan import task
from ringfence.shuffler import sealing
from ringfence.shuffler.sealing import verifying_key
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.records.records import Records
from tests.generated import examples
from tests.shuffler.shuffled_federation import NAMES, make_shuffled_plan, records_of, schema_of
from tests.silo.gate.accidents import MOMENTS, STEPS, full_disk, power_cut

DELTA = 1e-6
BUDGETS = [Budget(0.6, DELTA), Budget(0.6, 1e-5), Budget(1.4, DELTA), Budget(1.4, DELTA, anyone=3.0)]
"""Room for one plan, or for several; two pairs differ in delta alone, or in what is allowed without the shuffler."""

WEIGHTS = [0.0, 0.1]
KINDS = ["full", "correlated", "surveyed", "shuffled"]
KEY = sealing.new_key()

plans = st.sampled_from(KINDS)
rounds = st.integers(0, 3)  # no plan has a round 3
weights = st.sampled_from(WEIGHTS)
sides = st.integers(0, 1)
budgets = st.sampled_from(BUDGETS)
moments = st.sampled_from(MOMENTS)


@cache
def records() -> Records:
    return records_of(schema_of(2), 40, 0)


@cache
def plan_of(kind: str) -> Plan:
    schema, clinic = schema_of(2), Member("clinic", 40, 0.5, DELTA)
    if kind == "shuffled":
        silos = {name: verifying_key(KEY if name == "clinic" else sealing.new_key()) for name in NAMES}
        server, shuffler = (sealing.public_key(sealing.new_key()) for _ in range(2))
        keys = PublicKeys(server=server, shuffler=shuffler, silos=silos)
        return make_shuffled_plan(schema, keys, dict.fromkeys(NAMES, 40), epsilon=0.5)
    if kind == "surveyed":
        return make_plan(schema, [clinic], PlanRequest(rounds=2, survey=True))
    if kind == "correlated":
        return make_plan(schema, [clinic], PlanRequest(rounds=3, survey=False, sampling="one-pass", correlation=0.5))
    return make_plan(schema, [clinic], PlanRequest(rounds=3, survey=False))


def own_terms(plan: Plan) -> SiloTerms:
    terms = plan.terms("clinic")
    assert terms is not None
    return terms


OBSERVERS: tuple[Observer, ...] = ("server", "anyone")
"""The two views: of a server that does not work together with the shuffler, and of everybody together."""


def costs(events: Iterable[tuple[Event, int]], delta: float) -> dict[Observer, float]:
    """Return what the events cost in either view."""
    together = tuple(events)
    return {observer: _cost(tuple(seen_by(observer, together)), delta) for observer in OBSERVERS}


def limit(budget: Budget, observer: Observer) -> float:
    return against(budget.limits, observer).epsilon


@cache
def _cost(events: tuple[tuple[Event, int], ...], delta: float) -> float:
    return accountant.epsilon(events, delta)


@dataclass
class Approval:
    """What the model knows of a plan: its charged rounds with their weights, and the answers that are on the disk."""

    plan: Plan
    state: Literal["running", "finished", "revoked"] = "running"
    covered: bool = True
    charged: dict[int, float] = field(default_factory=dict)
    stored: dict[int, bytes | None] = field(default_factory=dict)
    """None stands for bytes that nobody has seen yet, because the power failed before they were sent."""

    def events(self, rounds: Iterable[int]) -> list[tuple[Event, int]]:
        """Return the events of charged rounds, in the order in which they were charged."""
        chosen, terms, found = set(rounds), own_terms(self.plan), []
        answered = [0] * len(self.plan.stages)
        for round in self.charged:
            stage = self.plan.place(round).number
            if round in chosen:
                found.append((task_event(self.plan, terms, task(self.plan, terms, round, answered[stage])), 1))
            answered[stage] += 1
        return found

    def reserved(self) -> list[tuple[Event, int]]:
        if self.state == "running":
            return plan_events(self.plan, own_terms(self.plan))
        return self.events(self.charged)


class SiloMachine(RuleBasedStateMachine):
    """Two gates of one silo, as two processes would have them, and the model."""

    @initialize(budget=budgets, kind=plans)
    def open(self, budget: Budget, kind: str) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "clinic.ledger"
        Ledger.create(self.path, silo="clinic", budget=budget).close()
        self.ledgers = [Ledger.open(self.path) for _ in range(2)]
        self.gates = [Gate(records(), ledger, KEY) for ledger in self.ledgers]
        self.budget = budget
        self.approvals: dict[str, Approval] = {}
        self.left: dict[tuple[str, int], bytes] = {}
        self.approve(0, kind)

    def teardown(self) -> None:
        if hasattr(self, "ledgers"):
            for ledger in self.ledgers:
                ledger.close()
            shutil.rmtree(self.folder)

    # -- what an operator does --

    def is_affordable(self, kind: str) -> bool:
        """Whether all that is reserved, and this plan anew, fits the budget in both views."""
        plan = plan_of(kind)
        others = [approval.reserved() for name, approval in self.approvals.items() if name != kind]
        together = [*chain.from_iterable(others), *plan_events(plan, own_terms(plan))]
        found = costs(together, self.budget.delta)
        return all(found[observer] <= limit(self.budget, observer) for observer in OBSERVERS)

    def has_ended(self, kind: str) -> bool:
        return kind in self.approvals and self.approvals[kind].state != "running"

    def is_new(self, kind: str) -> bool:
        """Whether an approval would change anything."""
        return kind not in self.approvals or not (self.has_ended(kind) or self.approvals[kind].covered)

    def is_decided(self, what: str, kind: str, budget: Budget) -> None:
        if what == "approved":
            known = self.approvals.setdefault(kind, Approval(plan_of(kind)))
            known.covered = True
        elif what == "finished":
            self.approvals[kind].state = "finished"
        elif what == "revoked":
            self.approvals[kind].state = "revoked"
        else:
            lower = any(limit(budget, observer) < limit(self.budget, observer) for observer in OBSERVERS)
            if lower or budget.delta < self.budget.delta:
                for approval in self.approvals.values():
                    approval.covered = False
            self.budget = budget

    @rule(side=sides, kind=plans)
    def approve(self, side: int, kind: str) -> None:
        if self.has_ended(kind):
            with pytest.raises(ApprovalError, match="and stays so"):
                self.gates[side].approve(plan_of(kind))
            return
        if not self.is_affordable(kind):
            with pytest.raises(ApprovalError, match="more than its budget"):
                self.gates[side].approve(plan_of(kind))
            return
        self.gates[side].approve(plan_of(kind))
        self.is_decided("approved", kind, self.budget)

    @rule(side=sides, kind=plans, budget=budgets, what=st.sampled_from(["finished", "revoked", "budget"]))
    def decide(self, side: int, kind: str, budget: Budget, what: str) -> None:
        if what == "budget":
            self.ledgers[side].grant(budget, note="a test")
        elif kind in self.approvals:
            self.gates[side].end(plan_of(kind), revoke=what == "revoked")
        else:
            with pytest.raises(ApprovalError, match="never approved"):
                self.gates[side].end(plan_of(kind), revoke=what == "revoked")
            return
        self.is_decided(what, kind, budget)

    # -- what a server does --

    def ask(self, side: int, plan: Plan, round: int, at: float) -> Answer:
        return self.gates[side].answer(RoundRequest.at(plan.digest(), round, np.full(plan.dimension, at)))

    def verdict(self, kind: str, round: int, at: float) -> RefusalReason | Literal["stored", "new"]:
        """Say what must come back."""
        approval = self.approvals.get(kind)
        if approval is None:
            return RefusalReason.NOT_APPROVED
        if approval.state == "revoked":
            return RefusalReason.REVOKED
        if round in approval.charged:
            if approval.charged[round] != at:
                return RefusalReason.ROUND_ANSWERED
            return "stored" if round in approval.stored else RefusalReason.ROUND_LOST
        if approval.state == "finished":
            return RefusalReason.REVOKED
        if not approval.covered:
            return RefusalReason.BUDGET
        if round >= approval.plan.rounds:
            return RefusalReason.ROUND_OUT_OF_RANGE
        return RefusalReason.ROUND_PASSED if round < max(approval.charged, default=0) else "new"

    @rule(side=sides, kind=plans, round=rounds, at=weights)
    def request(self, side: int, kind: str, round: int, at: float) -> None:
        expected = self.verdict(kind, round, at)
        answer = self.ask(side, plan_of(kind), round, at)
        if isinstance(expected, RefusalReason):
            assert isinstance(answer, Refusal)
            assert answer.reason is expected
            return
        assert not isinstance(answer, Refusal)
        approval, content = self.approvals[kind], answer.to_bytes()
        before = approval.stored.get(round)
        assert before in (None, content), "two different answers to one round"
        if expected == "new":
            self.is_charged(kind, round, at)
        approval.stored[round] = self.left[kind, round] = content

    @precondition(lambda self: self.approvals)
    @rule(side=sides, at=weights, data=st.data())
    def go_on(self, side: int, at: float, data: st.DataObject) -> None:
        """Ask an approved plan for the rounds behind the last one, as an honest server does."""
        kind = data.draw(st.sampled_from(sorted(self.approvals)))
        for _ in range(data.draw(st.integers(1, 3))):
            self.request(side, kind, max(self.approvals[kind].charged, default=-1) + 1, at)

    @precondition(lambda self: any(approval.charged for approval in self.approvals.values()))
    @rule(side=sides, data=st.data())
    def ask_again(self, side: int, data: st.DataObject) -> None:
        """Repeat a request for a round that was charged, whatever became of it."""
        charged = [
            (kind, round, at) for kind, approval in self.approvals.items() for round, at in approval.charged.items()
        ]
        self.request(side, *data.draw(st.sampled_from(sorted(charged))))

    # -- accidents --

    def restart(self, side: int) -> None:
        self.ledgers[side].close()
        self.ledgers[side] = Ledger.open(self.path)
        self.gates[side] = Gate(records(), self.ledgers[side], KEY)

    @rule(side=sides)
    def restart_in_peace(self, side: int) -> None:
        self.restart(side)

    def draw_a_new_round(self, data: st.DataObject) -> tuple[str, int]:
        """Draw an approved plan, and the first round that it has left or one behind it; most will be new."""
        kind = data.draw(st.sampled_from(sorted(self.approvals)))
        return kind, max(self.approvals[kind].charged, default=-1) + data.draw(st.integers(1, 2))

    @precondition(lambda self: self.approvals)
    @rule(side=sides, at=weights, written=st.sampled_from(["charged", "released"]), when=moments, data=st.data())
    def cut_the_power_while_a_round_is_written(
        self, side: int, at: float, written: str, when: str, data: st.DataObject
    ) -> None:
        kind, round = self.draw_a_new_round(data)
        if self.verdict(kind, round, at) == "new":
            with power_cut(written, when):
                self.ask(side, plan_of(kind), round, at)
            self.restart(side)
            if written == "released" or when == "after-commit":
                self.is_charged(kind, round, at)
            if written == "released" and when == "after-commit":
                self.approvals[kind].stored[round] = None

    @precondition(lambda self: self.approvals)
    @rule(side=sides, at=weights, what=st.sampled_from(["charged", "released", *STEPS]), data=st.data())
    def let_a_round_fail(self, side: int, at: float, what: str, data: st.DataObject) -> None:
        """By a power cut between charge and answer, or by a full disk, after which the same process goes on."""
        kind, round = self.draw_a_new_round(data)
        if self.verdict(kind, round, at) != "new":
            return
        if what in STEPS:
            with power_cut("", what):
                self.ask(side, plan_of(kind), round, at)
            self.restart(side)
        else:
            with full_disk(what):
                answer = self.ask(side, plan_of(kind), round, at)
            assert isinstance(answer, Refusal)
            assert answer.reason is RefusalReason.UNAVAILABLE
        if what != "charged":
            self.is_charged(kind, round, at)

    @rule(side=sides, kind=plans, budget=budgets, what=st.sampled_from(["approved", "revoked", "budget"]), when=moments)
    def cut_the_power_while_the_operator_decides(
        self, side: int, kind: str, budget: Budget, what: str, when: str
    ) -> None:
        gate = self.gates[side]
        if what == "approved" and self.is_new(kind) and self.is_affordable(kind):
            with power_cut(what, when):
                gate.approve(plan_of(kind))
        elif what == "revoked" and kind in self.approvals:
            with power_cut("ended", when):
                gate.end(plan_of(kind), revoke=True)
        elif what == "budget":
            with power_cut(what, when):
                self.ledgers[side].grant(budget, note="a test")
        else:
            return
        self.restart(side)
        if when == "after-commit":
            self.is_decided(what, kind, budget)

    # -- what always holds --

    def is_charged(self, kind: str, round: int, at: float) -> None:
        """At the moment of every charge the budget covers all that was charged, in both views."""
        self.approvals[kind].charged[round] = at
        charged = [approval.events(approval.charged) for approval in self.approvals.values()]
        found = costs(chain.from_iterable(charged), self.budget.delta)
        assert all(found[observer] <= limit(self.budget, observer) for observer in OBSERVERS)

    @invariant()
    def the_ledger_verifies_and_says_what_the_model_says(self) -> None:
        with Ledger.open(self.path) as ledger:
            account = ledger.account()
        assert account.budget == self.budget
        assert set(account.plans) == {plan_of(kind).digest() for kind in self.approvals}
        for kind, approval in self.approvals.items():
            found = account.plans[plan_of(kind).digest()]
            assert set(found.rounds) == set(approval.charged)
            assert {number for number, round in found.rounds.items() if round.answer} == set(approval.stored)

    @invariant()
    def what_left_costs_no_more_than_what_the_ledger_shows_in_both_views(self) -> None:
        left = [
            approval.events(round for name, round in self.left if name == kind)
            for kind, approval in self.approvals.items()
        ]
        found = costs(chain.from_iterable(left), self.budget.delta)
        text = self.ledgers[0].account().spent()
        rounding = 1 + 1e-12  # the same events, added up in another order
        assert all(found[observer] <= against(text, observer).epsilon * rounding for observer in OBSERVERS)


SiloMachine.TestCase.settings = examples(80, steps=40)
TestAnySequenceOfEvents = SiloMachine.TestCase
