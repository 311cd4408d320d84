"""One data set, one ledger: which ledger may be charged for which data.

Every ledger is opened or created here for its data. Guarantee, for one user of one machine: two ledgers are never
charged for the same data unless somebody gave a reason, which the ledger records. Data is the same if it has the same
rows, in any order and any file, or most of them (`silo.records.marks`). Where only some columns have most of the same
rows, it may be other data: then a reason is needed as well, but the other ledger stays in force.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ringfence.errors import WHY, LedgerError, RegistryError, os_error_as
from ringfence.protocol import DataChange, FormerLedger, NewBeginning, Registration, explain
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import Account
from ringfence.silo.ledger.ledger import Ledger, account_name
from ringfence.silo.ledger.registry import RegisteredLedger, Registry
from ringfence.silo.records.marks import Fingerprint, RowMarks, Sketch
from ringfence.storage.chain import Draft

Said = TypeVar("Said", NewBeginning, DataChange)


def open_ledger(
    path: Path, marks: RowMarks, *, silo: str, budget: Budget, reason: str = "", named: bool = False
) -> Ledger:
    """Open the ledger at `path` for the data, or begin it; RegistryError if the data has another one.

    `reason` says why the data gets a new ledger nevertheless; `named` that the user named this one as the data's own,
    where no registry knows, and as its newest copy, where no watermark does. Changed data, or another order of rows, is
    registered as a new version, and recorded in the ledger itself if plans divided the records into sections, which go
    by position.
    """
    if not path.exists():
        return create_ledger(path, marks, silo=silo, budget=budget, reason=reason)
    with Ledger.open(path, owner=silo, named=named).closed_on_error() as ledger, Registry() as registry:
        case = _Case(registry, ledger, registry.fingerprint(marks))
        if not case.is_settled() or reason or named:
            with registry.deciding():
                case.admit(reason=reason, named=named)
        return ledger


def create_ledger(
    path: Path, marks: RowMarks, *, silo: str, budget: Budget, note: str = "", reason: str = "", settled: bool = False
) -> Ledger:
    """Create a ledger for data that has none, or, with a `reason`, for data that already has one.

    `settled` says that a silo's operator confirms the data as it is.
    """
    with Registry() as registry:
        found = registry.fingerprint(marks)
        with registry.deciding():
            former = [*registry.holders(found), *_unknown_beside(registry, marks.source)]
            beginning = _new_beginning(former, registry.alike(found), reason)
            ledger = Ledger.create(path, silo=silo, budget=budget, note=note, registered=True, beginning=beginning)
            with ledger.closed_on_error():
                _Case(registry, ledger, found).hold(former, settled=settled)
        return ledger


def join_ledger(path: Path, marks: RowMarks, *, silo: str) -> Ledger:
    """Open a ledger that its operator names as that of a silo's data."""
    with Ledger.open(path, owner=silo).closed_on_error() as ledger, _deciding(ledger, marks) as case:
        known = case.known
        if known is not None and known.settled is not None and not case.found.has_order_of(known.settled):
            raise RegistryError(
                f"The ledger {path} belongs to a silo with other records, or with these in another order. Update that "
                "silo (`ringfence silo update`), or give this one the same records."
            )
        case.admit(named=True, settled=True)
        return ledger


def require_current(ledger: Ledger, marks: RowMarks) -> None:
    """Refuse data if another process has just opened the ledger for another version of it: positions may differ."""
    with _deciding(ledger, marks) as case:
        if not case.is_settled():
            raise RegistryError(
                f"The ledger {ledger.path} was just opened for other rows, or for these in another order. Nothing was "
                "released: try again, one run at a time."
            )


def were_moved(ledger: Ledger, marks: RowMarks) -> bool:
    """Tell whether a silo's rows are in another order than the one its operator confirmed.

    Raises RegistryError if they are other rows, if the ledger is a copy, or if the registry that knew it was lost; a
    ledger that was never registered is registered.
    """
    with Registry() as registry:
        case = _Case(registry, ledger, registry.fingerprint(marks))
        if case.known is None or case.known.settled is None or not case.is_settled():
            with registry.deciding():
                case.be_chargeable()
                case.return_to_settled()
        found, settled = case.found, case.settled
        if found.rows != settled.rows:
            raise RegistryError(
                f"The rows of silo '{ledger.account().silo}' have changed since it was set up: there were "
                f"{settled.records}, now there are {found.records}, and more than their order has changed. The silo "
                'answers nothing until you record what happened: `ringfence silo update FOLDER --reason "…"`. If '
                "these rows belong to another data set, correct `data_file` in silo.toml instead."
            )
        return not found.has_order_of(settled)


