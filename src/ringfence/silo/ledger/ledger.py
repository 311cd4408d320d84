"""The ledger of a data set: everything its operator ever allowed and everything that ever left, as chained entries.

Its entries, in the order they were made:

    opened     whose ledger it is, under which adjacency it counts, and why it began if its data had another before
    budget     the total (epsilon, delta) that all releases together may reach, against each kind of observer
    approved   a plan, whole, and the privacy events that all its rounds come to; reserves their cost
    charged    a round of a plan, the hash of the argument it was asked with, and its event: written before the release
    released   the same round's answer, byte for byte: written before it is sent
    refused    what was asked in vain, and why
    ended      no further round of that plan is answered; gives back what it reserved and did not use, unless batches
               were drawn for it
    courier    from here on the courier may run as a user who can read what the silo keeps to itself
    registered the operator's word that this is its data's ledger, where no registry could tell
    data       the data set changed; the ledger goes on for its new version
    used       the records served the silo itself (`model.personal`): nothing left, and nothing is charged

The entries of decisions (`opened`, `budget`, `approved`, `ended`, `used`) also say who made them: `by`, the account's
name, and `note`, what they added in words.

What was spent is the exact composition of the charged events: a running tally. A filter decides what is guaranteed and
admitted (`accounting.filters`). A crash can only leave a charge without a release, never the reverse.

A ledger is identified by the hash of its first entry. Its last entry is also recorded outside it, in the state folder
of the user who runs it (`storage.watermark`): an older copy that is put back is refused.
"""

import os
import pwd
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from ringfence.errors import (
    AccountingError,
    ApprovalError,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerWriteError,
    PlanError,
    RegistryError,
)
from ringfence.protocol import Head, NewBeginning, SignedHead
from ringfence.shuffler.sealing import sign, verify, verifying_key
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import GENESIS, Account, StoredAnswer, Use
from ringfence.silo.ledger.registry import Registry
from ringfence.storage.chain import Chain, Draft, Entry
from ringfence.storage.files import state_folder
from ringfence.storage.stored_file import Closing, Kind
from ringfence.storage.watermark import Watermark

Decision = TypeVar("Decision")

_KIND = Kind(
    "ledger",
    LedgerError,
    busy=LedgerBusyError,
    unwritable=LedgerWriteError,
    damaged=LedgerDamagedError,
    if_damaged="Nothing will be released from its data until its operator restores the ledger or decides what was "
    "spent.",
)

_MARK = Kind(
    "watermark",
    LedgerError,
    unwritable=LedgerWriteError,
    damaged=LedgerDamagedError,
    if_damaged="It says how far a ledger had come, so nothing is released. Compare the ledger's last entry with its "
    "newest certificate or with the server's transcript. If nothing is missing from it, delete the watermark, and say "
    "so: `ringfence silo register FOLDER`, or `--same-data-as LEDGER`.",
)

LONGEST_NOTE = 1000

LOGGED_REFUSALS = 10_000
"""Refusals beyond this many are not logged, so that a hostile server cannot fill the silo's disk."""


