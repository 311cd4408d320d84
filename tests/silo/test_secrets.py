"""No record's value and no private key gets out by a side door: text, pickles, errors, output or files.

One recognisable value is planted in the records and one recognisable key in the silo; then everything that can fail
does, and whatever was printed, raised or written is searched for them, as text and as bytes.
"""

import copy
import itertools
import os
import pickle
import struct
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import RecordsError
from ringfence.federation.local_shuffler import local_shuffler
from ringfence.federation.training import Silo
from ringfence.protocol import RoundRequest, Schema
from ringfence.protocol.plan.plan import task
from ringfence.shuffler.store import Store
from ringfence.silo.agent import Agent
from ringfence.silo.channels import own_noise
from ringfence.silo.channels.own_noise import CorrelatedRounds
from ringfence.silo.channels.shuffler import Coins
from ringfence.silo.folder import SiloFolder
from ringfence.silo.gate import mechanism, sampling
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.certificate import certify
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.monitor import Monitor
from ringfence.silo.operator.decisions import update_data
from ringfence.silo.queries import gradient
from ringfence.silo.records.records import Records, load_records
from ringfence.storage.chain import Chain
from ringfence.storage.decision_log import DecisionLog
from tests.nursery import completed
from tests.silo import fleeting, watched
from tests.silo.agents import SCHEMA, approved, make_silo_folder, request
from tests.support import MakePlan, approved_by, ask

VALUE = 0.7312845
KEY = b"a recognisable private key of 32"
TRACES = [b"0.7312845", struct.pack("<d", VALUE), struct.pack(">d", VALUE), KEY, KEY.hex().encode()]
"""What is searched for: the value as it stands in the table (and, with bounds ±1, in memory) and the key."""

ROOT = Path(__file__).parents[2]


def assert_clean(content: bytes | str) -> None:
    raw = content.encode() if isinstance(content, str) else content
    assert not [trace for trace in TRACES if trace in raw]


@pytest.fixture(scope="module")
def records(schema: Schema) -> Records:
    """The value is in every record, also as a part of the mean."""
    return Records(schema, np.full((40, 4), VALUE), np.ones(40))


@pytest.fixture
def gate(records: Records, ledger: Ledger) -> Gate:
    return Gate(records, ledger, KEY)


@pytest.fixture
def holders(
    gate: Gate, records: Records, ledger: Ledger, plan_of: MakePlan, tmp_path: Path
) -> Iterator[dict[str, object]]:
    """Everything that holds a record, something computed from one without noise, or a key."""
    plan = approved_by(gate, plan_of(sampling="one-pass", correlation=0.5))
    ask(gate, plan, 0)
    block = gate._memories[plan.digest(), 0]
    assert isinstance(block, CorrelatedRounds)
    assert np.allclose(np.abs(block.means[0]).max(), VALUE / 2)  # what is remembered is exact
    draws = sampling.draw(plan, plan.silos[0], task(plan, plan.silos[0], 0, 0))
    (tmp_path / "home").mkdir()
    with Store.create(tmp_path / "store") as store, local_shuffler(["clinic"]) as local:
        store.key = KEY
        local.silos["clinic"] = KEY
        yield {
            "records": records,
            "gate": gate,
            "ledger": ledger,
            "draws": draws,
            "block": block,
            "coins": Coins(np.arange(4), np.full(4, VALUE)),
            "silo_folder": make_silo_folder(tmp_path / "home"),
            "silo": Silo(records, ledger.path, None, KEY),
            "store": store,
            "local shuffler": local,
            "agent": Agent(gate, ledger, KEY.decode(), Monitor(ledger, DecisionLog(tmp_path))),
        }


def test_nothing_that_holds_a_secret_shows_it_as_text(holders: dict[str, object]) -> None:
    for name, holder in holders.items():
        for text in (repr(holder), str(holder), f"{holder}", repr([holder]), repr({name: holder})):
            assert_clean(text)
            assert "array(" not in text, name


