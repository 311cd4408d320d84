"""The ledger: everything a data set's operator ever allowed and everything that ever left, as events.

Its entries, in the order they were made:

    opened     whose ledger it is, under which adjacency it counts, and why it began if its data had another before
    budget     the total (epsilon, delta) that all releases together may reach, against each kind of observer
    approved   a plan, whole, and the privacy events that all its rounds come to; reserves their cost
    charged    a round of a plan, the weights it was asked for, and its event: written before the release
    released   the same round's answer, byte for byte: written before it is sent
    refused    what was asked in vain, and why
    ended      no further round of that plan is answered; gives back what it reserved and did not use
    courier    from here on the courier may run as a user who can read what the silo keeps to itself
    registered the operator's word that this is its data's ledger, where no registry could tell
    data       the data set changed; the ledger goes on for its new version

The entries of decisions (`opened`, `budget`, `approved`, `ended`) also say who made them: `by`, the account's name, and
`note`, what they added in words.

What was spent is the exact composition of the charged events, and bookkeeping; what is guaranteed, and admitted, is
a filter's affair (`accounting.filters`). A crash can only leave a charge without a release, never the reverse.

A ledger is known by the hash of its first entry. How far it had come is also kept outside of it, in the state folder
of the user who runs it (`storage.watermark`): an older copy that is put back is refused.
"""

import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import ValidationError

from ringfence.accounting.charges import costs
from ringfence.accounting.events import Event, Events, event_from_dict
from ringfence.accounting.filters import Commitment, guaranteed, left
from ringfence.errors import (
    AccountingError,
    ApprovalError,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerWriteError,
    PlanError,
)
from ringfence.protocol.custody import NewBeginning, remarks
from ringfence.protocol.guarantee import Guarantee, Observer, observers_of
from ringfence.protocol.plan import Plan, fewest_colluders
from ringfence.protocol.public import format_of
from ringfence.silo.budget import Budget, read_budget
from ringfence.silo.consent import decided
from ringfence.silo.watermarks import watermark
from ringfence.storage.chain import Chain, Draft, Entry
from ringfence.storage.closing import Closing
from ringfence.storage.formats import require_known_format
from ringfence.storage.kind import Kind
from ringfence.storage.watermark import Watermark

Decision = TypeVar("Decision")
Value = TypeVar("Value")

_ENDS: dict[str, Literal["finished", "revoked"]] = {"finished": "finished", "revoked": "revoked"}

GENESIS = hashlib.sha256(b"ringfence ledger 1").hexdigest()
"""What a ledger's first entry is tied to."""

_KIND = Kind(
    "ledger",
    LedgerError,
    busy=LedgerBusyError,
    unwritable=LedgerWriteError,
    damaged=LedgerDamagedError,
    if_damaged="Nothing will be released from its data until its operator restores the ledger or decides what was "
    "spent.",
)

LOGGED_REFUSALS = 10_000
"""Refusals beyond this many are not logged, so that a hostile server cannot fill the silo's disk."""


