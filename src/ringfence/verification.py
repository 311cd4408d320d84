"""Checking a silo's certificate, by whoever got it, without the silo.

The check trusts no number in it. It recomputes the hash chain, replays the entries under the gate's rules, derives
the cost of every charged round from the approved plan, computes what that guarantees, and checks the signature. It is
written apart from the gate and the ledger's own reader, so that a mistake there shows here.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ringfence.accounting import accountant
from ringfence.accounting.charges import plan_events, task_event
from ringfence.accounting.events import Event, seen_by
from ringfence.accounting.filters import Commitment, guaranteed, used
from ringfence.errors import CertificateError, RingfenceError
from ringfence.foreign_text import visible
from ringfence.protocol.certificate import Certificate, CertifiedEntry, SignedCertificate, read_certificate
from ringfence.protocol.custody import remarks
from ringfence.protocol.guarantee import OBSERVERS, Guarantee, Observer, against, against_words, observers_of
from ringfence.protocol.plan import Plan, SiloTerms, fewest_colluders
from ringfence.protocol.schedule import task
from ringfence.sealed_sums import sealing
from ringfence.silo.account import FORMATS, GENESIS
from ringfence.statement import Statement
from ringfence.storage.chain import entry_hash
from ringfence.storage.formats import require_known_format

_NO_PAYLOAD = hashlib.sha256(b"").hexdigest()
_PAYLOADS = ("approved", "released")
_ROUNDING = 1e-9
"""Two machines' arithmetic may differ in the last digits; a forger gains nothing from that."""


_SAME_USER = (
    "  - That nothing was read past the gate: by its operator's decision the silo's courier may run as a user who can "
    "read the records, so that whatever the engine's server can make the courier do, it can do with them.",
)

Grant: TypeAlias = Mapping[Observer, float]
"""A budget: the most epsilon against each observer."""


@dataclass(frozen=True)
class Finding:
    """What a certificate that passed every check says and proves."""

    silo: str
    issued: str
    entries: int
    plans: int
    charged: int
    released: int
    guarantee: tuple[Guarantee, ...]
    used: tuple[Guarantee, ...]
    budget: tuple[Guarantee, ...]
    public_key: str
    key_was_given: bool
    colluders: int | None = None
    same_user: bool = False
    remarks: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """Return the finding for machines."""
        told = {name: [each.model_dump() for each in getattr(self, name)] for name in ("guarantee", "used", "budget")}
        return {"valid": True, **vars(self), **told, "remarks": list(self.remarks)}

    def text(self) -> str:
        """Return the finding as its reader needs it: what is proved, and what is not."""
        signer = (
            "by the key that you named"
            if self.key_was_given
            else f"by the key {self.public_key}; whether that is the silo's, ask the silo by another way (--key)"
        )
        lost = self.charged - self.released
        first, *others = self.guarantee
        used = against(self.used, first.against)
        limit = against(self.budget, first.against)
        return "\n".join(
            [
                f"Certificate of silo '{visible(self.silo)}', issued {visible(self.issued)}: every check passed.",
                "",
                "What is proved",
                "",
                f"  - It was signed {signer}.",
                f"  - Its {self.entries} ledger entries are whole and in order: changing, leaving out or inserting one "
                "would show.",
                f"  - They list {self.plans} approved plan{'s' * (self.plans != 1)}, {self.charged} charged rounds and "
                f"{self.released} releases{f' ({lost} charged without a release, as after a crash)' if lost else ''}; "
                "every release was charged first, no round was released twice, and each followed from a plan approved "
                "before.",
                f"  - All of them together are differentially private at epsilon = {first.epsilon:.6g}, delta = "
                f"{first.delta:.3g}, for each record, against replacing it, however the plans were chosen and whenever "
                f"one stops; so far epsilon {used.epsilon:.6g} at delta {used.delta:.3g} is used. This was computed "
                "again from the plans alone.",
                *(self._stronger(first, other) for other in others if other.epsilon > first.epsilon * (1 + _ROUNDING)),
                "  - No plan was approved beyond the budget of its time; the budget is now epsilon "
                f"{limit.epsilon:.6g} at delta {limit.delta:.3g}.",
                *(["", "What the silo says of its data", ""] if self.remarks else []),
                *(f"  - {remark}" for remark in self.remarks),
                "",
                "What is not proved",
                "",
                "  - That the silo released nothing else: no list can show what was left off it. Compare the releases "
                "here with what the server received.",
                "  - That the noise was drawn as the plans say, or that the entries were made at the times they state.",
                "  - That there is no newer certificate: this one is about its date of issue. Give an older one too, "
                "or the run's folder (--transcript), to see that nothing was forgotten in between.",
                *(_SAME_USER if self.same_user else ()),
            ]
        )

    def _stronger(self, first: Guarantee, other: Guarantee) -> str:
        return (
            f"  - That holds {against_words(first.against, self.colluders)}. "
            f"{against_words(other.against).capitalize()}, the silo's own noise gives epsilon = {other.epsilon:.6g} at "
            "the same delta."
        )