def update(ledger: Ledger, marks: RowMarks, reason: str) -> DataChange:
    """Continue the ledger with the data set as it is now; an entry on its custody records when and why."""
    with _deciding(ledger, marks) as case:
        case.be_chargeable()
        if case.found.has_order_of(case.settled):
            raise RegistryError(
                f"The rows of silo '{ledger.account().silo}' are the registered ones, in the same order: there is "
                "nothing to update."
            )
        change = _data_change(case.settled, case.found, reason)
        ledger.update(lambda _: (None, [Draft("data", change.model_dump())]))
        case.hold([], settled=True)
        return change


def register(ledger: Ledger, marks: RowMarks, reason: str = "") -> Registration:
    """Register a silo's ledger on its operator's word, which the ledger records."""
    with _deciding(ledger, marks) as case:
        if case.known is not None and case.known.settled is not None and not (case.others() or ledger.lost_mark):
            case.require_own_place()
            raise RegistryError(
                f"The ledger {ledger.path} is already registered. If its data has changed, run `ringfence silo update`."
            )
        return case.admit(reason=reason, named=True, settled=True)


def objection(ledger: Ledger) -> str:
    """Return why custody forbids charging the ledger, as far as is known without the data; empty if it may be."""
    try:
        with Registry() as registry:
            known = registry.ledgers.get(ledger.account().identity)
            if known is not None:
                _is_in_place(ledger, known)
                _require_free(_successors(registry, known), "")
    except RegistryError as problem:
        return str(problem)
    return ""


