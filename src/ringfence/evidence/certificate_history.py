"""A certificate's entries, followed one by one under the rules that a gate keeps (`verification`)."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import Event, in_version, seen_by
from ringfence.accounting.filters import Commitment, guaranteed, used
from ringfence.errors import CertificateError
from ringfence.protocol import Guarantee, Observer, Plan, SiloTerms, observers_of
from ringfence.protocol.documents.certificate import CertifiedEntry
from ringfence.protocol.documents.custody import remarks
from ringfence.protocol.plan.guarantee import OBSERVERS
from ringfence.protocol.plan.plan import task
from ringfence.silo.ledger.budget import Basis, Budget, basis_of
from ringfence.silo.ledger.history import FORMATS
from ringfence.storage.files import require_known_format

_NO_PAYLOAD = hashlib.sha256(b"").hexdigest()
_PAYLOADS = ("approved", "released")
ROUNDING = 1e-9
"""Two machines' arithmetic may differ in the last digits; a forger gains nothing from that."""

Grant: TypeAlias = Mapping[Observer, float]
"""A budget: the most epsilon against each observer."""


class Approval(NamedTuple):
    """Who approved a plan, when by the silo's clock, and in which words."""

    time: str
    by: str
    note: str


class Granted(NamedTuple):
    """A budget that the silo set: when by its clock, by whom, why, and whether it was larger than the one before."""

    time: str
    budget: Budget
    by: str
    note: str
    raised: bool

    def words(self) -> str:
        """State the budget, who set it, when and why, as the certificate's entry does."""
        set_by = f"{'raised' if self.raised else 'set'} by {self.by or 'somebody who is not written down'}"
        return f"{self.time}: {self.budget}, {set_by}{f' (“{self.note}”)' if self.note else ''}."


@dataclass
class PlanHistory:
    """An approved plan, who approved it, and what was charged and released of it: rounds, and when by the silo's clock.

    It has ended if its operator finished or revoked it; a plan that has not may be asked for its other rounds.
    """

    plan: Plan
    terms: SiloTerms
    covered: bool = True
    ended: bool = False
    founding: bool = False
    version: int = 0
    charged: dict[int, Event] = field(default_factory=dict)
    released: dict[int, str] = field(default_factory=dict)
    approvals: list[Approval] = field(default_factory=list)

    def commitment(self, answered: bool) -> Commitment:
        """Return the certificate's plan as a filter counts it; `answered` says whether any round was."""
        founding = self.founding if answered else not self.ended
        planned = in_version(self.version, plan_events(self.plan, self.terms))
        return Commitment.of(planned, self.spent() if self.ended else None, founding=founding)

    def spent(self) -> list[tuple[Event, int]]:
        """Return the certificate's charged releases of a plan, of the version of the data that they were about."""
        return in_version(self.version, Counter(self.charged.values()).items())


