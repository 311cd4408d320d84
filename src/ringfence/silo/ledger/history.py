"""The state of a ledger, from its entries in order: budget, plans, charged rounds and their cost."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar, get_args

from ringfence.accounting.charges import costs
from ringfence.accounting.events import Event, Events, event_from_dict, in_version
from ringfence.accounting.filters import Commitment, guaranteed, left
from ringfence.errors import LedgerError, PlanError
from ringfence.protocol import Guarantee, Observer, Plan, observers_of
from ringfence.protocol.documents.custody import remarks
from ringfence.protocol.public import format_of
from ringfence.silo.ledger.budget import Basis, Budget, BudgetUse, basis_of, read_budget
from ringfence.storage.chain import Entry
from ringfence.storage.files import require_known_format

Value = TypeVar("Value")

_ENDS: dict[str, Literal["finished", "revoked"]] = {"finished": "finished", "revoked": "revoked"}

Use: TypeAlias = Literal["personalised", "compared"]
"""Uses of a model inside the silo: adapting it to its records, or comparing it with its own."""

_USES: dict[str, Use] = {use: use for use in get_args(Use)}

GENESIS = hashlib.sha256(b"ringfence ledger 1").hexdigest()
"""The hash before a ledger's first entry."""

FORMATS = {
    "opened": 1, "budget": 1, "approved": 1, "charged": 1, "released": 1, "refused": 1, "ended": 1, "courier": 1,
    "registered": 1, "data": 1, "used": 1,
}  # fmt: skip
"""The newest format of every kind of entry; an entry that states none has format 1 (`docs/compatibility.md`)."""


@dataclass(frozen=True)
class StoredAnswer:
    """The entry of a released answer, for `Ledger.stored`: answers are not kept in memory."""

    entry: int
    hash: str


@dataclass
class ChargedRound:
    """A charged round: its entry's number and hash, what it was asked for, and its answer if that was stored."""

    number: int
    hash: str
    argument: str
    event: Event
    answer: StoredAnswer | None = None


@dataclass
class ApprovedPlan:
    """A plan that the operator approved, and the rounds charged to it."""

    plan: Plan
    events: list[tuple[Event, int]]
    """Events of all rounds of the plan."""
    time: str
    covered: bool = True
    """Whether the plan was approved under the present budget: not after the budget was lowered."""
    ended: Literal["", "finished", "revoked"] = ""
    version: int = 1
    """The version of the data set at the last approval before the first round."""
    founding: bool = False
    """Whether it was approved and running when the ledger's first round was charged."""
    rounds: dict[int, ChargedRound] = field(default_factory=dict)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of the plan's rounds charged so far."""
        return in_version(self.version, Counter(charge.event for charge in self.rounds.values()).items())

    def reserved(self) -> list[tuple[Event, int]]:
        """Return the events that count against the budget: of all rounds while the plan runs, then of charged ones."""
        return self.charged() if self.ended else in_version(self.version, self.events)

    def commitment(self, answered: bool) -> Commitment:
        """Return the ledger's plan as a filter counts it; `answered` says whether the ledger has charged any round."""
        founding = self.founding if answered else not self.ended
        planned = in_version(self.version, self.events)
        return Commitment.of(planned, self.charged() if self.ended else None, founding=founding)