@pytest.mark.parametrize("name", ["records", "gate", "draws", "block", "coins", "silo", "store", "local shuffler"])
def test_nothing_that_holds_a_secret_can_be_pickled_or_copied_in_depth(holders: dict[str, object], name: str) -> None:
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises((RecordsError, TypeError)) as refused:
            take(holders[name])
        assert_clean(str(refused.value))


BAD_CELLS = [
    f"{VALUE}x,0,0,no",
    f"{VALUE},0,0",
    f"{VALUE},0,0,no,0",
    f"0,0,0,{VALUE}",
    f"nan{VALUE},0,0,no",
    f"{VALUE},,0,no",
    f'"{VALUE},0,0,no',
    f'"{VALUE}" 0,0,0,no',
    f"{VALUE},0,0,no\n\n{VALUE},0,0,no",
    f"{VALUE}\xff,0,0,no",
    f"{VALUE}\x00,0,0,no",
    f"{'9' * 200_000}{VALUE},0,0,no",
]


@pytest.mark.parametrize("row", BAD_CELLS, ids=range(len(BAD_CELLS)))
def test_a_cell_that_cannot_be_read_is_named_by_its_place_alone(row: str, schema: Schema, tmp_path: Path) -> None:
    """In the message and in the whole printed chain of exceptions."""
    path = tmp_path / "records.csv"
    path.write_bytes(f"a,b,c,ill\n{VALUE},0,0,no\n{row}\n".encode("latin-1"))
    with pytest.raises(RecordsError) as refused:
        load_records(path, schema)
    assert_clean(str(refused.value))
    printed = "".join(traceback.format_exception(refused.value))
    assert_clean(printed)
    assert "another exception" not in printed


class StrangeError(Exception):
    """A bug that quotes what it was working on."""


def strange(*_: object, **__: object) -> None:
    raise StrangeError(f"cannot work with {VALUE} and {KEY!r}")


FAULTS = [
    (sampling, "draw"),
    (mechanism, "release"),
    (gradient, "total"),
    (own_noise, "encode"),
    (own_noise, "message"),
    (Chain, "append"),
    (Chain, "read"),
]


@pytest.mark.parametrize(("place", "name"), FAULTS, ids=[name for _, name in FAULTS])
def test_a_bug_anywhere_behind_the_door_tells_neither_the_peer_nor_the_operator_what_it_met(
    place: object,
    name: str,
    gate: Gate,
    ledger: Ledger,
    plan_of: MakePlan,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    plan = approved_by(gate, plan_of())
    log = DecisionLog(tmp_path)
    agent = Agent(gate, ledger, None, Monitor(ledger, log))
    monkeypatch.setattr(place, name, strange)
    reply = agent._decide(request(plan, 0))
    monkeypatch.undo()
    assert b'"unavailable"' in reply.body
    shown = capfd.readouterr()
    assert "StrangeError" in shown.err
    log.close()
    logged = (tmp_path / "decisions.log").read_text()
    assert '"unavailable"' in logged
    for content in (bytes(reply.body), shown.out, shown.err, caplog.text, logged):
        assert_clean(content)


def plant(silo_folder: SiloFolder) -> Path:
    """Put the value into a silo's data file and the key into its folder."""
    data = Path(silo_folder.settings.data_file)
    data.write_text("a,b,c,ill\n" + f"{VALUE},0.5,-0.5,yes\n" * 40)
    silo_folder.key_path.unlink()
    silo_folder.key_path.write_text(KEY.hex())
    update_data(silo_folder, "a value was planted")
    return data


def test_the_ledger_and_its_certificate_hold_neither_value_nor_key(tmp_path: Path, plan_of: MakePlan) -> None:
    silo_folder = make_silo_folder(tmp_path)
    data = plant(silo_folder)
    plan = approved(silo_folder, plan_of(rounds=3))
    with silo_folder.ledger() as ledger:
        gate = Gate(silo_folder.records(), ledger, silo_folder.key())
        for round in range(3):
            gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension)))
    assert_clean(certify(silo_folder).to_file())
    for path in tmp_path.rglob("*"):
        if path.is_file() and path not in (data, silo_folder.key_path):
            assert_clean(path.read_bytes())


