"""Checking a silo's certificate, by whoever got it, without the silo.

The check trusts no number in it. It recomputes the hash chain, replays the entries under the gate's rules, derives
the cost of every charged round from the approved plan, composes those costs, and checks the signature. It is written
apart from the gate and the ledger's own reader, so that a mistake there shows here.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ringfence.errors import CertificateError, RingfenceError
from ringfence.planning import accountant
from ringfence.planning.charges import plan_events, task_event
from ringfence.planning.events import Event, as_seen_alone
from ringfence.protocol.certificate import Certificate, CertifiedEntry
from ringfence.protocol.plan import Plan, SiloTerms
from ringfence.protocol.schedule import task
from ringfence.silo.chain import GENESIS, entry_hash

_LIMIT = 2**30
_NO_PAYLOAD = hashlib.sha256(b"").hexdigest()
_PAYLOADS = ("approved", "released")
_ROUNDING = 1e-9
"""Two machines' arithmetic may differ in the last digits; a forger gains nothing from that."""


class Grant(NamedTuple):
    """A budget: `alone` is the epsilon against a server that works together with the shuffler."""

    epsilon: float
    delta: float
    alone: float


@dataclass(frozen=True)
class Finding:
    """What a certificate that passed every check says and proves."""

    silo: str
    issued: str
    entries: int
    plans: int
    charged: int
    released: int
    epsilon: float
    alone_epsilon: float
    delta: float
    budget: Grant
    public_key: str
    key_was_given: bool

    def data(self) -> dict[str, Any]:
        """Return the finding for machines."""
        return {"valid": True, **vars(self), "budget": self.budget._asdict()}

    def text(self) -> str:
        """Return the finding as its reader needs it: what is proved, and what is not."""
        signer = (
            "by the key that you named"
            if self.key_was_given
            else f"by the key {self.public_key}; whether that is the silo's, ask the silo by another way (--key)"
        )
        lost = self.charged - self.released
        return "\n".join(
            [
                f"Certificate of silo '{self.silo}', issued {self.issued}: every check passed.",
                "",
                "What is proved",
                "",
                f"  - It was signed {signer}.",
                f"  - Its {self.entries} ledger entries are whole and in order: changing, leaving out or inserting one "
                "would show.",
                f"  - They list {self.plans} approved plans, {self.charged} charged rounds and {self.released} "
                f"releases{f' ({lost} charged without a release, as after a crash)' if lost else ''}; every release "
                "was charged first, no round was released twice, and each followed from a plan approved before.",
                f"  - All of them together are differentially private at epsilon = {self.epsilon:.6g}, delta = "
                f"{self.delta:.3g}, for each record, against replacing it. This was computed again from the plans "
                "alone.",
                *self._without_shuffler(),
                "  - No plan was approved beyond the budget of its time; the budget is now epsilon "
                f"{self.budget.epsilon:.6g} at delta {self.budget.delta:.3g}.",
                "",
                "What is not proved",
                "",
                "  - That the silo released nothing else: no list can show what was left off it. Compare the releases "
                "here with what the server received.",
                "  - That the noise was drawn as the plans say, or that the entries were made at the times they state.",
                "  - That there is no newer certificate: this one is about its date of issue.",
            ]
        )

    def _without_shuffler(self) -> list[str]:
        if self.alone_epsilon <= self.epsilon * (1 + _ROUNDING):
            return []
        return [
            "  - That counts on shufflers that do not work together with the server, and on the noise of other silos. "
            f"Without these the silo's own noise gives epsilon = {self.alone_epsilon:.6g} at the same delta."
        ]


def verify_file(path: Path, *, key: str | None = None) -> Finding:
    """Check a certificate's file; raise CertificateError with the first thing that does not fit."""
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise CertificateError(f"The certificate {path} could not be read: {problem.strerror}.") from None
    return verify(content, key=key)


def verify(content: bytes, *, key: str | None = None) -> Finding:
    """Check a certificate's bytes; `key` is the silo's public key in hexadecimal, from another source."""
    certificate = Certificate.parse(content, error=CertificateError, limit=_LIMIT)
    _check_chain(certificate)
    history = _History(certificate.silo)
    for entry in certificate.entries:
        with _naming(entry):
            history.follow(entry)
    history.check_opened()
    _check_totals(certificate, history)
    _check_signature(certificate, key)
    if content != certificate.to_file():
        raise CertificateError(
            "The certificate's content fits, but the file was written in another form (spaces, order or spelling): "
            "ask for the file as the silo exported it."
        )
    return Finding(
        silo=certificate.silo,
        issued=certificate.issued,
        entries=len(certificate.entries),
        plans=len(history.plans),
        charged=history.charges,
        released=history.releases,
        epsilon=history.spent(),
        alone_epsilon=history.spent_alone(),
        delta=history.budget.delta,
        budget=history.budget,
        public_key=certificate.public_key,
        key_was_given=key is not None,
    )


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
    if certificate.delta != history.budget.delta:
        raise CertificateError("The certificate's delta is not the one of the budget in its entries.")
    for stated, true_epsilon in (
        (certificate.epsilon, history.spent()),
        (certificate.alone_epsilon, history.spent_alone()),
    ):
        if not math.isclose(stated, true_epsilon, rel_tol=1e-6, abs_tol=1e-12):
            raise CertificateError(
                f"The certificate states epsilon {stated:.6g}, but its charges come to {true_epsilon:.6g}."
            )