class Ledger(Closing):
    """A data set's ledger file. All changes go through `update`, one at a time across all processes.

    A ledger must keep every entry that it ever held, while it is open and, by its watermark, whenever it is opened
    again; otherwise every use raises LedgerDamagedError.
    """

    def __init__(self, chain: Chain) -> None:
        """Keep the ledger's chain of entries; `create` and `open` verify it."""
        self._chain = chain
        self._account: Account | None = None
        self._mark: Watermark | None = None
        self.lost_mark = False
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
        """Create a data set's ledger with a total budget. Fails if there is already a file at `path`.

        `registered` says that the user's registry will know it, `beginning` why it is not the first of its data.
        `marked` keeps a watermark of how far the ledger has come; only a ledger that nobody will open again needs none.
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
    def open(cls, path: Path, *, owner: str | None = None, marked: bool = True, named: bool = False) -> Self:
        """Open a ledger and verify it from its first entry to its last, and that it reaches its watermark.

        It must belong to the silo `owner`, if one is named. Without `marked` it may be an older copy, to be inspected
        and never to release anything. If its watermark is lost, it is opened only where its operator `named` it; the
        caller records that, and marks it anew.
        """
        with cls(Chain(path, _KIND)).closed_on_error() as ledger:
            silo = ledger.account().silo
            if not silo:
                raise LedgerDamagedError(
                    f"The ledger {path} is empty: not even its opening entry is left. If nothing was ever released "
                    "from this data set, delete the file; otherwise restore it."
                )
            if marked:
                ledger.lost_mark = named and is_mark_lost(ledger.account().identity)
                if not ledger.lost_mark:
                    ledger._watch()
            if owner not in (None, silo):
                raise RegistryError(
                    f"The ledger {path} belongs to silo '{silo}', not to '{owner}': a silo keeps its name."
                )
        return ledger

    def _watch(self) -> None:
        """Require every entry of the ledger up to its watermark, and keep the watermark up to date from now on."""
        account = self.account()
        self._mark = watermark(account.identity, account.number, account.head)
        number, head = self._mark.read()
        if not self.holds(number, head):
            raise LedgerDamagedError(
                f"The ledger {self.path} cannot be trusted: it ends with entry {account.number}, but once had entry "
                f"{number} with the hash {head[:12]}, which is missing. It is an older copy, or one that was "
                "continued differently. Nothing is released from it. Restore the newest copy (`ringfence silo "
                "restore`)."
            )
        self._mark.raise_to(account.number, account.head, self.holds)

    def mark_anew(self) -> None:
        """Begin a new watermark in place of one that was lost, at the ledger's last entry."""
        account = self.account()
        self._mark = watermark(account.identity, account.number, account.head, anew=True)
        self.lost_mark = False

    def close(self) -> None:
        """Close the ledger's file; closing twice is fine."""
        self._chain.close()
        if self._mark is not None:
            self._mark.close()

    @property
    def path(self) -> Path:
        """Where the ledger's file is."""
        return self._chain.path

    @property
    def number(self) -> int | None:
        """The number of the ledger's last entry seen; None if the last attempt to read or write the file failed."""
        account = self._account
        return None if account is None else account.number

    def entries(self) -> list[Entry]:
        """Return all entries of the ledger, verified."""
        return list(self._chain.read(0, GENESIS))

    def stored(self, answer: StoredAnswer) -> bytes:
        """Return a released answer from the ledger, byte for byte."""
        return self._chain.payload(answer.entry, answer.hash)

    def holds(self, number: int, hash: str) -> bool:
        """Tell whether the ledger has that entry, with that hash."""
        return self._chain.holds(number, hash)

    def has_forgotten(self, number: int, hash: str) -> bool:
        """Tell whether the ledger lacks an entry that it provably had; if so, never trust it again."""
        if self.holds(number, hash):
            return False
        self._chain.require(number, hash)
        if self._mark is not None:
            self._mark.set(number, hash)
        return True

    def copy_to(self, out: Path) -> None:
        """Copy the ledger as it is now to a new file, even while others write to it."""
        self._chain.copy_to(out)

    def account(self) -> Account:
        """Return the ledger's state now, including entries that other processes have added."""
        with self._lock:
            account = self._account or Account()
            self._account = None  # a failure on the way must not leave a half-read account behind
            try:
                with closing(self._chain.read(account.number, account.head)) as entries:
                    for entry in entries:
                        account.apply(entry)
            except (KeyError, TypeError, ValueError, PlanError, AccountingError):
                raise LedgerDamagedError(
                    f"The ledger {self.path} holds an entry that this version cannot read; nothing is released."
                ) from None
            self._account = account
            return account

    def look(self, read: Callable[[Account], Decision]) -> Decision:
        """Return `read(account)` of the ledger, while no other thread changes the account."""
        with self._lock:
            return read(self.account())

    def update(self, decide: Callable[[Account], tuple[Decision, Sequence[Draft]]]) -> Decision:
        """Append the entries that `decide` drafts from the ledger's account, with no other writer in between.

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
        """Enter the data set's total budget in the ledger: an operator's decision. A larger one needs a reason.

        If the budget is lowered, running plans are not answered until they are approved again under the new budget.
        """

        def decide(account: Account) -> tuple[None, list[Draft]]:
            """Draft the ledger's entry of the new budget."""
            if not note and not account.budget.covers(budget):
                raise ApprovalError(
                    f"The budget would rise from {account.budget} to {budget}: say why with --note, for everybody who "
                    "verifies a certificate. Nothing was changed."
                )
            return None, [_granted(budget, note)]

        self.update(decide)

    def end(self, digest: str, *, revoke: bool = False, note: str = "") -> None:
        """End a plan in the ledger: no more rounds, and the budget that it reserved and did not use is free."""
        why = "revoked" if revoke else "finished"

        def decide(account: Account) -> tuple[None, list[Draft]]:
            """Draft the ledger's entry that ends an approved plan."""
            if digest not in account.plans:
                raise ApprovalError(f"Silo '{account.silo}' has never approved this plan, so it cannot end it.")
            return None, [Draft("ended", {"plan": digest, "why": why, **decided(note)})]

        self.update(decide)

    def use_inside(self, use: Use, *, model: str, plan: str, note: str = "") -> None:
        """Record in the ledger that a model was used with the records inside the silo, which costs nothing.

        The entry depends on no record. The chosen strength, or any score, would depend on records.
        """
        body = {"format": 1, "use": use, "model": model, "plan": plan, **decided(note)}
        self.update(lambda _: (None, [Draft("used", body)]))

    def allow_same_user(self) -> None:
        """Record in the ledger, once, that the courier may run as a user who can read the silo's private files."""
        self.update(
            lambda account: (None, [] if account.same_user else [Draft("courier", {"format": 1, "same_user": True})])
        )


