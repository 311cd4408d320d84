"""Which ledger may be charged for which data: of a few rows, in one process."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import RegistryError
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger import custody
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.registry import RegisteredLedger, Registry
from ringfence.silo.records.marks import RowMarks
from ringfence.silo.records.records import Records
from tests.support import MakePlan, approved_by, rebuilt

BUDGET = Budget(2.0, 1e-6)


def marks(rows: Sequence[int] = range(40), source: Path | None = None) -> RowMarks:
    """Mark rows that are numbers."""
    words = np.array([[row, row * row] for row in rows], dtype=np.uint64)
    return RowMarks(words, source)


OTHERS = marks(range(100, 140))
SORTED = marks(range(39, -1, -1))
GROWN = marks(range(45))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "clinic.ledger"


def opened(path: Path, data: RowMarks, *, reason: str = "", named: bool = False) -> Ledger:
    """Open the ledger for a run, or begin it."""
    return custody.open_ledger(path, data, silo="clinic", budget=BUDGET, reason=reason, named=named)


@pytest.fixture
def ledger(path: Path) -> Ledger:
    """The ledger of forty rows, begun by a run."""
    ledger = opened(path, marks())
    ledger.close()
    return Ledger.open(path)


@pytest.fixture
def confirmed(path: Path) -> Ledger:
    """The ledger of forty rows, whose operator confirmed them."""
    return custody.create_ledger(path, marks(), silo="clinic", budget=BUDGET, settled=True)


def registered(ledger: Ledger) -> RegisteredLedger:
    """Return what the registry knows of the ledger."""
    with Registry() as registry:
        return registry.ledgers[ledger.account().identity]


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.entries()]


def forget_registry(own_state: Path) -> None:
    """Lose the registry as a new machine does."""
    for path in (own_state / "ringfence").glob("registry.*"):
        path.unlink()
    (own_state / "ringfence" / "fingerprint.key").unlink()


def former_of(ledger: Ledger) -> dict[str, Any]:
    """Return what the ledger's first entry says of the ledger before it."""
    [former] = ledger.entries()[0].body["new_beginning"]["former"]
    return dict(former)


def test_a_silo_that_names_the_ledger_of_its_records_has_confirmed_them(ledger: Ledger, path: Path) -> None:
    assert registered(ledger).settled is None
    with custody.join_ledger(path, marks(), silo="clinic") as joined:
        assert joined.path == path
        assert kinds(joined) == ["opened", "budget"]
        assert not custody.were_moved(joined, marks())
    settled = registered(ledger).settled
    assert settled is not None
    assert settled.records == 40


@pytest.mark.parametrize("data", [OTHERS, SORTED, GROWN], ids=["others", "sorted", "grown"])
def test_a_second_silo_of_a_ledger_has_the_confirmed_records_in_their_order(
    confirmed: Ledger, path: Path, data: RowMarks
) -> None:
    with pytest.raises(RegistryError, match="belongs to a silo with other records"):
        custody.join_ledger(path, data, silo="clinic")
    custody.join_ledger(path, marks(), silo="clinic").close()
    assert kinds(confirmed) == ["opened", "budget"]
    assert len(registered(confirmed).versions) == 1 + 1, "the silo that joined, and none that was refused"


def test_a_ledger_that_no_registry_knows_is_joined_on_its_operator_s_word(
    confirmed: Ledger, path: Path, own_state: Path, records: Records, plan_of: MakePlan
) -> None:
    approved_by(Gate(records, confirmed), plan_of())
    forget_registry(own_state)
    with pytest.raises(RegistryError, match="was registered before"):
        opened(path, marks())
    with custody.join_ledger(path, marks(), silo="clinic") as joined:
        assert kinds(joined) == ["opened", "budget", "approved", "registered"]
        assert registered(joined).settled is not None


def test_a_run_goes_on_only_while_the_ledger_is_that_of_its_rows_in_their_order(ledger: Ledger, path: Path) -> None:
    custody.require_current(ledger, marks())
    opened(path, SORTED).close()
    custody.require_current(ledger, SORTED)
    with pytest.raises(RegistryError, match="one run at a time"):
        custody.require_current(ledger, marks())