def verify_file(path: Path, *, key: str | None = None) -> Finding:
    """Check a certificate's file; raise CertificateError with the first thing that does not fit."""
    return verify(_content(path), key=key)


def verify_statement(statement: Statement, certificates: Sequence[Path]) -> list[str]:
    """Check what a model's statement says of its run against silos' certificates; say of each silo what was found.

    Raises CertificateError if a certificate is not valid, is of no silo in the statement, or shows more rounds or
    another cost than the statement.
    """
    found: dict[str, Finding] = {}
    for path in certificates:
        finding, history = _checked(_content(path), None)
        stated, followed = statement.silos.get(finding.silo), history.plans.get(statement.plan.digest())
        if stated is None or followed is None:
            raise CertificateError(f"{path} is of silo '{finding.silo}', which released nothing for this model by it.")
        events = list(Counter(followed.charged.values()).items())
        told = [  # what the plan guarantees; earlier versions stated what was used of it
            math.isclose(each.epsilon, against(followed.terms.guarantees, each.against).epsilon, rel_tol=1e-6)
            or math.isclose(each.epsilon, accountant.epsilon(seen_by(each.against, events), each.delta), rel_tol=1e-6)
            for each in stated.this_run
        ]
        if (stated.records, stated.rounds) != (followed.terms.records, len(followed.charged)) or not all(told):
            raise CertificateError(
                f"The statement is not true of silo '{finding.silo}': its certificate {path} shows other rounds, or "
                "another cost, for this model's plan."
            )
        found[finding.silo] = finding
    return [
        f"{visible(name)}: not verified, since no certificate of this silo was given."
        if name not in found
        else f"{visible(name)}: verified. The certificate issued {visible(found[name].issued)} shows these rounds at "
        f"this cost; it is signed by the key {found[name].public_key}, which the silo must confirm by another way."
        for name in statement.silos
    ]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise CertificateError(f"The certificate {path} could not be read: {problem.strerror}.") from None


def verify(content: bytes, *, key: str | None = None) -> Finding:
    """Check a certificate's bytes; `key` is the silo's public key in hexadecimal, from another source."""
    return _checked(content, key)[0]