@dataclass(frozen=True)
class _Case:
    """A ledger, the data that it may be charged for, and what the registry knows of both.

    What is written is written inside `registry.deciding`.
    """

    registry: Registry
    ledger: Ledger
    found: Fingerprint

    @property
    def known(self) -> RegisteredLedger | None:
        """The registry's entry of the ledger of this case, if any."""
        return self.registry.ledgers.get(self.ledger.account().identity)

    @property
    def settled(self) -> Sketch:
        """The version of the data that the silo's operator confirmed, of a chargeable ledger."""
        known = self.known
        if known is None or known.settled is None:
            raise LookupError("nobody vouches for this ledger's data yet")
        return known.settled

    def is_settled(self) -> bool:
        """Tell whether ledger and data of this case are unchanged, so that there is nothing to decide or write."""
        known = self.known
        return (
            known is not None
            and not known.successor
            and known.path == _resolved_path(self.ledger.path)
            and self.found.has_order_of(known.versions[-1])
            and not self.has_no_parts()
            and not self.others()
        )

    def has_no_parts(self) -> bool:
        """Tell whether the registry knows this data from a version that kept no sketches by columns."""
        known = self.known
        return (
            known is not None
            and bool(self.found.parts)
            and not known.versions[-1].parts
            and self.found.has_order_of(known.versions[-1])
        )

    def others(self) -> list[RegisteredLedger]:
        """Return the other ledgers in force of this data, or of what this ledger's data was before."""
        identity, known = self.ledger.account().identity, self.known
        former = [] if known is None else _successors(self.registry, known)
        others = {other.identity: other for other in (*former, *self.registry.holders(self.found))}
        return [other for other in others.values() if other.identity != identity]

    def alike(self) -> list[RegisteredLedger]:
        """Return other ledgers of data with most of these rows in some columns, unless this ledger's own has them."""
        found, known = self.found, self.known
        if known is not None and any(found.is_mostly(own) or found.resembles(own) for own in known.versions):
            return []
        identity = self.ledger.account().identity
        return [other for other in self.registry.alike(found) if other.identity != identity]

    def require_own_place(self) -> None:
        """Refuse custody to a copy of a ledger, and record that a ledger was moved."""
        known = self.known
        if known is not None and not _is_in_place(self.ledger, known):
            self.registry.move(known.identity, _resolved_path(self.ledger.path))

    def be_chargeable(self) -> None:
        """Require that an operator confirmed some version of the data, and that no other ledger has it."""
        if self.known is None or self.known.settled is None:
            self.admit(settled=True)
        self.require_own_place()
        _require_free(self.others(), "")

    def return_to_settled(self) -> None:
        """Record, in custody, that the data is again the version that the operator confirmed."""
        known, found = self.known, self.found
        if known is None:
            return
        if self.has_no_parts():
            self.hold([], settled=found.has_order_of(self.settled))
        elif found.has_order_of(self.settled) and not found.has_order_of(known.versions[-1]):
            self._note_change(known.versions[-1], "it is again what the silo was set up for")
            self.hold([], settled=True)

    def admit(self, *, reason: str = "", named: bool = False, settled: bool = False) -> Registration:
        """Register an existing ledger for the case's data, and record what has changed; or raise RegistryError."""
        ledger, found, known, account = self.ledger, self.found, self.known, self.ledger.account()
        _resolved_path(ledger.path)
        self.require_own_place()
        others = self.others()
        beginning = _new_beginning(others, self.alike(), reason)
        if known is None and account.registered and account.plans and not named:
            raise RegistryError(
                f"The ledger {ledger.path} was registered before, but this user's registry does not know it: the "
                "registry was lost, or the ledger comes from another user or machine. Nothing was released. Make sure "
                "that it is the newest copy and not in use elsewhere; then register it (`ringfence silo register "
                f"FOLDER`), or name it: `--same-data-as {ledger.path}`."
            )
        said = Registration(by=account_name(), beginning=beginning, watermark="lost" if ledger.lost_mark else None)
        registered = Draft("registered", said.model_dump(exclude_none=True))
        drafts = [registered] if beginning is not None or ledger.lost_mark or (known is None and named) else []
        versions = known.versions if known is not None else []
        changed = not versions or not found.has_order_of(versions[-1])
        if settled and any(not found.has_order_of(version) for version in versions):
            change = _data_change(versions[-1], found, "a silo was set up for it")
            drafts.append(Draft("data", change.model_dump()))
        elif changed:
            self._note_change(versions[-1] if versions else found, "a run was begun with it")
        if drafts:
            ledger.update(lambda _: (None, drafts))
        if ledger.lost_mark:
            ledger.mark_anew()
        if others or settled or changed or self.has_no_parts():
            self.hold(others, settled=settled)
        return said

    def hold(self, former: Sequence[RegisteredLedger], *, settled: bool) -> None:
        """Register this ledger for the data, in place of the former ones."""
        account = self.ledger.account()
        self.registry.hold(
            account.identity, _resolved_path(self.ledger.path), account.silo, self.found, settled=settled
        )
        self.registry.succeed([known for known in former if known.identity in self.registry.ledgers], account.identity)

    def _note_change(self, before: Sketch, reason: str) -> None:
        """Record a new version of the data in the ledger, if plans divided records by position."""
        change = _data_change(before, self.found, reason)

        def decide(account: Account) -> tuple[None, list[Draft]]:
            """Draft the entry of the data's change, if an approved plan held out records by position."""
            divided = any(plan.held_out is not None for plan in account.approved_plans)
            return None, [Draft("data", change.model_dump())] if divided else []

        self.ledger.update(decide)


@contextmanager
def _deciding(ledger: Ledger, marks: RowMarks) -> Iterator[_Case]:
    """Yield the case of a ledger and its data, with the registry locked until the block ends."""
    with Registry() as registry:
        case = _Case(registry, ledger, registry.fingerprint(marks))
        with registry.deciding():
            yield case


def _successors(registry: Registry, known: RegisteredLedger) -> list[RegisteredLedger]:
    """Return the ledger that succeeded this one, if any."""
    return [registry.in_force(known)] if known.successor else []


def _resolved_path(path: Path) -> Path:
    """Return the path of a ledger's file without links; RegistryError if the file has a second name."""
    place = path.resolve()
    with os_error_as(RegistryError, f"The ledger {path} could not be read: {WHY}."):
        names = place.stat().st_nlink
    if names > 1:
        raise RegistryError(
            f"The ledger {place} has {names} names on this disk (hard links), and what is written under one name "
            "could be undone under another. Nothing was released: remove all names but one."
        )
    return place


def _is_in_place(ledger: Ledger, known: RegisteredLedger) -> bool:
    """Tell whether the ledger is where it was, or was moved; RegistryError if it is a copy."""
    if known.path == _resolved_path(ledger.path):
        return True
    if _is_there(known):
        raise RegistryError(
            f"The ledger {ledger.path} is a copy: the ledger of these records is {known.path}. Each copy would miss "
            "what the other released. Nothing was released: use that one, or delete it if this one is newer."
        )
    return False