FORMATS = {
    "opened": 1, "budget": 2, "approved": 1, "charged": 1, "released": 1, "refused": 1, "ended": 1, "courier": 1,
    "registered": 1, "data": 1,
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
        return list(Counter(charge.event for charge in self.rounds.values()).items())

    def reserved(self) -> list[tuple[Event, int]]:
        """Return what counts against the budget: all rounds while the plan runs, the charged ones after."""
        return self.charged() if self.ended else self.events

    def commitment(self, answered: bool) -> Commitment:
        """Return the plan as a filter counts it; `answered` says whether the ledger has charged any round."""
        founding = self.founding if answered else not self.ended
        return Commitment.of(self.events, self.charged() if self.ended else None, founding=founding)


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

    def commitments(self, plan: Plan | None = None, events: Events = ()) -> list[Commitment]:
        """Return every plan that was ever approved, as a filter counts it; with `plan` as if that were approved now."""
        found = {digest: approved.commitment(self.answered) for digest, approved in self.plans.items()}
        if plan is not None:
            before = self.plans.get(plan.digest())
            founding = not self.answered or (before is not None and before.founding)
            found[plan.digest()] = Commitment.of(events, founding=founding)
        return list(found.values())

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed of all releases together, however plans are chosen and whenever one stops."""
        history, pledged = self.commitments(), self.pledged or self.budget
        return tuple(guaranteed(history, pledged.limit(observer)) for observer in self.observers)

    def left(self, observer: Observer) -> float:
        """Return what the budget leaves, in epsilon, to one more plan: nothing more is approved if this is 0."""
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


class Ledger(Closing):
    """A data set's ledger file. All changes go through `update`, one at a time across all processes.

    What a ledger has once held it must hold for as long as it is open, and, by its watermark, whenever it is opened
    again: else LedgerDamagedError, every time.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._account: Account | None = None
        self._mark: Watermark | None = None
        self._lock = threading.RLock()

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        silo: str,
        budget: Budget,
        note: str = "",
        registered: bool = False,
        beginning: NewBeginning | None = None,
        marked: bool = True,
    ) -> Self:
        """Start a data set's ledger with a total budget. Fails if there is a file at `path` already.

        `registered` says that the user's registry will know it, `beginning` why it is not the first of its data. It is
        `marked` how far the ledger has come, unless nobody will ever open it again.
        """
        # The nonce: no two ledgers are known by the same hash, also if they are begun in the same millisecond.
        nonce = secrets.token_hex(16)
        body: dict[str, Any] = {"format": 1, "silo": silo, "adjacency": "replace-one", "nonce": nonce, **decided(note)}
        if registered:
            body["registered"] = True
        if beginning is not None:
            body["new_beginning"] = beginning.model_dump()
        drafts = [Draft("opened", body), _granted(budget, note)]
        ledger = cls(Chain(path, _KIND, create=True))
        try:
            ledger.update(lambda _: (None, drafts))
            if marked:
                ledger._watch()
        except BaseException:  # nothing was released yet
            ledger.close()
            path.unlink()
            raise
        return ledger

    @classmethod
    def open(cls, path: Path, *, marked: bool = True) -> Self:
        """Open a ledger and verify it from its first entry to its last, and that it reaches its watermark.

        Not `marked`, it may be an older copy: to be looked at, and never to release anything.
        """
        ledger = cls(Chain(path, _KIND))
        try:
            if not ledger.account().silo:
                raise LedgerDamagedError(
                    f"The ledger {path} is empty: not even its opening entry is left. If nothing was ever released "
                    "from this data set, delete the file; otherwise restore it."
                )
            if marked:
                ledger._watch()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _watch(self) -> None:
        """Compare the ledger with how far it had come, and keep that up from now on."""
        account = self.account()
        self._mark = watermark(account.identity, account.number, account.head)
        number, head = self._mark.read()
        if not self.holds(number, head):
            raise LedgerDamagedError(
                f"The ledger {self.path} cannot be trusted: it ends with entry {account.number}, and once had entry "
                f"{number} with the hash {head[:12]}, which is not in it. It is an older copy, or one that went "
                "another way. Nothing is released from it. Restore the newest copy (`ringfence silo restore`)."
            )
        self._mark.raise_to(account.number, account.head, self.holds)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._chain.close()
        if self._mark is not None:
            self._mark.close()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._chain.path

    @property
    def number(self) -> int | None:
        """The number of the last entry that was seen; None if the file could not be read or written just now."""
        account = self._account
        return None if account is None else account.number

    def entries(self) -> list[Entry]:
        """Return all entries, verified."""
        return list(self._chain.read(0, GENESIS))

    def stored(self, answer: StoredAnswer) -> bytes:
        """Return a released answer, byte for byte."""
        return self._chain.payload(answer.entry, answer.hash)

    def holds(self, number: int, hash: str) -> bool:
        """Tell whether the ledger has that entry, with that hash."""
        return self._chain.holds(number, hash)

    def has_forgotten(self, number: int, hash: str) -> bool:
        """Tell whether the ledger lacks an entry that it is proved to have had; then nobody trusts it ever again."""
        if self.holds(number, hash):
            return False
        self._chain.require(number, hash)
        if self._mark is not None:
            self._mark.set(number, hash)
        return True

    def copy_to(self, out: Path) -> None:
        """Write the ledger as it stands to a new file, whatever is written meanwhile."""
        self._chain.copy_to(out)

    def account(self) -> Account:
        """Return what the entries say now, including those that other processes have added."""
        with self._lock:
            account = self._account or Account()
            self._account = None  # a failure on the way must not leave a half-read account behind
            try:
                with closing(self._chain.read(account.number, account.head)) as entries:
                    for entry in entries:
                        account.apply(entry)
            except (KeyError, TypeError, ValueError, ValidationError, PlanError, AccountingError):
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
                        account.apply(self._chain.append(draft, account.number, account.head))
            except BaseException:
                self._account = None
                raise
            if self._mark is not None:
                self._mark.raise_to(account.number, account.head, self.holds)
            return decision

    def grant(self, budget: Budget, *, note: str = "") -> None:
        """Set the data set's total budget: an operator's decision.

        After a lowering no running plan is answered until it is approved again, under the new budget.
        """
        self.update(lambda _: (None, [_granted(budget, note)]))

    def end(self, digest: str, *, revoke: bool = False, note: str = "") -> None:
        """Let no further round of the plan be answered, and give back what it reserved and did not use."""
        why = "revoked" if revoke else "finished"

        def decide(account: Account) -> tuple[None, list[Draft]]:
            if digest not in account.plans:
                raise ApprovalError(f"Silo '{account.silo}' has never approved this plan, so it cannot end it.")
            return None, [Draft("ended", {"plan": digest, "why": why, **decided(note)})]

        self.update(decide)

    def allow_same_user(self) -> None:
        """Write down, once, that the courier may run as a user who can read what the silo keeps."""
        self.update(
            lambda account: (None, [] if account.same_user else [Draft("courier", {"format": 1, "same_user": True})])
        )


def _granted(budget: Budget, note: str) -> Draft:
    return Draft("budget", {"format": 2, "limits": budget.as_data(), **decided(note)})


def _typed(kind: type[Value], value: object) -> Value:
    if not isinstance(value, kind):
        raise TypeError
    return value