def _checked(content: bytes, key: str | None) -> "tuple[Finding, _History]":
    signed = read_certificate(content)
    certificate = signed.certificate
    _check_chain(certificate)
    history = _History(certificate.silo)
    for entry in certificate.entries:
        with _naming(entry):
            history.follow(entry)
    if not history.budget:  # its first entry opens the ledger, or was refused above
        raise CertificateError("The certificate's entries neither open a ledger nor give it a budget.")
    _check_totals(certificate, history)
    _check_signature(signed, key)
    finding = Finding(
        silo=certificate.silo,
        issued=certificate.issued,
        entries=len(certificate.entries),
        plans=len(history.plans),
        charged=history.charges,
        released=history.releases,
        guarantee=tuple(history.guarantee(observer) for observer in history.observers()),
        used=tuple(history.used(observer) for observer in history.observers()),
        budget=tuple(
            Guarantee(epsilon=limit, delta=history.delta, against=observer)
            for observer, limit in history.budget.items()
        ),
        public_key=certificate.public_key,
        key_was_given=key is not None,
        colluders=fewest_colluders(followed.plan for followed in history.plans.values()),
        same_user=any(entry.kind == "courier" for entry in certificate.entries),
        remarks=tuple(history.remarks),
    )
    return finding, history


def _check_chain(certificate: Certificate) -> None:
    previous = GENESIS
    for expected, entry in enumerate(certificate.entries, start=1):
        if entry.number != expected:
            raise CertificateError(
                f"The certificate's entry {expected} is missing: number {entry.number} is in its place."
            )
        if entry.hash != entry_hash(previous, entry.number, entry.time, entry.kind, entry.body, entry.payload):
            raise CertificateError(
                f"The certificate's hash chain breaks at entry {entry.number}: it, or the one before it, was changed."
            )
        previous = entry.hash
    if certificate.head != previous:
        raise CertificateError("The certificate's head is not its last entry's hash: entries were cut off or added.")


def _check_totals(certificate: Certificate, history: "_History") -> None:
    if (certificate.charged, certificate.released) != (history.charges, history.releases):
        raise CertificateError(
            f"The certificate counts {certificate.charged} charges and {certificate.released} releases, but its "
            f"entries are {history.charges} and {history.releases}."
        )
    for stated in certificate.spent:
        if stated.delta != history.delta:
            raise CertificateError("The certificate's delta is not the one of the budget in its entries.")
        true_epsilon = history.used(stated.against).epsilon
        if not math.isclose(stated.epsilon, true_epsilon, rel_tol=1e-6, abs_tol=1e-12):
            raise CertificateError(
                f"The certificate states epsilon {stated.epsilon:.6g}, but its charges come to {true_epsilon:.6g}."
            )
    if not set(history.observers()) <= {stated.against for stated in certificate.spent}:
        raise CertificateError("The certificate leaves out what its charges come to against one kind of observer.")


def _check_signature(signed: SignedCertificate, key: str | None) -> None:
    certificate = signed.certificate
    if key is not None and key.strip().lower() != certificate.public_key:
        raise CertificateError(
            f"The certificate was made with the key {certificate.public_key}, which is not the one that you named."
        )
    if not sealing.verify(certificate.public_key, signed.signed, signed.signature):
        raise CertificateError(
            "The certificate's signature does not fit its content and public key: one of them was changed."
        )


@contextmanager
def _naming(entry: CertifiedEntry) -> Iterator[None]:
    """Let what is wrong with an entry be told with its number."""
    try:
        yield
    except CertificateError as problem:
        raise CertificateError(
            f"The certificate's entry {entry.number} ({entry.kind}) does not fit: {problem}"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise CertificateError(
            f"The certificate's entry {entry.number} ({entry.kind[:20]!r}) cannot be read by this version."
        ) from None
    except RingfenceError as problem:
        raise CertificateError(f"The certificate's entry {entry.number} does not fit: {problem}") from None


@dataclass
class _Followed:
    """An approved plan and what was charged and released of it."""

    plan: Plan
    terms: SiloTerms
    covered: bool = True
    ended: bool = False
    founding: bool = False
    version: int = 0
    charged: dict[int, Event] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)

    def commitment(self, answered: bool) -> Commitment:
        charged = list(Counter(self.charged.values()).items()) if self.ended else None
        founding = self.founding if answered else not self.ended
        return Commitment.of(plan_events(self.plan, self.terms), charged, founding=founding)