def watch(folders: list[Path], copies: Path, *command: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
    """Run a module; `tests.silo.watched` says what is copied meanwhile."""
    copies.mkdir()
    watched = [sys.executable, "-m", "tests.silo.watched", str(copies), *map(str, folders), "--", *command]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return completed(watched, cwd=folders[-1], env=surroundings)


@pytest.mark.parametrize("trust", [["nobody"], ["shuffler", "--colluders", "0"]], ids=["nobody", "shuffler"])
@pytest.mark.parametrize("last", [f"{VALUE},0.5,-0.5,yes", f"{VALUE},0.5,-0.5,{VALUE}"], ids=["whole", "bad cell"])
def test_a_run_from_the_command_line_leaves_the_value_in_no_output_and_no_file(
    tmp_path: Path, trust: list[str], last: str
) -> None:
    """Temporary files included, those that are gone when it ends too."""
    data, temporary, work, copies = (tmp_path / name for name in ("data", "temporary", "work", "copies"))
    for folder in (data, temporary, work):
        folder.mkdir()
    (data / "schema.toml").write_text(SCHEMA)
    for name, row in (("north", "-0.5,0.1,0.2,no"), ("south", "-0.5,0.2,0.1,no")):
        (data / f"{name}.csv").write_text("a,b,c,ill\n" + f"{VALUE},0.5,-0.5,yes\n{row}\n" * 60 + last + "\n")
    command = ["ringfence", "train", str(data / "north.csv"), str(data / "south.csv")]
    options = ["--schema", str(data / "schema.toml"), "--target", "ill", "--epsilon", "2", "--rounds", "3"]
    places = ["--ledgers", str(work), "--out", str(work / "model.json"), "--trust", *trust]
    surroundings = {"TMPDIR": str(temporary), "HOME": str(work), "XDG_STATE_HOME": str(work)}
    ended = watch([temporary, work], copies, *command, *options, *places, **surroundings)
    assert (ended.returncode == 0) == last.endswith("yes"), ended.stderr.decode()
    found = watched.seen(copies)
    if ended.returncode == 0:
        assert {"north.ledger", "north.ledger-journal", "model.json", "ringfence/registry.sqlite"} <= set(found)
    if ended.returncode == 0 and trust[0] == "shuffler":
        assert {"shuffler.db", "shuffler.db-journal"} <= {Path(name).name for name in found}
    for content in (ended.stdout, ended.stderr, *itertools.chain.from_iterable(found.values())):
        assert_clean(content)


def test_a_trace_would_be_found() -> None:
    for content in (f"row {VALUE}", repr(np.full(3, VALUE)), pickle.dumps(np.full(3, VALUE)), repr(KEY), KEY.hex()):
        with pytest.raises(AssertionError):
            assert_clean(content)


def test_the_watcher_sees_files_that_are_gone_at_once(tmp_path: Path) -> None:
    """Also those that eight threads make and remove while others look."""
    folder = tmp_path / "folder"
    folder.mkdir()
    ended = watch([folder], tmp_path / "copies", "tests.silo.fleeting", str(folder))
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    found = watched.seen(tmp_path / "copies")
    everything = b"\n".join(content for contents in found.values() for content in contents)
    assert [content for content in fleeting.CONTENTS if content not in everything] == []
    for thread, turn in itertools.product(range(8), range(20)):
        assert f"of a thread {thread}-{turn}".encode() in found[f"{thread}-{turn}/file"]
    assert {"database", "database-wal"} <= set(found)
    assert not folder.exists()
