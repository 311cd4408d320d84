"""Backups: taken while others write, and put back only where nothing is forgotten."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError, LedgerError, OutputError, SiloError
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger.backup import back_up, restore
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.operator.decisions import set_budget
from tests.nursery import completed
from tests.silo.agents import serving


@pytest.fixture
def backup(silo_folder: SiloFolder, tmp_path: Path) -> Path:
    """A backup of the ledger as it is, with three entries."""
    set_budget(silo_folder, Budget(3.0, 1e-6), note="a test")
    out = tmp_path / "backup.ledger"
    back_up(silo_folder, out)
    return out


def lose(silo_folder: SiloFolder) -> None:
    silo_folder.ledger_path.unlink()


def truncate(silo_folder: SiloFolder) -> None:
    os.truncate(silo_folder.ledger_path, 5000)


def roll_back(silo_folder: SiloFolder) -> None:
    """Put an older ledger in its place, as a careless hand would."""
    older = silo_folder.path.parent / "older.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    set_budget(silo_folder, Budget(9.0, 1e-6), note="a test")
    shutil.copyfile(older, silo_folder.ledger_path)


def leave(silo_folder: SiloFolder) -> None:
    """Nothing happens to the ledger."""


def files(silo_folder: SiloFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in silo_folder.path.iterdir() if path.name != "agent.lock"}


def test_a_backup_says_how_far_it_goes_and_overwrites_nothing(
    silo_folder: SiloFolder, backup: Path, tmp_path: Path
) -> None:
    made = back_up(silo_folder, tmp_path / "another.ledger")
    with silo_folder.ledger() as ledger, Ledger.open(backup) as copied:
        last = ledger.entries()[-1]
        assert (made.silo, made.number, made.head) == ("clinic", last.number, last.hash)
        assert copied.entries() == ledger.entries()
    before = backup.read_bytes()
    with pytest.raises(OutputError, match="already exists, and a backup overwrites nothing"):
        back_up(silo_folder, backup)
    assert backup.read_bytes() == before
    with pytest.raises(OutputError, match="cannot be written"):
        back_up(silo_folder, tmp_path / "nowhere" / "backup.ledger")


@pytest.mark.parametrize("accident", [lose, truncate, leave])
def test_the_newest_backup_is_restored_after_any_accident_and_what_it_replaced_is_kept(
    silo_folder: SiloFolder, backup: Path, accident: Callable[[SiloFolder], None]
) -> None:
    accident(silo_folder)
    there = silo_folder.ledger_path.read_bytes() if silo_folder.ledger_path.exists() else None
    made, replaced = restore(silo_folder, backup)
    assert made.number == 3
    with silo_folder.ledger() as ledger, Ledger.open(backup) as copied:
        assert ledger.entries() == copied.entries()
    assert silo_folder.ledger_path.stat().st_mode & 0o777 == 0o600
    assert (None if replaced is None else replaced.read_bytes()) == there
    assert not list(silo_folder.path.glob("*.restoring*"))


def test_a_rolled_back_ledger_is_mended_by_a_backup_that_holds_what_it_forgot(
    silo_folder: SiloFolder, tmp_path: Path
) -> None:
    older, newest = tmp_path / "older.ledger", tmp_path / "newest.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    set_budget(silo_folder, Budget(9.0, 1e-6), note="a test")
    back_up(silo_folder, newest)
    shutil.copyfile(older, silo_folder.ledger_path)
    with pytest.raises(LedgerDamagedError, match="once had entry 3"):
        silo_folder.ledger()
    restore(silo_folder, newest)
    with silo_folder.ledger() as ledger:
        assert ledger.account().budget == Budget(9.0, 1e-6)


@pytest.mark.parametrize("accident", [lose, truncate, roll_back])
def test_a_backup_that_would_forget_is_refused_and_nothing_is_changed(
    silo_folder: SiloFolder, backup: Path, accident: Callable[[SiloFolder], None]
) -> None:
    """Known by the watermark, whatever became of the ledger itself."""
    set_budget(silo_folder, Budget(4.0, 1e-6), note="a test")
    accident(silo_folder)
    before = files(silo_folder)
    with pytest.raises(LedgerDamagedError, match=r"ends with entry 3, .* had entry [45] .*later backup.*a new ledger"):
        restore(silo_folder, backup)
    assert files(silo_folder) == before


def test_the_ledger_in_place_is_a_witness_too(silo_folder: SiloFolder, backup: Path, own_state: Path) -> None:
    set_budget(silo_folder, Budget(4.0, 1e-6), note="a test")
    shutil.rmtree(own_state / "ringfence")
    before = files(silo_folder)
    with pytest.raises(LedgerDamagedError, match=r"ends with entry 3, .* had entry 4"):
        restore(silo_folder, backup)
    assert files(silo_folder) == before


def test_a_backup_that_is_truncated_is_refused_and_nothing_is_changed(silo_folder: SiloFolder, backup: Path) -> None:
    before, whole = files(silo_folder), backup.read_bytes()
    for keep in (0, 1, 100, 4096, len(whole) - 4096, len(whole) - 1):
        backup.write_bytes(whole[:keep])
        with pytest.raises(LedgerDamagedError, match=r"backup\.ledger cannot be restored; nothing"):
            restore(silo_folder, backup)
        assert files(silo_folder) == before
        assert backup.read_bytes() == whole[:keep]
    with pytest.raises(SiloError, match=r"none\.ledger.* cannot be restored: .*No such file"):
        restore(silo_folder, backup.with_name("none.ledger"))
    assert files(silo_folder) == before


def test_another_ledger_s_backup_is_refused(silo_folder: SiloFolder, tmp_path: Path) -> None:
    other, foreign = tmp_path / "other.ledger", tmp_path / "foreign.ledger"
    Ledger.create(other, silo="clinic", budget=Budget(99.0, 1e-6)).close()
    Ledger.create(foreign, silo="hospital", budget=Budget(99.0, 1e-6)).close()
    before = files(silo_folder)
    with pytest.raises(LedgerError, match="not a copy of the ledger in"):
        restore(silo_folder, other)
    with pytest.raises(LedgerError, match="a ledger of silo 'hospital', not of 'clinic'"):
        restore(silo_folder, foreign)
    assert files(silo_folder) == before


def test_nothing_is_restored_while_an_agent_serves(silo_folder: SiloFolder, backup: Path) -> None:
    with serving(silo_folder):
        before = silo_folder.ledger_path.read_bytes()
        with pytest.raises(SiloError, match="Another process is serving"):
            restore(silo_folder, backup)
        assert silo_folder.ledger_path.read_bytes() == before


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for _ in range(100):
    connection.execute("INSERT INTO entries VALUES (NULL, '', '', '', zeroblob(9999), '')")
os.kill(os.getpid(), 9)
"""


def test_a_journal_beside_the_replaced_file_is_not_taken_for_the_restored_one_s(
    silo_folder: SiloFolder, tmp_path: Path
) -> None:
    """A process was killed while it wrote, long ago; its journal would undo everything since."""
    older, newest = tmp_path / "older.ledger", tmp_path / "newest.ledger"
    shutil.copyfile(silo_folder.ledger_path, older)
    completed([sys.executable, "-c", KILLED, str(older)])
    for epsilon in (3.0, 4.0, 5.0):
        set_budget(silo_folder, Budget(epsilon, 1e-6), note="a test")
    back_up(silo_folder, newest)
    lose(silo_folder)
    shutil.copyfile(f"{older}-journal", f"{silo_folder.ledger_path}-journal")
    assert restore(silo_folder, newest)[0].number == 5
    with silo_folder.ledger() as ledger:
        assert ledger.account().budget == Budget(5.0, 1e-6)
