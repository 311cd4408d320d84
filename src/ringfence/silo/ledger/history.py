"""What a ledger's entries say, read in order: the budget, the plans, what was charged, and what that comes to."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar, get_args

from ringfence.accounting.charges import costs
from ringfence.accounting.events import Event, Events, event_from_dict, in_version
from ringfence.accounting.filters import Commitment, guaranteed, left
from ringfence.errors import LedgerError, PlanError
from ringfence.protocol.custody import remarks
from ringfence.protocol.guarantee import Guarantee, Observer, observers_of
from ringfence.protocol.plan import Plan, fewest_colluders
from ringfence.protocol.public import format_of
from ringfence.silo.budget import Budget, read_budget
from ringfence.storage.chain import Entry
from ringfence.storage.formats import require_known_format

Value = TypeVar("Value")

_ENDS: dict[str, Literal["finished", "revoked"]] = {"finished": "finished", "revoked": "revoked"}

Use: TypeAlias = Literal["personalised", "compared"]
"""What a silo did with a model inside: it fitted one of its own, or measured whether that is better."""

_USES: dict[str, Use] = {use: use for use in get_args(Use)}

GENESIS = hashlib.sha256(b"ringfence ledger 1").hexdigest()
"""What a ledger's first entry is tied to."""

FORMATS = {
    "opened": 1, "budget": 2, "approved": 1, "charged": 1, "released": 1, "refused": 1, "ended": 1, "courier": 1,
    "registered": 1, "data": 1, "used": 1,
}  # fmt: skip
"""The newest format of every kind of entry; an entry that states none has format 1 (`docs/compatibility.md`)."""


@dataclass(frozen=True)
class StoredAnswer:
    """Where a released answer stands, for `Ledger.stored`: the bytes of all of them need not be in memory."""

    entry: int
    hash: str