def _check_signature(certificate: Certificate, key: str | None) -> None:
    if key is not None and key.strip().lower() != certificate.public_key:
        raise CertificateError(
            f"The certificate was made with the key {certificate.public_key}, which is not the one that you named."
        )
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(certificate.public_key))
        public.verify(bytes.fromhex(certificate.signature), certificate.signed_bytes())
    except (InvalidSignature, ValueError):
        raise CertificateError(
            "The certificate's signature does not fit its content and public key: one of them was changed."
        ) from None


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
    charged: dict[int, Event] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)

    def reserved(self) -> list[tuple[Event, int]]:
        return list(Counter(self.charged.values()).items()) if self.ended else plan_events(self.plan, self.terms)


class _History:
    """The entries, followed one by one under the rules that the gate keeps."""

    def __init__(self, silo: str) -> None:
        self._silo = silo
        self._opened = False
        self.budget = Grant(0.0, 0.0, 0.0)
        self.plans: dict[str, _Followed] = {}
        self.charges = self.releases = 0

    def spent(self) -> float:
        """Return the epsilon of all charges, at the budget's delta."""
        return accountant.epsilon(self._charged(), self.budget.delta)

    def spent_alone(self) -> float:
        """Return the same against a server that works together with the shuffler."""
        return accountant.epsilon(as_seen_alone(self._charged()), self.budget.delta)

    def _charged(self) -> list[tuple[Event, int]]:
        events = Counter(event for followed in self.plans.values() for event in followed.charged.values())
        return list(events.items())

    def check_opened(self) -> None:
        """Raise unless the ledger was opened and given a budget."""
        if not self._opened or self.budget.delta == 0:
            raise CertificateError("The certificate's entries neither open a ledger nor give it a budget.")

    def follow(self, entry: CertifiedEntry) -> None:
        """Take one entry in, or raise."""
        body = json.loads(entry.body)
        if (entry.payload == _NO_PAYLOAD) == (entry.kind in _PAYLOADS):
            raise CertificateError("it has a payload where there is none, or none where there is one.")
        if (entry.plan is None) == (entry.kind == "approved"):
            raise CertificateError("a plan stands with an approval, and with nothing else.")
        if (entry.number == 1) != (entry.kind == "opened"):
            raise CertificateError("a ledger is opened once, by its first entry.")
        match entry.kind:
            case "opened":
                if (body["silo"], body["adjacency"]) != (self._silo, "replace-one"):
                    raise CertificateError("the ledger is another silo's, or counts by another adjacency.")
                self._opened = True
            case "budget":
                epsilon = float(body["epsilon"])
                self._grant(Grant(epsilon, float(body["delta"]), float(body.get("alone", epsilon))))
            case "approved":
                self._approve(entry, body)
            case "charged":
                self._charge(body)
            case "released":
                self._release(body)
            case "ended":
                self.plans[body["plan"]].ended = True
            case "refused":
                pass
            case _:
                raise KeyError(entry.kind)

    def _grant(self, granted: Grant) -> None:
        if not (0 < granted.epsilon <= granted.alone < math.inf and 0 < granted.delta < 1):
            raise CertificateError("it is no budget.")
        if any(new < old for new, old in zip(granted, self.budget, strict=True)):
            for followed in self.plans.values():
                followed.covered = False
        self.budget = granted

    def _approve(self, entry: CertifiedEntry, body: Mapping[str, Any]) -> None:
        plan = entry.plan
        if plan is None or plan.digest() != entry.payload:
            raise CertificateError("the plan beside it is not the one that was approved.")
        terms = plan.terms(self._silo)
        if terms is None:
            raise CertificateError("the silo has no part in the plan.")
        events = plan_events(plan, terms)
        if not _same([[event.to_dict(), count] for event, count in events], body["events"]):
            raise CertificateError("what it reserved is not what the plan costs.")
        digest = plan.digest()
        others = [event for other, followed in self.plans.items() if other != digest for event in followed.reserved()]
        together = [*others, *events]
        for seen, allowed in ((together, self.budget.epsilon), (as_seen_alone(together), self.budget.alone)):
            if accountant.epsilon(seen, self.budget.delta) > allowed * (1 + _ROUNDING):
                raise CertificateError("with this plan, more was promised than the budget of that time.")
        before = self.plans.get(digest)
        self.plans[digest] = _Followed(
            plan, terms, charged=before.charged if before else {}, released=before.released if before else set()
        )

    def _charge(self, body: Mapping[str, Any]) -> None:
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or followed.ended or not followed.covered:
            raise CertificateError("the plan was not approved at that time.")
        plan, terms, charged = followed.plan, followed.terms, followed.charged
        if not 0 <= round < plan.exchanges or round <= max(charged, default=-1):
            raise CertificateError("the plan did not have this round to charge any more.")
        answered = sum(earlier >= plan.preliminaries for earlier in charged)
        event = task_event(plan, terms, task(plan, terms, round, answered))
        if not _same(event.to_dict(), body["event"]):
            raise CertificateError("what it charged is not what the plan's round costs.")
        charged[round] = event
        self.charges += 1

    def _release(self, body: Mapping[str, Any]) -> None:
        followed, round = self.plans.get(body["plan"]), body["round"]
        if followed is None or round not in followed.charged:
            raise CertificateError("the round was released without having been charged.")
        if round in followed.released:
            raise CertificateError("the round was released twice.")
        followed.released.add(round)
        self.releases += 1


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