class _History:
    """The entries, followed one by one under the rules that the gate keeps."""

    def __init__(self, silo: str) -> None:
        self._silo = silo
        self.budget: Grant = {}
        self.delta = 0.0
        self.pledged: tuple[Grant, float] | None = None  # the budget when the first round was charged
        self.plans: dict[str, _Followed] = {}
        self.charges = self.releases = self.version = 0
        self.remarks: list[str] = []

    def observers(self) -> tuple[Observer, ...]:
        """Return whom costs must be told against: whoever the budget or a plan names."""
        return observers_of(self.budget, *(followed.plan.observers for followed in self.plans.values()))

    def commitments(self) -> list[Commitment]:
        """Return every plan that was ever approved, as a filter counts it."""
        return [followed.commitment(self.pledged is not None) for followed in self.plans.values()]

    def guarantee(self, observer: Observer) -> Guarantee:
        """Return what holds of all releases: the budget of the first charge's time, or an odometer's reading."""
        granted, delta = self.pledged or (self.budget, self.delta)
        epsilon = _limit(granted, observer) * (1 + _ROUNDING)
        return guaranteed(self.commitments(), Guarantee(epsilon=epsilon, delta=delta, against=observer))

    def used(self, observer: Observer) -> Guarantee:
        """Return what all charges come to against the observer, at the budget's delta."""
        events = Counter(event for followed in self.plans.values() for event in followed.charged.values())
        epsilon = accountant.epsilon(seen_by(observer, list(events.items())), self.delta)
        return Guarantee(epsilon=epsilon, delta=self.delta, against=observer)

    def follow(self, entry: CertifiedEntry) -> None:
        """Take one entry in, or raise."""
        body = json.loads(entry.body)
        require_known_format("entry", body.get("format"), FORMATS[entry.kind], CertificateError)
        if (entry.payload == _NO_PAYLOAD) == (entry.kind in _PAYLOADS):
            raise CertificateError("it has a payload where there is none, or none where there is one.")
        if (entry.plan is None) == (entry.kind == "approved"):
            raise CertificateError("a plan stands with an approval, and with nothing else.")
        if (entry.number == 1) != (entry.kind == "opened"):
            raise CertificateError("a ledger is opened once, by its first entry.")
        self.remarks += remarks(entry.kind, body)
        match entry.kind:
            case "opened":
                if (body["silo"], body["adjacency"]) != (self._silo, "replace-one"):
                    raise CertificateError("the ledger is another silo's, or counts by another adjacency.")
            case "budget":
                self._grant(*_budget(body))
            case "approved":
                self._approve(entry, body)
            case "charged":
                self._charge(body)
            case "released":
                self._release(body)
            case "ended":
                self.plans[body["plan"]].ended = True
            case "refused" | "courier" | "registered" | "data":
                self.version += entry.kind == "data"
            case _:
                raise KeyError(entry.kind)

    def _grant(self, granted: Grant, delta: float) -> None:
        limits = [granted[observer] for observer in OBSERVERS if observer in granted]  # the weakest observer first
        rising = limits == sorted(limits) and 0 < limits[0] <= limits[-1] < math.inf
        if "anyone" not in granted or not rising or not 0 < delta < 1:
            raise CertificateError("it is no budget.")
        if delta < self.delta or any(_limit(granted, each) < _limit(self.budget, each) for each in OBSERVERS):
            for followed in self.plans.values():
                followed.covered = False
        self.budget, self.delta = granted, delta

    def _approve(self, entry: CertifiedEntry, body: Mapping[str, Any]) -> None:
        plan = entry.plan
        if plan is None or plan.digest() != entry.payload:
            raise CertificateError("the plan beside it is not the one that was approved.")
        terms = plan.terms(self._silo)
        if terms is None:
            raise CertificateError("the silo has no part in the plan.")
        if not self.budget:
            raise CertificateError("with this plan, more was promised than the budget of that time: there was none.")
        events = plan_events(plan, terms)
        if not _same([[event.to_dict(), count] for event, count in events], body["events"]):
            raise CertificateError("what it reserved is not what the plan costs.")
        digest = plan.digest()
        before = self.plans.get(digest)
        self.plans[digest] = _Followed(
            plan,
            terms,
            founding=before is not None and before.founding,
            version=before.version if before and before.charged else self.version,
            charged=before.charged if before else {},
            released=before.released if before else set(),
        )
        if not all(self._allows(observer, allowed * (1 + _ROUNDING)) for observer, allowed in self.budget.items()):
            raise CertificateError("with this plan, more was promised than the budget of that time.")

    def _allows(self, observer: Observer, epsilon: float) -> bool:
        """Tell whether the filter admits all plans, or, as was enough for earlier versions, their composition."""
        history = self.commitments()
        if used(history, Guarantee(epsilon=epsilon, delta=self.delta, against=observer)) <= epsilon:
            return True
        together = [event for each in history for event in (each.planned if each.charged is None else each.charged)]
        return accountant.epsilon(seen_by(observer, together), self.delta) <= epsilon

    def _charge(self, body: Mapping[str, Any]) -> None:
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or followed.ended or not followed.covered:
            raise CertificateError("the plan was not approved at that time.")
        plan, terms, charged = followed.plan, followed.terms, followed.charged
        if not 0 <= round < plan.rounds or round <= max(charged, default=-1):
            raise CertificateError("the plan did not have this round to charge any more.")
        if followed.version != self.version and any(stage.sampling.goes_by_place for stage in plan.stages):
            raise CertificateError("the data was changed while the plan, which divides records by their places, ran.")
        number = plan.place(round).number
        answered = sum(plan.place(earlier).number == number for earlier in charged)
        event = task_event(plan, terms, task(plan, terms, round, answered))
        if not _same(event.to_dict(), body["event"]):
            raise CertificateError("what it charged is not what the plan's round costs.")
        charged[round] = event
        self.charges += 1
        if self.pledged is None:
            self.pledged = self.budget, self.delta
            for other in self.plans.values():
                other.founding = other.covered and not other.ended

    def _release(self, body: Mapping[str, Any]) -> None:
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or round not in followed.charged:
            raise CertificateError("the round was released without having been charged.")
        if round in followed.released:
            raise CertificateError("the round was released twice.")
        followed.released.add(round)
        self.releases += 1