def test_a_ledger_is_registered_once(confirmed: Ledger) -> None:
    with pytest.raises(RegistryError, match="is already registered"):
        custody.register(confirmed, marks())
    assert kinds(confirmed) == ["opened", "budget"]


def test_a_ledger_that_a_run_began_is_registered_on_its_operator_s_word(ledger: Ledger) -> None:
    assert custody.register(ledger, marks()).beginning is None
    assert registered(ledger).settled is not None
    with pytest.raises(RegistryError, match="is already registered"):
        custody.register(ledger, marks())


def test_a_copy_may_neither_be_opened_nor_registered_nor_charged(confirmed: Ledger, path: Path) -> None:
    shutil.copyfile(path, copy := path.with_name("copy.ledger"))
    with pytest.raises(RegistryError, match="is a copy: the ledger of these records is"):
        opened(copy, marks())
    with Ledger.open(copy) as second:
        with pytest.raises(RegistryError, match="is a copy"):
            custody.register(second, marks())
        assert "is a copy" in custody.objection(second)
        assert custody.objection(confirmed) == ""
    assert registered(confirmed).path == path


@pytest.mark.parametrize("left", ["nothing", "another ledger"])
def test_a_ledger_that_was_moved_goes_on(confirmed: Ledger, path: Path, left: str) -> None:
    moved = path.rename(path.with_name("moved.ledger"))
    if left == "another ledger":
        Ledger.create(path, silo="clinic", budget=BUDGET).close()
    with Ledger.open(moved) as ledger:
        assert custody.objection(ledger) == ""
    opened(moved, marks()).close()
    with Ledger.open(moved) as ledger:
        assert registered(ledger).path == moved
        assert not custody.were_moved(ledger, marks())


def test_an_unreadable_file_in_a_ledger_s_place_may_be_the_ledger(confirmed: Ledger, path: Path) -> None:
    shutil.copyfile(path, copy := path.with_name("copy.ledger"))
    confirmed.close()
    path.write_bytes(b"x" * 5000)
    with pytest.raises(RegistryError, match="is a copy"):
        opened(copy, marks())


def test_a_ledger_with_two_names_is_not_charged(confirmed: Ledger, path: Path) -> None:
    os.link(path, second := path.with_name("second.ledger"))
    for name in (path, second):
        with pytest.raises(RegistryError, match="has 2 names on this disk"):
            opened(name, marks())
    assert "has 2 names" in custody.objection(confirmed)
    second.unlink()
    opened(path, marks()).close()


def test_a_ledger_with_two_names_that_no_registry_knows_is_not_written_to(
    confirmed: Ledger, path: Path, own_state: Path
) -> None:
    forget_registry(own_state)
    os.link(path, path.with_name("second.ledger"))
    with pytest.raises(RegistryError, match="has 2 names on this disk"):
        custody.join_ledger(path, marks(), silo="clinic")
    assert kinds(confirmed) == ["opened", "budget"]


def test_a_ledger_that_was_never_registered_is_by_its_silo(path: Path) -> None:
    with Ledger.create(path, silo="clinic", budget=BUDGET) as ledger:
        assert not custody.were_moved(ledger, marks())
        assert registered(ledger).settled is not None


def test_a_silo_s_ledger_that_a_lost_registry_knew_is_not_charged_until_its_operator_registers_it(
    confirmed: Ledger, own_state: Path, records: Records, plan_of: MakePlan
) -> None:
    approved_by(Gate(records, confirmed), plan_of())
    forget_registry(own_state)
    with pytest.raises(RegistryError, match="was registered before"):
        custody.were_moved(confirmed, marks())
    custody.register(confirmed, marks())
    assert not custody.were_moved(confirmed, marks())


def test_a_silo_of_a_ledger_that_a_run_began_confirms_its_records(ledger: Ledger) -> None:
    assert not custody.were_moved(ledger, marks())
    assert registered(ledger).settled is not None
    assert custody.were_moved(ledger, SORTED)


