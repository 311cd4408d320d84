"""Verification of a silo's certificate by anyone, without the silo.

The check trusts no number in it. It recomputes the hash chain, replays the entries under the gate's rules, derives
the cost of every charged round from the approved plan, computes what that guarantees, and checks the signature. It is
written apart from the gate and the ledger's own reader, so that a mistake there shows here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence.errors import CertificateError, RingfenceError, visible
from ringfence.evidence.certificate_history import ROUNDING, History
from ringfence.model.statement import Statement, observer_words
from ringfence.protocol import Guarantee, Observer, Unit, against_words, claimed_against
from ringfence.protocol.documents.certificate import Certificate, CertifiedEntry, SignedCertificate, read_certificate
from ringfence.protocol.plan.guarantee import against
from ringfence.protocol.plan.plan import fewest_colluders, protected_by
from ringfence.shuffler import sealing
from ringfence.silo.ledger.budget import BASIS_WORDS
from ringfence.silo.ledger.history import GENESIS
from ringfence.storage.chain import entry_hash
from ringfence.storage.files import LARGE_LIMIT, read_file

_SAME_USER = (
    "  - That nothing was read past the gate: the operator allowed the silo's courier to run as a user who can read "
    "the records, so whatever the engine's server can make the courier do, it can do with them.",
)


@dataclass(frozen=True)
class Verified:
    """What a certificate that passed every check says and proves, and all that its entries say."""

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
    colluders: int | None
    unit: Unit
    same_user: bool
    remarks: tuple[str, ...]
    history: History = field(repr=False)

    def against(self, observer: Observer) -> str:
        """Return in words whom the verified guarantee of all releases holds against."""
        return observer_words(observer, [each.against for each in self.guarantee], self.colluders)

    def data(self) -> dict[str, Any]:
        """Return what the verified certificate proves as plain data."""
        fields = {name: value for name, value in vars(self).items() if name != "history"}
        costs = {name: [each.model_dump() for each in fields[name]] for name in ("guarantee", "used", "budget")}
        budgets = [{**each._asdict(), "budget": each.budget.as_data()} for each in self.history.budgets]
        return {"valid": True, **fields, **costs, "remarks": list(self.remarks), "budgets": budgets}

    def text(self) -> str:
        """Return in words what the verified certificate proves, and what it does not."""
        signer = (
            "with the key that you gave"
            if self.key_was_given
            else f"with the key {self.public_key}; ask the silo through another channel whether it is theirs (--key)"
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
                f"  - Its {self.entries} ledger entries are complete and in order: changing, omitting or inserting one "
                "would show.",
                f"  - They list {self.plans} approved plan{'s' * (self.plans != 1)}, {self.charged} charged rounds and "
                f"{self.released} releases{f' ({lost} charged without a release, as after a crash)' if lost else ''}; "
                "every release was charged first, no round was released twice, and each belonged to a plan that was "
                "approved before.",
                f"  - All of them together are differentially private at epsilon = {first.epsilon:.6g}, delta = "
                f"{first.delta:.3g}, for each {self.unit} (replace-one adjacency), however the plans were chosen and "
                f"whenever you stop. {BASIS_WORDS[self.history.basis(first.against)]} This was recomputed from the "
                "plans alone.",
                f"  - This holds {claimed_against([each.against for each in self.guarantee], self.colluders)}.",
                *(
                    f"  - {against_words(other.against).capitalize()}, the silo's own noise gives epsilon = "
                    f"{other.epsilon:.6g} at the same delta."
                    for other in others
                    if other.epsilon > first.epsilon * (1 + ROUNDING)
                ),
                "  - No plan was approved beyond the budget of its time. Of the present one, epsilon "
                f"{limit.epsilon:.6g} at delta {limit.delta:.3g}, {used.epsilon:.6g} is used (a running tally).",
                "",
                "Which budgets the silo set, by its own clock",
                "",
                *(f"  - {visible(granted.words())}" for granted in self.history.budgets),
                *(["", "What the silo says about its data", ""] if self.remarks else []),
                *(f"  - {remark}" for remark in self.remarks),
                "",
                "What is not proved",
                "",
                "  - That the silo released nothing else: no list can show what is missing from it. Compare the "
                "releases here with what the server received.",
                "  - That the noise was drawn as the plans say, or that the entries were made at the stated times.",
                "  - That there is no newer certificate: this one shows the state on its date of issue. Also give an "
                "older one, or the run's folder (--transcript), to check that nothing was forgotten in between.",
                *(_SAME_USER if self.same_user else ()),
            ]
        )


def verify_file(path: Path, *, key: str | None = None) -> Verified:
    """Check a certificate's file; raise CertificateError with the first thing that does not fit."""
    return verify(read_file(path, "certificate", CertificateError, LARGE_LIMIT), key=key)