def _budget(body: Mapping[str, Any]) -> tuple[Grant, float]:
    """Read a budget: in format 1 one epsilon, and `alone` where another was allowed against anyone."""
    if body.get("format", 1) == 1:
        epsilon, delta = float(body["epsilon"]), float(body["delta"])
        alone = body.get("alone")
        return ({"anyone": epsilon} if alone is None else {"server": epsilon, "anyone": float(alone)}), delta
    limits = [Guarantee.model_validate(limit) for limit in body["limits"]]
    granted: Grant = {limit.against: limit.epsilon for limit in limits}
    if body["format"] != 2 or len(granted) != len(limits) or len({limit.delta for limit in limits}) != 1:
        raise CertificateError("it is no budget.")
    return granted, limits[0].delta


def _limit(granted: Grant, observer: Observer) -> float:
    """Return the most epsilon against the observer; what holds against anyone holds against each."""
    return granted.get(observer, granted.get("anyone", 0.0))


def _same(derived: Any, stated: Any) -> bool:
    """Compare what we derived with what is stated, but for the last digits of numbers."""
    if isinstance(derived, dict):
        return (
            isinstance(stated, dict)
            and derived.keys() == stated.keys()
            and all(_same(value, stated[name]) for name, value in derived.items())
        )
    if isinstance(derived, list):
        return (
            isinstance(stated, list)
            and len(derived) == len(stated)
            and all(_same(one, other) for one, other in zip(derived, stated, strict=True))
        )
    if isinstance(derived, float):
        return isinstance(stated, float | int) and math.isclose(derived, stated, rel_tol=_ROUNDING)
    return bool(derived == stated)