class History:
    """The entries, followed one by one under the rules that the gate keeps."""

    def __init__(self, silo: str) -> None:
        """Begin to follow the entries of a silo's certificate."""
        self._silo = silo
        self.budget: Grant = {}
        self.delta = 0.0
        self.pledged: tuple[Grant, float] | None = None  # the budget when the first round was charged
        self.plans: dict[str, PlanHistory] = {}
        self.charges = self.releases = self.version = 0
        self.remarks: list[str] = []
        self.budgets: list[Granted] = []

    def observers(self) -> tuple[Observer, ...]:
        """Return the observers that the certificate's budget or a plan names."""
        return observers_of(self.budget, *(followed.plan.observers for followed in self.plans.values()))

    def commitments(self) -> list[Commitment]:
        """Return every plan that was ever approved in the certificate, as a filter counts it."""
        return [followed.commitment(self.pledged is not None) for followed in self.plans.values()]

    def guarantee(self, observer: Observer) -> Guarantee:
        """Return the certificate's guarantee for all releases: the budget at the first charge, or an odometer's."""
        granted, delta = self.pledged or (self.budget, self.delta)
        epsilon = _epsilon_limit(granted, observer) * (1 + ROUNDING)
        return guaranteed(self.commitments(), Guarantee(epsilon=epsilon, delta=delta, against=observer))

    def basis(self, observer: Observer) -> Basis:
        """Return what the certificate's guarantee for all releases rests on."""
        first, now = (
            Guarantee(epsilon=_epsilon_limit(granted, observer) * (1 + ROUNDING), delta=delta, against=observer)
            for granted, delta in (self.pledged or (self.budget, self.delta), (self.budget, self.delta))
        )
        return basis_of(self.guarantee(observer), first, now)

    def used(self, observer: Observer) -> Guarantee:
        """Return the composed cost of all charges in the certificate against the observer, at the budget's delta."""
        events = [event for followed in self.plans.values() for event in followed.spent()]
        epsilon = accountant.epsilon(seen_by(observer, events), self.delta)
        return Guarantee(epsilon=epsilon, delta=self.delta, against=observer)

    def follow(self, entry: CertifiedEntry) -> None:
        """Replay one entry of the certificate; CertificateError if it breaks a rule of the gate."""
        body = json.loads(entry.body)
        require_known_format("entry", body.get("format"), FORMATS[entry.kind], CertificateError)
        if (entry.payload == _NO_PAYLOAD) == (entry.kind in _PAYLOADS):
            raise CertificateError("it has a payload that does not belong there, or lacks one.")
        if (entry.plan is None) == (entry.kind == "approved"):
            raise CertificateError("only approvals carry a plan.")
        if (entry.number == 1) != (entry.kind == "opened"):
            raise CertificateError("a ledger is opened once, by its first entry.")
        self.remarks += remarks(entry.kind, body)
        match entry.kind:
            case "opened":
                if (body["silo"], body["adjacency"]) != (self._silo, "replace-one"):
                    raise CertificateError("the ledger belongs to another silo, or uses another adjacency.")
            case "budget":
                self._grant(entry.time, body)
            case "approved":
                self._approve(entry, body)
            case "charged":
                self._charge(body)
            case "released":
                self._release(entry.time, body)
            case "ended":
                self.plans[body["plan"]].ended = True
            case "refused" | "courier" | "registered" | "data" | "used":
                self.version += entry.kind == "data"
            case _:
                raise KeyError(entry.kind)

    def _grant(self, time: str, body: Mapping[str, Any]) -> None:
        """Replay a budget's entry of the certificate."""
        stated = [Guarantee.model_validate(limit) for limit in body["limits"]]
        granted: Grant = {limit.against: limit.epsilon for limit in stated}
        if len(granted) != len(stated) or len({limit.delta for limit in stated}) != 1:
            raise CertificateError("it is not a valid budget.")
        delta = stated[0].delta
        limits = [granted[observer] for observer in OBSERVERS if observer in granted]  # the weakest observer first
        rising = limits == sorted(limits) and 0 < limits[0] <= limits[-1] < math.inf
        if "anyone" not in granted or not rising or not 0 < delta < 1:
            raise CertificateError("it is not a valid budget.")
        if delta < self.delta or any(
            _epsilon_limit(granted, each) < _epsilon_limit(self.budget, each) for each in OBSERVERS
        ):
            for followed in self.plans.values():
                followed.covered = False
        raised = delta > self.delta or any(
            _epsilon_limit(granted, each) > _epsilon_limit(self.budget, each) for each in OBSERVERS
        )
        by, note = str(body.get("by", "")), str(body.get("note", ""))
        self.budgets.append(Granted(time, Budget.of(stated), by, note, raised and bool(self.budget)))
        self.budget, self.delta = granted, delta

    def _approve(self, entry: CertifiedEntry, body: Mapping[str, Any]) -> None:
        """Replay an approval of the certificate: its cost is the plan's, and fits the budget of that time."""
        plan = entry.plan
        if plan is None or plan.digest() != entry.payload:
            raise CertificateError("the plan in it is not the approved one.")
        terms = plan.terms(self._silo)
        if terms is None:
            raise CertificateError("the silo is not part of the plan.")
        if not self.budget:
            raise CertificateError("this plan was approved before there was a budget.")
        events = plan_events(plan, terms)
        if not _equal_up_to_rounding([[event.to_dict(), count] for event, count in events], body["events"]):
            raise CertificateError("the reserved cost is not the cost of the plan.")
        followed = self.plans.setdefault(plan.digest(), PlanHistory(plan, terms))
        followed.covered, followed.ended = True, False
        followed.version = followed.version if followed.charged else self.version
        followed.approvals.append(Approval(entry.time, str(body.get("by", "")), str(body.get("note", ""))))
        for observer, allowed in self.budget.items():
            limit = Guarantee(epsilon=allowed * (1 + ROUNDING), delta=self.delta, against=observer)
            if not used(self.commitments(), limit) <= limit.epsilon:
                raise CertificateError("with this plan, the approved plans exceeded the budget at that time.")

    def _charge(self, body: Mapping[str, Any]) -> None:
        """Replay a charge of the certificate: the cost is that of the plan's round."""
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or followed.ended or not followed.covered:
            raise CertificateError("the plan was not approved at that time.")
        plan, terms, charged = followed.plan, followed.terms, followed.charged
        if not 0 <= round < plan.rounds or round <= max(charged, default=-1):
            raise CertificateError("the plan had no such round left to charge.")
        if followed.version != self.version and plan.depends_on_positions:
            raise CertificateError("the data changed during a plan that divides records by their position.")
        number = plan.place(round).number
        answered = sum(plan.place(earlier).number == number for earlier in charged)
        event = task_event(plan, terms, task(plan, terms, round, answered))
        if not _equal_up_to_rounding(event.to_dict(), body["event"]):
            raise CertificateError("the charge is not the cost of the plan's round.")
        charged[round] = event
        self.charges += 1
        if self.pledged is None:
            self.pledged = self.budget, self.delta
            for other in self.plans.values():
                other.founding = other.covered and not other.ended

    def _release(self, time: str, body: Mapping[str, Any]) -> None:
        """Replay a release of the certificate: the round was charged, and not released before."""
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or round not in followed.charged:
            raise CertificateError("the round was released without a charge.")
        if round in followed.released:
            raise CertificateError("the round was released twice.")
        followed.released[round] = time
        self.releases += 1


def _epsilon_limit(granted: Grant, observer: Observer) -> float:
    """Return the certified budget's limit on epsilon against the observer; one against anyone holds for each."""
    return granted.get(observer, granted.get("anyone", 0.0))


def _equal_up_to_rounding(derived: Any, stated: Any) -> bool:
    """Return whether a value in a certificate equals the derived one, up to rounding of numbers."""
    match derived, stated:
        case dict(), dict():
            same = (_equal_up_to_rounding(value, stated.get(name)) for name, value in derived.items())
            return derived.keys() == stated.keys() and all(same)
        case list(), list():
            pairs = zip(derived, stated, strict=False)
            return len(derived) == len(stated) and all(_equal_up_to_rounding(*pair) for pair in pairs)
        case float(), float() | int():
            return math.isclose(derived, stated, rel_tol=ROUNDING)
    return bool(derived == stated)