def test_a_ledger_beside_its_data_is_found_although_the_registry_was_lost(path: Path, own_state: Path) -> None:
    data = path.with_suffix(".csv")
    custody.create_ledger(path, marks(source=data), silo="clinic", budget=BUDGET).close()
    forget_registry(own_state)
    for source in (data, linked := path.with_name("linked.csv")):
        if source is linked:
            linked.symlink_to(data)
        with pytest.raises(RegistryError, match="already have a ledger") as refused:
            opened(path.with_name("new.ledger"), marks(source=source))
        assert str(path) in str(refused.value)
    with opened(path.with_name("new.ledger"), marks(source=data), reason="it was a trial") as new:
        former = former_of(new)
    with Ledger.open(path) as ledger:
        assert (former["ledger"], former["head"]) == (ledger.account().identity, ledger.account().head)


def test_a_new_beginning_names_the_former_ledger_how_far_it_came_and_what_it_cost(
    confirmed: Ledger, path: Path
) -> None:
    with opened(path.with_name("new.ledger"), marks(), reason="a trial") as new:
        former, account = former_of(new), confirmed.account()
        assert registered(confirmed).successor == new.account().identity
    assert (former["ledger"], former["number"], former["head"]) == (account.identity, account.number, account.head)
    assert former["spent"] == [cost.model_dump(mode="json") for cost in account.spent()]
    assert "already have a ledger" in custody.objection(confirmed)


@pytest.mark.parametrize("accident", ["lost", "damaged", "replaced"])
def test_a_new_beginning_after_the_ledger_was_lost_says_only_which_it_was(
    confirmed: Ledger, path: Path, accident: str
) -> None:
    identity = confirmed.account().identity
    confirmed.close()
    path.unlink()
    if accident == "damaged":
        path.write_bytes(b"x" * 5000)
    elif accident == "replaced":
        Ledger.create(path, silo="clinic", budget=BUDGET).close()
    with opened(path.with_name("new.ledger"), marks(), reason="the disk broke") as new:
        assert former_of(new) == {"ledger": identity, "spent": []}


def test_a_ledger_s_own_name_is_asked_for_only_where_something_must_be_decided(ledger: Ledger, path: Path) -> None:
    opened(path, marks(), named=True).close()
    opened(path, marks(), reason="no reason is needed").close()
    assert kinds(ledger) == ["opened", "budget"]
    assert len(registered(ledger).versions) == 1


def test_a_lost_watermark_is_begun_anew_for_who_names_the_ledger_and_the_ledger_says_so(
    ledger: Ledger, path: Path, own_state: Path
) -> None:
    ledger.close()
    [mark] = (own_state / "ringfence" / "heads").iterdir()
    mark.unlink()
    with opened(path, marks(), named=True) as anew:
        assert anew.entries()[-1].body["watermark"] == "lost"
        assert mark.read_text().split()[4] == anew.account().head
        assert not anew.lost_mark


def test_records_that_are_again_what_the_operator_confirmed_are_so_in_the_registry(
    confirmed: Ledger, path: Path
) -> None:
    opened(path, GROWN).close()
    assert [version.records for version in registered(confirmed).versions] == [40, 45]
    assert not custody.were_moved(confirmed, marks())
    known = registered(confirmed)
    assert [version.records for version in known.versions] == [40, 45, 40]
    assert known.settled is known.versions[-1]
    assert kinds(confirmed) == ["opened", "budget"], "no plan went by places"


def test_a_plan_that_divided_the_records_has_their_return_in_the_ledger(
    confirmed: Ledger, path: Path, records: Records, plan_of: MakePlan
) -> None:
    approved_by(Gate(records, confirmed), rebuilt(plan_of(), held_out=0.3))
    opened(path, GROWN).close()
    assert not custody.were_moved(confirmed, marks())
    grown, again = [entry.body for entry in confirmed.entries() if entry.kind == "data"]
    assert (grown["before"], grown["after"]) == (40, 45)
    assert (again["before"], again["after"]) == (45, 40)
    assert again["reason"] == "it is again what the silo was set up for"
