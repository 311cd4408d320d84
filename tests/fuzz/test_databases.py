"""A ledger's or a shuffler's file, with any bytes of it changed, is used as before or refused; a ledger's, in full."""

import hashlib
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import LedgerError, RingfenceError
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Plan, RoundRequest, Schema
from ringfence.shuffler.shuffler import Shuffler
from ringfence.shuffler.store import Store
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import GENESIS
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.records.records import Records
from ringfence.storage.chain import entry_hash
from tests.fuzz.hostile import check_sentence, damaged, rewritten
from tests.generated import examples
from tests.shuffler.depositors import Depositors, depositors


@pytest.fixture(scope="module")
def plan(schema: Schema) -> Plan:
    return make_plan(schema, [Member("clinic", 40, 1.0, 1e-6)], PlanRequest(rounds=3, survey=False))


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory: pytest.TempPathFactory, records: Records, plan: Plan) -> Path:
    """A ledger with an entry of every kind, all of it in one file."""
    path = tmp_path_factory.mktemp("silo") / "clinic.ledger"
    with Ledger.create(path, silo="clinic", budget=Budget(2.0, 1e-6)) as ledger:
        gate = Gate(records, ledger)
        gate.approve(plan)
        for round in (0, 1, 9):
            gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))
        gate.end(plan)
    assert not list(path.parent.glob("*-*"))
    return path


def use(path: Path) -> list[Any]:
    """Do with a ledger all that an operator or a gate does before writing."""
    with Ledger.open(path) as ledger:
        entries = ledger.entries()
        account = ledger.account()
        account.spent()
        account.committed()
    summarise(path)
    return entries


@examples(150)
@given(data=st.data())
def test_a_ledger_of_damaged_bytes_is_refused_or_says_exactly_what_it_said(
    data: st.DataObject, ledger_file: Path
) -> None:
    """Bytes that hold nothing (free space, SQLite's counters) may change; what is written may not."""
    content = data.draw(damaged(ledger_file.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clinic.ledger"
        path.write_bytes(content)
        try:
            found = use(path)
        except LedgerError as refused:
            check_sentence(str(refused))
            return
    assert found == use(ledger_file)


@examples(100)
@given(data=st.data())
def test_a_ledger_with_any_body_under_a_right_hash_is_read_or_refused(data: st.DataObject, ledger_file: Path) -> None:
    """Whoever can write to the file can compute hashes too: what cannot be understood must be refused in our words."""
    with closing(sqlite3.connect(ledger_file)) as connection:
        rows = connection.execute("SELECT number, time, kind, body, payload FROM entries ORDER BY number").fetchall()
    place = data.draw(st.integers(0, len(rows) - 1))
    number, time, kind, body, payload = rows[place]
    body = data.draw(st.sampled_from(BODIES) | rewritten(body.encode()).map(bytes.decode))
    rows[place] = (number, time, kind, body, data.draw(st.just(payload) | damaged(payload)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clinic.ledger"
        shutil.copy(ledger_file, path)
        forge(path, rows)
        try:
            use(path)
        except LedgerError as refused:
            check_sentence(str(refused))


def forge(path: Path, rows: list[tuple[int, str, str, str, bytes]]) -> None:
    """Write these rows in place of a ledger's own, with hashes that are right."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER entries_rest")
        previous = GENESIS
        for number, time, kind, body, payload in rows:
            previous = entry_hash(previous, number, time, kind, body, hashlib.sha256(payload).hexdigest())
            change = "UPDATE entries SET body = ?, payload = ?, hash = ? WHERE number = ?"
            connection.execute(change, (body, payload, previous, number))


BODIES = ["", "null", "[]", "{}", "[" * 100_000, '{"a":' * 100_000, "9" * 5000, "NaN", '{"round":1e999}', '"\\ud800"']


@pytest.fixture(scope="module")
def shuffler_folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Depositors]:
    """A shuffler with a plan, a released round and an open one, all of it in one file."""
    folder = tmp_path_factory.mktemp("shuffler") / "folder"
    with Shuffler(Store.create(folder), seconds=3600.0) as shuffler:
        silos = depositors(shuffler.public_key)
        shuffler.add(silos.plan)
        for silo in silos.names:
            shuffler.deposit(silos.update(silo, 0))
        assert isinstance(shuffler.release(silos.plan.digest(), 0), bytes)
        shuffler.deposit(silos.update(silos.names[0], 1))
    return folder, silos


@examples(100)
@given(data=st.data())
def test_a_shuffler_s_damaged_database_is_used_or_refused(
    data: st.DataObject, shuffler_folder: tuple[Path, Depositors]
) -> None:
    original, silos = shuffler_folder
    content = data.draw(damaged((original / "shuffler.db").read_bytes()))
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "folder"
        shutil.copytree(original, folder)
        (folder / "shuffler.db").write_bytes(content)
        try:
            with Shuffler.open(folder) as shuffler:
                shuffler.status()
                shuffler.longest_deposit()
                for round in range(2):
                    shuffler.release(silos.plan.digest(), round)
                shuffler.deposit(silos.update(silos.names[1], 1))
        except RingfenceError as refused:
            check_sentence(str(refused))
