"""The ledger: everything a data set's operator ever allowed and everything that ever left, as events.

Its entries, in the order they were made:

    opened     whose ledger it is, and under which adjacency it counts
    budget     the total (epsilon, delta) that all releases together may reach, also without the shuffler
    approved   a plan, whole, and the privacy events that all its rounds come to; reserves their cost
    charged    a round of a plan, the weights it was asked for, and its event: written before the release
    released   the same round's answer, byte for byte: written before it is sent
    refused    what was asked in vain, and why
    ended      no further round of that plan is answered; gives back what it reserved and did not use

What was spent is the exact composition of the charged events; a crash can only leave a charge without a
release, never the reverse.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self, TypeVar

from ringfence.errors import AccountingError, ApprovalError, LedgerDamagedError, PlanError
from ringfence.planning import accountant
from ringfence.planning.events import (
    Event,
    as_seen_alone,
    event_from_dict,
    require_positive,
    require_probability,
)
from ringfence.protocol.plan import Plan
from ringfence.silo.chain import Chain, Draft, Entry

Decision = TypeVar("Decision")
Value = TypeVar("Value")

_ENDS: dict[str, Literal["finished", "revoked"]] = {"finished": "finished", "revoked": "revoked"}

LOGGED_REFUSALS = 10_000
"""Refusals beyond this many are not logged, so that a hostile server cannot fill the silo's disk."""


@dataclass(frozen=True)
class Budget:
    """The most that all releases from a data set may cost together.

    Plans that trust a shuffler cost more against a server that works together with it. `alone` is the most epsilon that
    the operator takes in that case; None means no more than in any other.
    """

    epsilon: float
    delta: float
    alone: float | None = None

    @property
    def most_alone(self) -> float:
        """The most epsilon against a server that works together with the shuffler."""
        return self.epsilon if self.alone is None else self.alone

    def as_data(self) -> dict[str, float]:
        """Return the budget for the ledger and for machines; without `alone` where that says nothing new."""
        return {"epsilon": self.epsilon, "delta": self.delta, **({} if self.alone is None else {"alone": self.alone})}

    def covers(self, other: "Budget") -> bool:
        """Tell whether whatever the other budget allows, this one allows too."""
        return self.epsilon >= other.epsilon and self.delta >= other.delta and self.most_alone >= other.most_alone


@dataclass
class Round:
    """A charged round: what it was asked for, and its answer if that was stored."""

    number: int
    weights: str
    event: Event
    answer: bytes | None = None


@dataclass
class Approved:
    """A plan that the operator approved, and the rounds charged to it."""

    plan: Plan
    events: list[tuple[Event, int]]
    """What all rounds of the plan come to."""
    time: str
    covered: bool = True
    """Whether the budget, as it stands, was found to cover the plan: not after it was lowered."""
    ended: Literal["", "finished", "revoked"] = ""
    rounds: dict[int, Round] = field(default_factory=dict)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of the rounds charged so far."""
        return list(Counter(charge.event for charge in self.rounds.values()).items())

    def reserved(self) -> list[tuple[Event, int]]:
        """Return what counts against the budget: all rounds while the plan runs, the charged ones after."""
        return self.charged() if self.ended else self.events


@dataclass
class Account:
    """What the entries say, read in order."""

    silo: str = ""
    budget: Budget = Budget(0.0, 0.0)
    plans: dict[str, Approved] = field(default_factory=dict)
    refusals: int = 0
    last: Entry | None = None

    def tail(self) -> tuple[int, str | None]:
        """Return the number and hash of the last entry."""
        return (0, None) if self.last is None else (self.last.number, self.last.hash)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of everything charged so far."""
        return [event for approved in self.plans.values() for event in approved.charged()]

    def reserved(self, *, without: str = "") -> list[tuple[Event, int]]:
        """Return the events that running plans may yet come to, and those that ended plans did come to."""
        return [event for digest, p in self.plans.items() if digest != without for event in p.reserved()]

    def spent(self) -> float:
        """Return the epsilon of everything charged, at the budget's delta."""
        return accountant.epsilon(self.charged(), self.budget.delta)

    def spent_alone(self) -> float:
        """Return the same against a server that works together with the shuffler of plans that trust one."""
        return accountant.epsilon(as_seen_alone(self.charged()), self.budget.delta)

    def apply(self, entry: Entry) -> None:
        """Take one more entry into account; KeyError, TypeError or ValueError if it is not as we write them."""
        body = entry.body
        if entry.kind == "opened":
            self.silo = _typed(str, body["silo"])
        elif entry.kind == "budget":
            self._set_budget(_valid(Budget(body["epsilon"], body["delta"], body.get("alone"))))
        elif entry.kind == "approved":
            self._approve(entry)
        elif entry.kind == "charged":
            number, weights = _typed(int, body["round"]), _typed(str, body["weights"])
            self.plans[body["plan"]].rounds[number] = Round(number, weights, event_from_dict(body["event"]))
        elif entry.kind == "released":
            self.plans[body["plan"]].rounds[body["round"]].answer = entry.payload
        elif entry.kind == "refused":
            _typed(str, body["reason"])
            self.refusals += 1
        elif entry.kind == "ended":
            self.plans[body["plan"]].ended = _ENDS[body["why"]]
        else:
            raise KeyError(entry.kind)
        self.last = entry

    def _set_budget(self, budget: Budget) -> None:
        # Whatever was promised under a larger budget, by this plan or by another, must be checked anew.
        if not budget.covers(self.budget):
            for approved in self.plans.values():
                approved.covered = False
        self.budget = budget

    def _approve(self, entry: Entry) -> None:
        plan = Plan.parse(entry.payload, error=PlanError)
        before = self.plans.get(plan.digest())
        self.plans[plan.digest()] = Approved(
            plan,
            [(event_from_dict(event), int(count)) for event, count in entry.body["events"]],
            entry.time,
            rounds=before.rounds if before else {},
        )