def _is_there(known: RegisteredLedger) -> bool:
    """Tell whether a ledger of the registry is still in its place; an unreadable file there counts as it."""
    if not known.path.exists():
        return False
    try:
        with Ledger.open(known.path) as ledger:
            return ledger.account().identity == known.identity
    except LedgerError:
        return True


def _unknown_beside(registry: Registry, source: Path | None) -> list[RegisteredLedger]:
    """Return the ledger beside a data file, where `ringfence train` keeps it, if the registry does not know it."""
    found: dict[str, RegisteredLedger] = {}
    for file in () if source is None else (source, source.resolve()):
        path = file.with_suffix(".ledger").resolve()
        if path.is_file():
            with Ledger.open(path) as ledger:
                account = ledger.account()
            if account.identity not in registry.ledgers:
                found[account.identity] = RegisteredLedger(account.identity, path, account.silo)
    return list(found.values())


def _require_free(others: Sequence[RegisteredLedger], reason: str) -> None:
    """Raise RegistryError if the data has another ledger and nobody gave a reason for a new one."""
    if not others or reason:
        return
    first = others[0]
    there = first.path.exists()
    raise RegistryError(
        f"These records, or most of them, already have a ledger: {first.path}, of silo "
        f"'{first.silo}'{'' if there else ', which no longer exists'}. A second one would not count what was released "
        f"from them. Nothing was released. {'Use' if there else 'Restore and use'} that one (`--same-data-as "
        f"{first.path}`, for a new run or folder). If it should not count, say why: `--new-beginning "
        '"REASON"` (for an estimator: `new_beginning`), or for an existing folder `ringfence silo register FOLDER '
        '--reason "REASON"`. The reason is recorded in the ledger and in all its certificates.'
    )


def _new_beginning(
    former: Sequence[RegisteredLedger], alike: Sequence[RegisteredLedger], reason: str
) -> NewBeginning | None:
    """Return why a ledger begins beside others of the same data, or of data that is alike; None if there are none."""
    _require_free(former, reason)
    others = {known.identity: known for known in (*former, *alike)}.values()
    if not others:
        return None
    if not reason:
        first = alike[0]
        raise RegistryError(
            f"Most of these records are also in the data of the ledger {first.path}, of silo '{first.silo}', with some "
            "columns in common, while other columns were added, dropped, renamed or changed. A second ledger would not "
            "count what was released from them. Nothing was released. If they are the same records, use that ledger: "
            f"`--same-data-as {first.path}` for a run; for a silo, name the new table in its silo.toml and run "
            '`ringfence silo update FOLDER --reason "…"`. If they are others, say why they agree: `--new-beginning '
            '"REASON"`. The reason is recorded in the ledger and in all its certificates.'
        )
    return _checked(NewBeginning, reason=reason, former=tuple(map(_former_ledger, others)))


def _former_ledger(known: RegisteredLedger) -> FormerLedger:
    """Return the identity of a ledger that had custody before, with its head and cost if it can be read."""
    try:
        with Ledger.open(known.path) as ledger:
            account: Account = ledger.account()
            spent = account.spent()
    except LedgerError:
        return FormerLedger(ledger=known.identity)
    if account.identity != known.identity or not all(math.isfinite(cost.epsilon) for cost in spent):
        return FormerLedger(ledger=known.identity)
    return FormerLedger(ledger=known.identity, number=account.number, head=account.head, spent=spent)


def _data_change(before: Sketch, after: Fingerprint, reason: str) -> DataChange:
    """Return the entry of a change of the data; with persons, their number of rows is private."""
    if before.persons is None and after.persons is None:
        return _checked(DataChange, before=before.records, after=after.records, reason=reason)
    return _checked(DataChange, before=before.persons, after=after.persons, unit="person", reason=reason)


def _checked(kind: type[Said], **facts: object) -> Said:
    """Return an entry about a ledger's custody, with the user's name; RegistryError if it is not valid."""
    try:
        return kind.model_validate({"by": account_name(), **facts})
    except ValidationError as refused:
        raise RegistryError(f"This cannot be recorded in a ledger: {explain(refused)}.") from None