def verify_statement(statement: Statement, certificates: Sequence[Path]) -> list[str]:
    """Check a model's statement against silos' certificates; return a sentence for each silo.

    Raises CertificateError if a certificate is not valid, is of no silo in the statement, or shows more rounds or
    another cost than the statement.
    """
    found: dict[str, Verified] = {}
    for path in certificates:
        finding = verify_file(path)
        stated, followed = statement.silos.get(finding.silo), finding.history.plans.get(statement.plan.digest())
        if stated is None or followed is None:
            raise CertificateError(f"{path} is of silo '{finding.silo}' and shows no release for this model.")
        same_costs = [
            math.isclose(each.epsilon, against(followed.terms.guarantees, each.against).epsilon, rel_tol=1e-6)
            for each in stated.this_run
        ]
        if (stated.records, stated.rounds) != (followed.terms.records, len(followed.charged)) or not all(same_costs):
            raise CertificateError(
                f"The statement is not true of silo '{finding.silo}': its certificate {path} shows other rounds "
                "or another cost for this model's plan."
            )
        found[finding.silo] = finding
    return [
        f"{visible(name)}: not verified, because no certificate of this silo was given."
        if name not in found
        else f"{visible(name)}: verified. The certificate issued {visible(found[name].issued)} shows these rounds at "
        f"this cost; it is signed with the key {found[name].public_key}. Confirm it with the silo through another "
        "channel."
        for name in statement.silos
    ]


def verify(content: bytes, *, key: str | None = None) -> Verified:
    """Verify a certificate's bytes; `key` is the silo's public key in hexadecimal, from another source."""
    signed = read_certificate(content)
    certificate = signed.certificate
    _check_chain(certificate)
    history = History(certificate.silo)
    for entry in certificate.entries:
        _follow_entry(history, entry)
    if not history.budget:  # its first entry opens the ledger, or was refused above
        raise CertificateError("The certificate's entries neither open a ledger nor give it a budget.")
    _check_totals(certificate, history)
    _check_signature(signed, key)
    if content != signed.to_file():  # any change to a certificate must show
        raise CertificateError(
            "The certificate's content passes every check, but the file was rewritten (spaces, order or spelling): ask "
            "for the file as the silo exported it."
        )
    plans = [followed.plan for followed in history.plans.values()]
    return Verified(
        silo=certificate.silo,
        issued=certificate.issued,
        entries=len(certificate.entries),
        plans=len(plans),
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
        colluders=fewest_colluders(plans),
        unit=protected_by(plans),
        same_user=any(entry.kind == "courier" for entry in certificate.entries),
        remarks=tuple(history.remarks),
        history=history,
    )


def _check_chain(certificate: Certificate) -> None:
    """Raise CertificateError if the certificate's hash chain is broken."""
    previous = GENESIS
    for expected, entry in enumerate(certificate.entries, start=1):
        if entry.number != expected:
            raise CertificateError(
                f"The certificate's entry {expected} is missing: entry {entry.number} is in its place."
            )
        if entry.hash != entry_hash(previous, entry.number, entry.time, entry.kind, entry.body, entry.payload):
            raise CertificateError(
                f"The certificate's hash chain breaks at entry {entry.number}: it, or the one before it, was changed."
            )
        previous = entry.hash
    if certificate.head != previous:
        raise CertificateError(
            "The certificate's head is not the hash of its last entry: entries were removed or added."
        )


def _check_totals(certificate: Certificate, history: History) -> None:
    """Raise CertificateError if the certificate's totals are not those of its entries."""
    if (certificate.charged, certificate.released) != (history.charges, history.releases):
        raise CertificateError(
            f"The certificate counts {certificate.charged} charges and {certificate.released} releases, but its "
            f"entries show {history.charges} and {history.releases}."
        )
    for stated in certificate.spent:
        if stated.delta != history.delta:
            raise CertificateError("The certificate's delta differs from that of the budget in its entries.")
        true_epsilon = history.used(stated.against).epsilon
        if not math.isclose(stated.epsilon, true_epsilon, rel_tol=1e-6, abs_tol=1e-12):
            raise CertificateError(
                f"The certificate states epsilon {stated.epsilon:.6g}, but its charges add up to {true_epsilon:.6g}."
            )
    if not set(history.observers()) <= {stated.against for stated in certificate.spent}:
        raise CertificateError("The certificate omits what its charges cost against one kind of observer.")


def _check_signature(signed: SignedCertificate, key: str | None) -> None:
    """Raise CertificateError if the certificate's signature does not fit, or is by another key than the given one."""
    certificate = signed.certificate
    if key is not None and key.strip().lower() != certificate.public_key:
        raise CertificateError(
            f"The certificate was signed with the key {certificate.public_key}, not with the one that you gave."
        )
    if not sealing.verify(certificate.public_key, certificate.signed_bytes(), signed.signature):
        raise CertificateError(
            "The certificate's signature does not match its content and public key: one of them was changed."
        )


def _follow_entry(history: History, entry: CertifiedEntry) -> None:
    """Replay a certificate's entry, and name it in any error about it."""
    try:
        history.follow(entry)
    except CertificateError as problem:
        raise CertificateError(
            f"The certificate's entry {entry.number} ({entry.kind}) is not valid: {problem}"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise CertificateError(
            f"The certificate's entry {entry.number} ({entry.kind[:20]!r}) cannot be read by this version."
        ) from None
    except RingfenceError as problem:
        raise CertificateError(f"The certificate's entry {entry.number} is not valid: {problem}") from None