class Ledger:
    """A data set's ledger file. All changes go through `update`, one at a time across all processes."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._account: Account | None = None
        self._lock = threading.RLock()

    @classmethod
    def create(cls, path: Path, *, silo: str, budget: Budget) -> Self:
        """Start a data set's ledger with a total budget. Fails if there is a file at `path` already."""
        opened = Draft("opened", {"format": 1, "silo": silo, "adjacency": "replace-one"})
        drafts = [opened, _granted(budget)]
        ledger = cls(Chain(path, create=True))
        ledger.update(lambda _: (None, drafts))
        return ledger

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger and verify it from its first entry to its last."""
        ledger = cls(Chain(path))
        try:
            if not ledger.account().silo:
                raise LedgerDamagedError(
                    f"The ledger {path} is empty: not even its opening entry is left. If nothing was ever released "
                    "from this data set, delete the file; otherwise restore it."
                )
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._chain.path

    def entries(self) -> list[Entry]:
        """Return all entries, verified."""
        return self._chain.read(0, None)

    def account(self) -> Account:
        """Return what the entries say now, including those that other processes have added."""
        with self._lock:
            account = self._account or Account()
            self._account = None  # a failure on the way must not leave a half-read account behind
            try:
                for entry in self._chain.read(*account.tail()):
                    account.apply(entry)
            except (KeyError, TypeError, ValueError, PlanError, AccountingError):
                raise LedgerDamagedError(
                    f"The ledger {self.path} holds an entry that this version cannot read; nothing is released."
                ) from None
            self._account = account
            return account

    def look(self, read: Callable[[Account], Decision]) -> Decision:
        """Return what `read` makes of the account, while no other thread changes it."""
        with self._lock:
            return read(self.account())

    def update(self, decide: Callable[[Account], tuple[Decision, Sequence[Draft]]]) -> Decision:
        """Let `decide` look at the account and draft entries, with no other writer in between.

        When this returns, the entries are synced to the disk; if it raises, none of them exist.
        """
        with self._lock:
            try:
                with self._chain.writing():
                    account = self.account()
                    decision, drafts = decide(account)
                    for draft in drafts:
                        account.apply(self._chain.append(draft, *account.tail()))
            except BaseException:
                self._account = None
                raise
            return decision

    def grant(self, budget: Budget) -> None:
        """Set the data set's total budget: an operator's decision.

        After a lowering no running plan is answered until it is approved again, under the new budget.
        """
        self.update(lambda _: (None, [_granted(budget)]))

    def end(self, digest: str, *, revoke: bool = False) -> None:
        """Let no further round of the plan be answered, and give back what it reserved and did not use."""
        why = "revoked" if revoke else "finished"

        def decide(account: Account) -> tuple[None, list[Draft]]:
            if digest not in account.plans:
                raise ApprovalError(f"Silo '{account.silo}' has never approved this plan, so it cannot end it.")
            return None, [Draft("ended", {"plan": digest, "why": why})]

        self.update(decide)


def _granted(budget: Budget) -> Draft:
    return Draft("budget", _valid(budget).as_data())


def _valid(budget: Budget) -> Budget:
    require_positive("epsilon", budget.epsilon)
    require_probability("delta", budget.delta)
    if budget.alone is not None and require_positive("the epsilon without a shuffler", budget.alone) < budget.epsilon:
        raise AccountingError("What is allowed without the shuffler cannot be less than what is allowed with it.")
    return budget


def _typed(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError
    return value
