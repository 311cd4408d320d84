"""A federation of an earlier version that stands half way goes on with processes of this one, and forgets nothing.

Its databases are as killed processes of that version left them: what came last stands in a log beside the file.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.golden import reading, remembered
from tests.golden.expected import EXPECTED, HERE, agree

RINGFENCE = [sys.executable, "-m", "ringfence"]

STOPPED = [
    pytest.param(version, name, id=f"{version}-{name}")
    for version in ("v0_1_0", "v0_2_0")
    for name, run in EXPECTED[version]["runs"].items()
    if not run["transcript"]["finished"]
]


def leave_in_log(path: Path) -> None:
    """Write a database anew, as it is while a process of 0.1.0 or 0.2.0 has it open: all but its beginning in a log."""
    with closing(sqlite3.connect(path)) as source:
        numbers = {name: source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")}
        made = source.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
        tables = {name: source.execute(f"SELECT * FROM {name}").fetchall() for kind, name, _ in made if kind == "table"}
    writing = path.with_name("writing")
    with closing(sqlite3.connect(writing, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        for name, number in numbers.items():
            database.execute(f"PRAGMA {name} = {number}")
        for _, _, statement in made:
            database.execute(statement)
        rows = [(table, row) for table, found in tables.items() for row in found]
        for place, (table, row) in enumerate(rows):
            if place == 2:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        shutil.copyfile(writing, path)
        shutil.copyfile(writing.with_name("writing-wal"), _log_of(path))
    writing.unlink()


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


@contextmanager
def serving(commands: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Let processes serve, and return where."""
    with ExitStack() as ended:
        processes = [subprocess.Popen([*RINGFENCE, *words], stdout=subprocess.PIPE, text=True) for words in commands]
        for process in processes:
            ended.callback(process.communicate)
            ended.callback(process.terminate)
        lines = [process.stdout.readline() for process in processes if process.stdout is not None]
        assert all("is served at" in line for line in lines), lines
        yield [line.split()[-1] for line in lines]


def ringfence(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run([*RINGFENCE, *words], capture_output=True, text=True, check=False)


def finish(folder: Path, silos: Sequence[str]) -> None:
    """Serve the silos and the shuffler of a run, and let its server go on to the end."""
    commands = [["silo", "serve", str(folder / "silos" / silo)] for silo in silos]
    options = [part for silo in silos for part in ("--doors", f"{silo}={folder / 'silos' / silo}")]
    shuffler = folder / "shuffler"
    if shuffler.exists():
        commands.append(["shuffler", "serve", str(shuffler), "--port", "0"])
        options += ["--shuffler-token", str(shuffler / "shuffler.token"), "--key", str(folder / "server.key")]
    with serving(commands) as places:
        options += ["--shuffler", places[-1]] if shuffler.exists() else []
        ended = ringfence("server", "run", str(folder / "plan.json"), "--folder", str(folder / "server"), *options)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("version", "name"), STOPPED)
def test_a_run_that_stands_half_way_is_upgraded_and_nothing_is_forgotten_or_asked_twice(
    tmp_path: Path, version: str, name: str
) -> None:
    expected = EXPECTED[version]["runs"][name]
    folder = reading.copy(HERE / version, tmp_path / "all", "data", f"runs/{name}") / "runs" / name
    ledgers = {silo: reading.ledger_of(folder / "silos" / silo) for silo in expected["silos"]}
    databases = [*ledgers.values(), *folder.glob("shuffler/shuffler.db")]
    older = {path: path.read_bytes() for path in databases}
    for path in databases:
        leave_in_log(path)
        assert _log_of(path).stat().st_size
    written = (folder / "server" / "transcript.jsonl").read_bytes()

    finish(folder, list(ledgers))

    facts = reading.transcript_facts(folder / "server")
    assert facts["finished"]
    assert (folder / "server" / "transcript.jsonl").read_bytes().startswith(written[: written.rindex(b"\n") + 1])
    assert (folder / "server" / "model.json").exists()
    for path in databases:
        assert not _log_of(path).exists()
        assert path.read_bytes()[18:20] == b"\1\1", "the file is still in the mode that needs a log"
    for silo, ledger in ledgers.items():
        asked = {round: answer is not None for round, whom, answer in expected["resumed"]["asked"] if whom == silo}
        lines = map(json.loads, (ledger.parent / "decisions.log").read_text().splitlines())
        assert [(line["round"], line["decision"] == "repeated") for line in lines] == sorted(asked.items())
        check_ledger(ledger, expected["silos"][silo]["account"]["entries"], tmp_path)
        account = reading.account_of(ledger)
        agree(reading.without_hashes(account), expected["resumed"]["afterwards"][silo], silo)
        check_memory(ledger, silo, expected["silos"][silo]["records"], tmp_path)
        certificate = tmp_path / f"{silo}.json"
        assert ringfence("silo", "certificate", str(ledger.parent), "--out", str(certificate)).returncode == 0
        shown = remembered.heads_shown(certificate, folder / "server")
        assert shown == {"heads": list(asked.values()).count(False), "elsewhere": 0, "unsigned": 0}
    for path, before in older.items():
        check_that_an_older_one_is_refused(path, before)


def check_ledger(ledger: Path, before: list[list[object]], work: Path) -> None:
    """The ledger holds what it held; no round is charged twice; and a copy of the one file is the whole of it."""
    account = reading.account_of(ledger)
    assert [list(entry) for entry in account["entries"][: len(before)]] == before
    charged = sum(len(plan["charged"]) for plan in account["plans"].values())
    assert [kind for _, kind, _ in account["entries"]].count("charged") == charged
    copied = work / "copied.ledger"
    shutil.copyfile(ledger, copied)
    assert remembered.head_of(copied) == remembered.head_of(ledger)


def check_memory(ledger: Path, silo: str, records: int, work: Path) -> None:
    """Watermark and registry know the ledger, and its records get no other."""
    identity, number, head = remembered.head_of(ledger)
    assert remembered.marked(ledger) == (number, head)
    known = remembered.registry_facts()[identity]
    assert known == {"silo": silo, "records": [records], "is_settled": True, "successor": ""}
    assert remembered.registered_at(ledger) == ledger
    assert "already have a ledger" in remembered.second_ledger_objection(ledger.parent, work / "another")


def check_that_an_older_one_is_refused(path: Path, before: bytes) -> None:
    """What the earlier version left cannot be put back."""
    path.write_bytes(before)
    whose, words = ("silo", "but once had entry") if path.suffix == ".ledger" else ("shuffler", "is an older copy")
    command = [*RINGFENCE, whose, "serve", str(path.parent)]
    refused = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert refused.stdout is not None
    line = refused.stdout.readline()
    refused.terminate()
    assert words in refused.communicate()[1], line
    assert not line