@dataclass
class Account:
    """The state of a ledger after some of its entries."""

    silo: str = ""
    identity: str = ""
    """The first entry's hash: it identifies the ledger, whatever its file is called."""
    registered: bool = False
    """Whether it was ever registered: a registry that does not know it has been lost."""
    version: int = 1
    """The current version of the data set."""
    remarks: list[str] = field(default_factory=list)
    """Remarks about its beginning and its data that belong beside every statement of its costs."""
    granted: Budget | None = None
    pledged: Budget | None = None
    """The budget when the first round was charged, which no answer influenced."""
    plans: dict[str, ApprovedPlan] = field(default_factory=dict)
    refusals: int = 0
    same_user: bool = False
    """Whether the courier may run as a user who can read the silo's private files."""
    number: int = 0
    head: str = GENESIS
    """The last entry's number and hash, to which the next one is tied."""

    def snapshot(self) -> "Account":
        """Return a copy of the ledger's account, to compose costs from while others use the ledger."""
        plans = {digest: replace(approved, rounds=dict(approved.rounds)) for digest, approved in self.plans.items()}
        return replace(self, plans=plans)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of everything charged to the ledger so far."""
        return [event for approved in self.plans.values() for event in approved.charged()]

    def reserved(self, *, without: str = "") -> list[tuple[Event, int]]:
        """Return, from the ledger's history, all events of running plans and the charged events of ended ones."""
        return [event for digest, p in self.plans.items() if digest != without for event in p.reserved()]

    @property
    def budget(self) -> Budget:
        """The ledger's budget in force."""
        if self.granted is None:
            raise KeyError("budget")
        return self.granted

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that the ledger's budget or a plan names."""
        limited = (limit.against for limit in self.budget.limits)
        return observers_of(limited, *(plan.observers for plan in self.approved_plans))

    @property
    def approved_plans(self) -> list[Plan]:
        """All plans that the ledger ever approved."""
        return [approved.plan for approved in self.plans.values()]

    @property
    def answered(self) -> bool:
        """Whether any round was ever charged to the ledger."""
        return self.pledged is not None

    def commitments(self, asked: Mapping[str, Events] | None = None) -> list[Commitment]:
        """Return every plan in the ledger's history that was ever approved, as a filter counts it.

        `asked` has the events of further plans, by digest, that count as if they were approved now.
        """
        found = {digest: approved.commitment(self.answered) for digest, approved in self.plans.items()}
        for digest, events in (asked or {}).items():
            before = self.plans.get(digest)
            founding = not self.answered or (before is not None and before.founding)
            version = before.version if before is not None and before.rounds else self.version
            found[digest] = Commitment.of(in_version(version, events), founding=founding)
        return list(found.values())

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return the ledger's guarantee of all releases, however plans are chosen and whenever you stop."""
        history, pledged = self.commitments(), self.pledged or self.budget
        return tuple(guaranteed(history, pledged.limit(observer)) for observer in self.observers)

    def bases(self) -> tuple[Basis, ...]:
        """Return what each of the ledger's guarantees rests on."""
        pledged = self.pledged or self.budget
        return tuple(
            basis_of(own, pledged.limit(own.against), self.budget.limit(own.against)) for own in self.guarantees()
        )

    def uses(self) -> tuple[BudgetUse, ...]:
        """Return what has become of the ledger's budget, against each observer."""
        return tuple(
            BudgetUse(
                self.budget.limit(spent.against),
                spent.epsilon,
                max(0.0, committed.epsilon - spent.epsilon),
                self.left(spent.against),
            )
            for spent, committed in zip(self.spent(), self.committed(), strict=True)
        )

    def left(self, observer: Observer) -> float:
        """Return the epsilon that the ledger's budget leaves to one more plan; 0 if it is negligible."""
        return left(self.commitments(), self.budget.limit(observer), answered=self.answered)

    def spent(self) -> tuple[Guarantee, ...]:
        """Return the cost of all charges in the ledger: a tally, not a guarantee if it decides when to stop."""
        return costs(self.charged(), self.observers, self.budget.delta)

    def committed(self) -> tuple[Guarantee, ...]:
        """Return the cost of everything the ledger charged, and of all that running plans may still charge."""
        return costs(self.reserved(), self.observers, self.budget.delta)

    def apply(self, entry: Entry) -> None:
        """Apply the ledger's next entry; KeyError, TypeError or ValueError if this version writes no such entry."""
        body = _typed(dict, entry.body)
        require_known_format(
            f"ledger's entry {entry.number}", _typed(int, body.get("format", 1)), FORMATS[entry.kind], LedgerError
        )
        if entry.kind == "opened":
            self.silo, self.identity = _typed(str, body["silo"]), entry.hash
            self.registered = _typed(bool, body.get("registered", False))
        elif entry.kind == "budget":
            self._set_budget(read_budget(body))
        elif entry.kind == "approved":
            self._approve(entry)
        elif entry.kind == "charged":
            self._charge(entry)
        elif entry.kind == "released":
            self.plans[body["plan"]].rounds[body["round"]].answer = StoredAnswer(entry.number, entry.hash)
        elif entry.kind == "refused":
            _typed(str, body["reason"])
            self.refusals += 1
        elif entry.kind == "ended":
            self.plans[body["plan"]].ended = _ENDS[body["why"]]
        elif entry.kind == "courier":
            self.same_user = self.same_user or _typed(bool, body["same_user"])
        elif entry.kind == "registered":
            self.registered = True
        elif entry.kind == "data":
            self.version += 1
        elif entry.kind == "used":
            _typed(str, _USES[body["use"]])
        else:
            raise KeyError(entry.kind)
        self.remarks += remarks(entry.kind, body)
        self.number, self.head = entry.number, entry.hash

    def _set_budget(self, budget: Budget) -> None:
        """Put a budget entry of the ledger into force; a lower budget no longer covers the plans approved before."""
        # Every plan that was approved under a larger budget must be approved again.
        if self.granted is not None and not budget.covers(self.granted):
            for approved in self.plans.values():
                approved.covered = False
        self.granted = budget

    def _charge(self, entry: Entry) -> None:
        """Apply a ledger's entry that charges a round to the history of its plan."""
        number, argument = _typed(int, entry.body["round"]), _typed(str, entry.body["argument"])
        charged = ChargedRound(entry.number, entry.hash, argument, event_from_dict(entry.body["event"]))
        self.plans[entry.body["plan"]].rounds[number] = charged
        if self.pledged is None:
            self.pledged = self.granted
            for approved in self.plans.values():
                approved.founding = approved.covered and not approved.ended

    def _approve(self, entry: Entry) -> None:
        """Apply a ledger's entry that approves a plan to the history."""
        whose = f"plan in the ledger's entry {entry.number}"
        require_known_format(whose, format_of(entry.payload), Plan.newest_format, LedgerError)
        plan = Plan.parse(entry.payload, error=PlanError)
        before = self.plans.get(plan.digest())
        self.plans[plan.digest()] = ApprovedPlan(
            plan,
            [(event_from_dict(event), int(count)) for event, count in entry.body["events"]],
            entry.time,
            version=before.version if before and before.rounds else self.version,
            founding=before is not None and before.founding,
            rounds=before.rounds if before else {},
        )


def _typed(kind: type[Value], value: object) -> Value:
    """Return a value of a ledger's entry for its history; TypeError if it is of another type."""
    if not isinstance(value, kind):
        raise TypeError
    return value