def decided(note: str) -> dict[str, str]:
    """Return the fields of a ledger's entry that say who made a decision, with their note, if any."""
    if len(note) > LONGEST_NOTE:
        raise LedgerError(f"A note has at most {LONGEST_NOTE} characters, but this one has {len(note)}: shorten it.")
    return {"by": account_name(), "note": note} if note else {"by": account_name()}


def account_name() -> str:
    """Return the name of the user account of this process, for the ledger's entries."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container whose user was given by number
        return f"uid {os.getuid()}"


def is_mark_lost(ledger: str) -> bool:
    """Tell whether the ledger with that identity has no watermark although this user's registry knows it."""
    return not _mark_path(ledger).exists() and Registry.knows(ledger)


def watermark(ledger: str, number: int, hash: str, *, anew: bool = False) -> Watermark:
    """Open the watermark of the ledger with that identity; a new one begins at the given entry.

    One that was lost is refused, unless it begins `anew` on the operator's word.
    """
    path = _mark_path(ledger)
    if not anew and is_mark_lost(ledger):
        raise LedgerDamagedError(
            f"The watermark {path} is missing. It says how far a ledger had come that this user's registry knows, and "
            f"without it nobody can tell this copy, which ends with entry {number} with the hash {hash[:12]}, from an "
            "older one. Nothing is released from it. Restore the watermark; or compare that entry with the ledger's "
            "newest certificate or with the server's transcript and, if nothing is missing, say so: `ringfence silo "
            "register FOLDER`, or `--same-data-as LEDGER`. The ledger records it."
        )
    return Watermark(path, _MARK, (number, hash))


def _mark_path(ledger: str) -> Path:
    """Return where the watermark of the ledger with that identity is."""
    try:
        return state_folder() / "heads" / ledger
    except OSError as problem:
        raise LedgerWriteError(
            f"The ledger's watermark cannot be stored: {problem.filename}: {problem.strerror}. Set XDG_STATE_HOME to "
            "a folder that this user may write to."
        ) from None


def _granted(budget: Budget, note: str) -> Draft:
    """Draft the ledger's entry of a budget."""
    return Draft("budget", {"format": 1, "limits": budget.as_data(), **decided(note)})


@dataclass(frozen=True)
class HeadSigner:
    """Signs the heads of one ledger with its silo's key, and recognises them; without a key, neither."""

    ledger: str
    key: bytes | None

    def sign(self, number: int, hash: str) -> SignedHead | None:
        """Sign that the ledger has this entry."""
        if self.key is None:
            return None
        head = Head(ledger=self.ledger, number=number, hash=hash)
        return SignedHead(**head.model_dump(), signature=sign(self.key, head.signed_bytes()))

    def is_own(self, head: SignedHead) -> bool:
        """Tell whether this silo signed the head, of this ledger."""
        return (
            self.key is not None
            and head.ledger == self.ledger
            and verify(self._verifying_key, head.signed_bytes(), head.signature)
        )

    @cached_property
    def _verifying_key(self) -> str:
        """The public key of the silo that signs the ledger's heads."""
        return verifying_key(self.key or b"")