@dataclass
class ChargedRound:
    """A charged round: its entry's number and hash, what it was asked for, and its answer if that was stored."""

    number: int
    hash: str
    weights: str
    event: Event
    answer: StoredAnswer | None = None


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
    version: int = 1
    """The version of the data set that its rounds are about: the one of the approval before the first round."""
    founding: bool = False
    """Whether it was approved, and could be asked, when the ledger's first round was charged."""
    rounds: dict[int, ChargedRound] = field(default_factory=dict)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of the rounds charged so far."""
        return in_version(self.version, Counter(charge.event for charge in self.rounds.values()).items())

    def reserved(self) -> list[tuple[Event, int]]:
        """Return what counts against the budget: all rounds while the plan runs, the charged ones after."""
        return self.charged() if self.ended else in_version(self.version, self.events)

    def commitment(self, answered: bool) -> Commitment:
        """Return the plan as a filter counts it; `answered` says whether the ledger has charged any round."""
        founding = self.founding if answered else not self.ended
        planned = in_version(self.version, self.events)
        return Commitment.of(planned, self.charged() if self.ended else None, founding=founding)


@dataclass
class Account:
    """What the entries say, read in order."""

    silo: str = ""
    identity: str = ""
    """The first entry's hash: a ledger's name, whatever its file is called."""
    registered: bool = False
    """Whether a registry knew it, once: one that does not know it any more has been lost."""
    version: int = 1
    """Which version of the data set the ledger goes on for."""
    remarks: list[str] = field(default_factory=list)
    """What whoever reads of its costs must be told of its beginning and its data."""
    granted: Budget | None = None
    pledged: Budget | None = None
    """The budget when the first round was charged: nobody chose it by an answer."""
    plans: dict[str, Approved] = field(default_factory=dict)
    refusals: int = 0
    same_user: bool = False
    """Whether the courier may run, or might have run, as a user who can read what the silo keeps."""
    number: int = 0
    head: str = GENESIS
    """The last entry's number and hash, to which the next one is tied."""

    def snapshot(self) -> "Account":
        """Return the account as it is now, to compose costs by while others use the ledger."""
        plans = {digest: replace(approved, rounds=dict(approved.rounds)) for digest, approved in self.plans.items()}
        return replace(self, plans=plans)

    def charged(self) -> list[tuple[Event, int]]:
        """Return the events of everything charged so far."""
        return [event for approved in self.plans.values() for event in approved.charged()]

    def reserved(self, *, without: str = "") -> list[tuple[Event, int]]:
        """Return the events that running plans may yet come to, and those that ended plans did come to."""
        return [event for digest, p in self.plans.items() if digest != without for event in p.reserved()]

    @property
    def budget(self) -> Budget:
        """The budget in force."""
        if self.granted is None:
            raise KeyError("budget")
        return self.granted

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Whom costs are told against: whoever the budget or a plan names."""
        limited = (limit.against for limit in self.budget.limits)
        return observers_of(limited, *(plan.observers for plan in self.approved_plans))

    @property
    def approved_plans(self) -> list[Plan]:
        """All plans that were ever approved."""
        return [approved.plan for approved in self.plans.values()]

    @property
    def most_colluders(self) -> int | None:
        """How many other silos may be with the server for its costs to hold, whatever the plans; None: no plan says."""
        return fewest_colluders(self.approved_plans)

    @property
    def answered(self) -> bool:
        """Whether any round was ever charged."""
        return self.pledged is not None

    def commitments(self, asked: Mapping[str, Events] | None = None) -> list[Commitment]:
        """Return every plan that was ever approved, as a filter counts it.

        `asked` are the events of plans, by their digests, that count as if they were approved now.
        """
        found = {digest: approved.commitment(self.answered) for digest, approved in self.plans.items()}
        for digest, events in (asked or {}).items():
            before = self.plans.get(digest)
            founding = not self.answered or (before is not None and before.founding)
            version = before.version if before is not None and before.rounds else self.version
            found[digest] = Commitment.of(in_version(version, events), founding=founding)
        return list(found.values())

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed of all releases together, however plans are chosen and whenever you stop."""
        history, pledged = self.commitments(), self.pledged or self.budget
        return tuple(guaranteed(history, pledged.limit(observer)) for observer in self.observers)

    def left(self, observer: Observer) -> float:
        """Return what the budget leaves, in epsilon, to one more plan: 0 if that is next to nothing."""
        return left(self.commitments(), self.budget.limit(observer), answered=self.answered)

    def spent(self) -> tuple[Guarantee, ...]:
        """Return what everything charged comes to: bookkeeping, and no guarantee to whoever goes on or stops by it."""
        return costs(self.charged(), self.observers, self.budget.delta)

    def committed(self) -> tuple[Guarantee, ...]:
        """Return the same together with what running plans may yet come to."""
        return costs(self.reserved(), self.observers, self.budget.delta)

    def apply(self, entry: Entry) -> None:
        """Take one more entry into account; KeyError, TypeError or ValueError if it is not as we write them."""
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
        # Whatever was promised under a larger budget, by this plan or by another, must be checked anew.
        if self.granted is not None and not budget.covers(self.granted):
            for approved in self.plans.values():
                approved.covered = False
        self.granted = budget

    def _charge(self, entry: Entry) -> None:
        number, weights = _typed(int, entry.body["round"]), _typed(str, entry.body["weights"])
        charged = ChargedRound(entry.number, entry.hash, weights, event_from_dict(entry.body["event"]))
        self.plans[entry.body["plan"]].rounds[number] = charged
        if self.pledged is None:
            self.pledged = self.granted
            for approved in self.plans.values():
                approved.founding = approved.covered and not approved.ended

    def _approve(self, entry: Entry) -> None:
        whose = f"plan in the ledger's entry {entry.number}"
        require_known_format(whose, format_of(entry.payload), Plan.newest_format, LedgerError)
        plan = Plan.parse(entry.payload, error=PlanError)
        before = self.plans.get(plan.digest())
        self.plans[plan.digest()] = Approved(
            plan,
            [(event_from_dict(event), int(count)) for event, count in entry.body["events"]],
            entry.time,
            version=before.version if before and before.rounds else self.version,
            founding=before is not None and before.founding,
            rounds=before.rounds if before else {},
        )


def _typed(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError
    return value
