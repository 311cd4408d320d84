"""Copies of a ledger beside a running agent: whoever takes one, and whenever, it forgets nothing."""

import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError
from ringfence.protocol.messages import NoisyUpdate
from ringfence.silo.folder import SiloFolder
from ringfence.silo.ledger import Ledger
from tests.nursery import completed
from tests.silo.agents import approved, make_silo_folder, serving
from tests.support import MakePlan, spent

RINGFENCE = [sys.executable, "-m", "ringfence"]
GOLDEN = Path(__file__).parents[1] / "golden"
OF_EARLIER_VERSIONS = sorted(GOLDEN.glob("v*/silos/*/clinic.ledger"))


@pytest.fixture
def silo_folder(tmp_path: Path) -> SiloFolder:
    return make_silo_folder(tmp_path)


def test_a_plain_copy_beside_a_running_agent_holds_everything_that_was_released(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path
) -> None:
    plan = approved(silo_folder, plan_of(rounds=30))
    with serving(silo_folder) as served:
        for round in range(30):
            assert isinstance(served.ask(plan, round), NoisyUpdate)
            copy = tmp_path / f"{round}.ledger"
            shutil.copyfile(silo_folder.ledger_path, copy)
            with Ledger.open(copy) as copied, silo_folder.ledger() as ledger:
                assert copied.entries() == ledger.entries()
                assert len(copied.account().plans[plan.digest()].rounds) == round + 1
                assert spent(copied) == spent(ledger) > 0
        assert [path.name for path in silo_folder.path.glob("clinic.ledger*")] == ["clinic.ledger"]


def test_a_copy_taken_at_any_moment_forgets_no_answer_that_had_left_or_is_refused(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path
) -> None:
    """Also in the middle of a request, when pages from before and after a transaction stand side by side."""
    plan = approved(silo_folder, plan_of(rounds=200))
    answered, done, whole = [0], threading.Event(), 0

    def ask() -> None:
        try:
            for round in range(200):
                assert isinstance(served.ask(plan, round), NoisyUpdate)
                answered[0] += 1
        finally:
            done.set()

    with serving(silo_folder) as served:
        asking = threading.Thread(target=ask)
        asking.start()
        while not done.is_set():
            left, copy = answered[0], tmp_path / "copy.ledger"
            shutil.copyfile(silo_folder.ledger_path, copy)
            try:
                with Ledger.open(copy, marked=False) as copied:
                    rounds = copied.account().plans[plan.digest()].rounds
                assert sum(charged.answer is not None for charged in rounds.values()) >= left
                whole += 1
            except LedgerDamagedError:
                pass
        asking.join()
    assert answered == [200]
    assert whole > 0


def test_a_backup_beside_a_running_agent_is_whole_and_says_how_far_it_goes(
    silo_folder: SiloFolder, plan_of: MakePlan, tmp_path: Path
) -> None:
    plan, out = approved(silo_folder, plan_of()), tmp_path / "backup.ledger"
    command = [*RINGFENCE, "silo", "backup", str(silo_folder.path), "--out", str(out)]
    with serving(silo_folder) as served:
        for round in range(3):
            served.ask(plan, round)
        printed = completed(command, text=True, check=True).stdout
        again = completed(command, text=True)
    with silo_folder.ledger() as ledger:
        account = ledger.account()
        assert f"{account.number} entries, the last with hash {account.head}" in " ".join(printed.split())
        with Ledger.open(out) as copied:
            assert copied.entries() == ledger.entries()
    assert out.stat().st_mode & 0o777 == 0o600
    assert again.returncode == 1
    assert "a backup overwrites nothing" in again.stderr


@pytest.mark.parametrize("golden", OF_EARLIER_VERSIONS, ids=lambda path: f"{path.parts[-4]}-{path.parent.name}")
def test_a_ledger_of_an_earlier_version_is_taken_into_one_file_with_what_lay_beside_it(
    golden: Path, tmp_path: Path
) -> None:
    """They kept a write-ahead log: an agent that was killed left its last entries there alone."""
    path = tmp_path / "clinic.ledger"
    shutil.copyfile(golden, path)
    killed = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("PRAGMA application_id = 1")
connection.execute("PRAGMA application_id = 0")
os.kill(os.getpid(), 9)
"""
    completed([sys.executable, "-c", killed, str(path)])
    assert path.with_name("clinic.ledger-wal").stat().st_size > 0
    with Ledger.open(golden_copy(golden, tmp_path)) as before, Ledger.open(path) as ledger:
        assert ledger.entries() == before.entries()
        assert path.read_bytes()[18:20] == b"\x01\x01"  # SQLite's mark of a file without a write-ahead log
    assert not path.with_name("clinic.ledger-wal").exists()


def golden_copy(golden: Path, folder: Path) -> Path:
    copy = folder / "as it was.ledger"
    shutil.copyfile(golden, copy)
    return copy


def test_entries_that_an_earlier_version_left_in_its_log_alone_are_kept(
    silo_folder: SiloFolder, plan_of: MakePlan
) -> None:
    """A reader holds the log while an agent of version 0.2.0 writes and is killed: all of its rounds are in the log."""
    plan = approved(silo_folder, plan_of())
    with closing(sqlite3.connect(silo_folder.ledger_path)) as old:
        assert old.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    completed([sys.executable, "-c", OLD_AGENT, str(silo_folder.path), plan.digest()])
    beside = silo_folder.ledger_path.with_name("clinic.ledger-wal")
    assert beside.stat().st_size > 0
    assert b'"round":0' not in silo_folder.ledger_path.read_bytes()
    with silo_folder.ledger() as ledger:
        assert [entry.kind for entry in ledger.entries()][3:] == ["charged", "released"] * 3
    assert not beside.exists()
    assert b'"round":2' in silo_folder.ledger_path.read_bytes()


OLD_AGENT = """
import os, sys
from pathlib import Path
import numpy as np
from ringfence.protocol.messages import RoundRequest
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import Gate
from ringfence.storage import database

class Old(database.Database):
    def execute(self, statement, values=()):
        if statement == "PRAGMA journal_mode = DELETE":  # version 0.2.0 did not ask for it
            super().execute("PRAGMA wal_autocheckpoint = 0")
            return super().execute("SELECT 'delete'")
        return super().execute(statement, values)

from ringfence.storage import chain
chain.Database = Old
folder = SiloFolder.open(Path(sys.argv[1]))
ledger = folder.ledger()
gate = Gate(folder.records(), ledger)
for round in range(3):
    gate.answer(RoundRequest.at(sys.argv[2], round, np.zeros(4)))
os.kill(os.getpid(), 9)
"""


def test_a_ledger_that_an_agent_of_an_earlier_version_still_holds_is_busy(silo_folder: SiloFolder) -> None:
    holding = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("SELECT * FROM entries").fetchall()
print("holds it", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", holding, str(silo_folder.ledger_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as old:
        assert old.stdout is not None
        assert old.stdout.readline() == b"holds it\n"
        status = completed([*RINGFENCE, "silo", "status", str(silo_folder.path)], text=True)
        assert status.returncode == 1
        assert "is being written by another process" in status.stderr
        old.communicate()
    with silo_folder.ledger() as ledger:
        assert len(ledger.entries()) == 2
