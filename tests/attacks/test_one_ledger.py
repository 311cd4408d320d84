"""One data set, one ledger: what a person might do to begin at zero, by the real command line.

Two ledgers for the same records would give two vectors for one round. Each attack here is refused before there is a
second one, in a sentence that names the silo_folder.
"""

import csv
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringfence.protocol import NoisyUpdate, Plan
from ringfence.silo.folder import SiloFolder
from tests.processes import RINGFENCE, ringfence
from tests.silo.agents import SCHEMA, approved, make_silo_folder, serving
from tests.support import MakePlan

GIVEN = ["--name", "clinic", "--schema", "schema.toml", "--epsilon", "2", "--delta", "1e-6"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command in a process of its own, in the test's folder; one that is not refused may serve for ever."""
    return partial(ringfence, cwd=tmp_path, timeout=120)


def check_refused(done: "subprocess.CompletedProcess[str]", *says: object) -> None:
    """Refused in one sentence, without a record's value. A quote, of public numbers alone, may stand before it."""
    assert done.returncode == 1, done.stdout
    *quote, reason = done.stderr.splitlines()
    assert not quote or quote[-1].endswith("Nothing has been charged yet.")
    assert reason.startswith("ringfence: ")
    for words in says:
        assert str(words) in reason
    assert "0." not in reason, "no cell is shown"


def init(run: Run, folder: object, data: object, *more: object) -> "subprocess.CompletedProcess[str]":
    return run("silo", "init", folder, "--data", data, *GIVEN, *more)


def train(run: Run, data: object, *more: object) -> "subprocess.CompletedProcess[str]":
    given = ["--schema", "schema.toml", "--target", "ill", "--epsilon", "1", "--rounds", "2", "--no-report"]
    return run("train", data, "--anyway", *given, *more)


def table(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def written(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def copied(path: Path, to: Path) -> Path:
    shutil.copyfile(path, to)
    return to


def hard_linked(path: Path, to: Path) -> Path:
    os.link(path, to)
    return to


def linked(path: Path, to: Path) -> Path:
    to.symlink_to(path)
    return to


def silo_table(path: Path) -> Path:
    """Write forty records that no other silo has."""
    return written(path, [["a", "b", "c", "ill"], *([f"0.{row}", "0.1", "0.2", "no"] for row in range(100, 140))])


def rewritten(change: Callable[[list[list[str]]], list[list[str]]]) -> Callable[[Path, Path], Path]:
    return lambda path, to: written(to, change(table(path)))


def with_serial(rows: list[list[str]]) -> list[list[str]]:
    """Number the rows in a column that the schema does not read, as an export does, in another order each time."""
    return [[*rows[0], "serial"], *([*row, str(900 - 7 * place)] for place, row in enumerate(rows[1:]))]


def with_column(rows: list[list[str]], name: str = "d") -> list[list[str]]:
    return [[*rows[0], name], *([*row, f"0.{100 + 17 * place % 800}"] for place, row in enumerate(rows[1:]))]


def without_column(rows: list[list[str]], name: str = "b") -> list[list[str]]:
    place = rows[0].index(name)
    return [[*row[:place], *row[place + 1 :]] for row in rows]


MORE_ROWS = [[f"0.{number}", "0.5", "-0.5", "no"] for number in range(10, 50)]
WAYS: dict[str, Callable[[Path, Path], Path]] = {
    "itself": lambda path, _: path,
    "copied": copied,
    "hard-linked": hard_linked,
    "linked": linked,
    "renamed": lambda path, to: path.rename(to),
    "sorted": rewritten(lambda rows: [rows[0], *sorted(rows[1:])]),
    "other order of columns": rewritten(lambda rows: [row[::-1] for row in rows]),
    "grown": rewritten(lambda rows: [*rows, *MORE_ROWS]),
    "edited": rewritten(lambda rows: [rows[0], *([*row[:3], "no"] for row in rows[1:6]), *rows[6:]]),
    "shortened": rewritten(lambda rows: rows[:31]),
    "every row twice": rewritten(lambda rows: [*rows, *rows[1:]]),
    "some rows twice, some three times": rewritten(lambda rows: [*rows, *rows[9:], *rows[21:]]),
    "with another serial key": rewritten(with_serial),
    "with another serial key, every row twice": rewritten(lambda rows: with_serial([*rows, *rows[1:]])),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_second_silo_of_the_same_records_is_refused_however_their_file_was_made(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, way: Callable[[Path, Path], Path]
) -> None:
    data = way(tmp_path / "records.csv", tmp_path / "other.csv")
    check_refused(init(run, "second", data), silo_folder.ledger_path, "--same-data-as", "--new-beginning")
    assert not (tmp_path / "second" / "clinic.ledger").exists()
    check_refused(train(run, data, "--ledgers", tmp_path), silo_folder.ledger_path)
    assert not list(tmp_path.glob("*.ledger"))


COLUMNS: dict[str, Callable[[list[list[str]]], list[list[str]]]] = {
    "one more": with_column,
    "one fewer": without_column,
    "one renamed": lambda rows: [["a", "b", "height", "ill"], *rows[1:]],
    "one in other units": lambda rows: [rows[0], *([f"{float(row[0]) / 2:.6f}", *row[1:]] for row in rows[1:])],
    "one more, every row twice, some edited": lambda rows: with_column([*rows, *rows[1:-6], *MORE_ROWS[:3]]),
}


@pytest.mark.parametrize("change", COLUMNS.values(), ids=COLUMNS)
def test_a_new_export_with_other_columns_gets_no_second_ledger_without_a_reason(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan, change: Callable[[Any], Any]
) -> None:
    rows = change(table(tmp_path / "records.csv"))
    data = written(tmp_path / "other.csv", rows)
    kind = 'type = "numeric"\nlower = -1.0\nupper = 1.0'
    numbers = "".join(f"[columns.{name}]\n{kind}\n" for name in rows[0] if name != "ill")
    (tmp_path / "own.toml").write_text(f'{numbers}[columns.ill]\ntype = "categorical"\ncategories = ["no", "yes"]\n')
    own = ["--schema", "own.toml"]
    for refused in (init(run, "second", data, *own), train(run, data, *own, "--ledgers", tmp_path)):
        check_refused(refused, "columns in common", silo_folder.ledger_path, "--same-data-as", "--new-beginning")
    assert not list(tmp_path.glob("**/other.ledger")) + list((tmp_path / "second").glob("*.ledger"))
    others = init(run, "second", data, *own, "--new-beginning", "siblings of these patients")
    assert others.returncode == 0, others.stderr
    assert "“siblings of these patients”" in run("silo", "status", "second").stdout
    for folder in (silo_folder, SiloFolder.open(tmp_path / "second")):  # nobody said that they are the same records
        with folder.ledger() as ledger:
            folder.current_records(ledger)


def test_a_query_that_numbers_its_rows_anew_gets_no_second_ledger(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA + '[columns.key]\ntype = "identifier"\n')
    rows = table(silo_table(tmp_path / "made.csv"))[1:]
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as database:
        database.execute("CREATE TABLE visits (a REAL, b REAL, c REAL, ill TEXT)")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
        database.commit()
    for name, order in (("one", "a"), ("two", "a DESC")):
        query = f"SELECT row_number() OVER (ORDER BY {order}) AS key, * FROM visits"
        (tmp_path / f"{name}.toml").write_text(
            f'database = "sqlite:clinic.db"\nquery = "{query}"\norder_by = ["key"]\n'
        )
    assert init(run, "first", "one.toml").returncode == 0
    check_refused(init(run, "second", "two.toml"), tmp_path / "first" / "clinic.ledger", "--new-beginning")


def test_records_that_are_others_get_a_ledger_of_their_own(run: Run, silo_folder: SiloFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    make_silo_folder(tmp_path / "elsewhere", seed=8)
    assert train(run, silo_table(tmp_path / "third.csv")).returncode == 0


def test_training_elsewhere_or_after_the_ledger_was_deleted_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    data = silo_table(tmp_path / "north.csv")
    assert train(run, data).returncode == 0
    (tmp_path / "elsewhere").mkdir()
    ledger = tmp_path / "north.ledger"
    check_refused(train(run, data, "--ledgers", "elsewhere"), ledger)
    again = train(run, data, "--ledgers", "elsewhere", "--same-data-as", "north.ledger")
    assert again.returncode == 0, again.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    assert "all runs on this data, whenever you stop" in again.stdout
    check_refused(init(run, "silo", data), ledger)
    ledger.rename(tmp_path / "hidden")
    check_refused(train(run, data), ledger, "which no longer exists")
    anew = train(run, data, "--new-beginning", "these records are invented")
    assert anew.returncode == 0, anew.stderr
    assert "“these records are invented”" in " ".join(anew.stdout.split())
    assert "the cost of its releases is unknown" in " ".join(anew.stdout.split())
    (tmp_path / "hidden").rename(tmp_path / "former.ledger")
    check_refused(train(run, data, "--same-data-as", "former.ledger"), ledger)


def test_an_unknown_ledger_of_an_earlier_version_beside_the_data_is_found(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, own_state: Path
) -> None:
    silo_folder.ledger_path.rename(tmp_path / "records.ledger")
    shutil.rmtree(own_state / "ringfence")
    check_refused(init(run, "second", "records.csv"), tmp_path / "records.ledger")


def test_a_copied_folder_answers_nothing_and_a_moved_one_goes_on(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of(rounds=3))
    file = tmp_path / "plan.json"
    file.write_bytes(plan.content)
    shutil.copytree(silo_folder.path, tmp_path / "copy")
    for command in (["serve", "copy"], ["approve", "copy", file, "--digest", plan.digest()], ["review", "copy", file]):
        check_refused(run("silo", *command), "is a copy", silo_folder.ledger_path)
    assert f"the ledger of these records is {silo_folder.ledger_path}" in run("silo", "status", "copy").stderr
    assert run("silo", "status", "clinic").stderr == ""
    with serving(silo_folder) as agent:
        assert isinstance(agent.ask(plan, 0), NoisyUpdate)
    shutil.rmtree(tmp_path / "copy")
    moved = SiloFolder.open(silo_folder.path.rename(tmp_path / "moved"))
    with serving(moved) as agent:
        assert isinstance(agent.ask(plan, 1), NoisyUpdate)
    shutil.copytree(moved.path, silo_folder.path, ignore=shutil.ignore_patterns("door.sock"))
    check_refused(run("silo", "serve", silo_folder.path), "is a copy", moved.ledger_path)


def test_a_folder_behind_a_link_is_the_same_folder(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan
) -> None:
    file = tmp_path / "plan.json"
    plan = plan_of()
    file.write_bytes(plan.content)
    (tmp_path / "link").symlink_to(silo_folder.path)
    assert run("silo", "approve", "link", file, "--digest", plan.digest()).returncode == 0


def test_a_ledger_with_two_names_is_refused(run: Run, silo_folder: SiloFolder, tmp_path: Path) -> None:
    os.link(silo_folder.ledger_path, tmp_path / "second-name")
    check_refused(run("silo", "serve", "clinic"), "2 names", "hard links")
    assert "2 names" in run("silo", "status", "clinic").stderr
    (tmp_path / "second-name").unlink()
    with serving(silo_folder):
        pass


def test_two_folders_that_share_a_ledger_give_one_vector(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan
) -> None:
    data = copied(tmp_path / "records.csv", tmp_path / "other.csv")
    joined = init(run, "second", data, "--same-data-as", silo_folder.ledger_path)
    assert joined.returncode == 0, joined.stderr
    second = SiloFolder.open(tmp_path / "second")
    assert second.ledger_path == silo_folder.ledger_path
    assert second.key() == silo_folder.key()  # a head that one has signed stops the other as well
    plan = approved(silo_folder, plan_of(rounds=3))
    with serving(silo_folder) as one, serving(second) as other:
        answers = {agent.ask(plan, 0).to_bytes() for agent in (one, other, one)}
        assert len(answers) == 1
        assert isinstance(one.ask(plan, 0), NoisyUpdate)
        assert not isinstance(other.ask(plan, 0, weights=0.2), NoisyUpdate)


def test_of_many_that_begin_at_once_one_does(silo_folder: SiloFolder, tmp_path: Path, own_state: Path) -> None:
    shutil.rmtree(silo_folder.path)
    shutil.rmtree(own_state / "ringfence")
    started = [
        subprocess.Popen(
            [*RINGFENCE, "silo", "init", f"silo-{number}", "--data", "records.csv", *GIVEN],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        for number in range(6)
    ]
    said = [process.communicate()[1].decode() for process in started]
    assert sorted(process.returncode for process in started) == [0, 1, 1, 1, 1, 1], said
    assert sum("already have a ledger" in text for text in said) == 5
    assert len(list(tmp_path.glob("silo-*/clinic.ledger"))) == 1


def test_a_new_beginning_stands_in_the_ledger_the_status_and_every_certificate(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of(rounds=3))
    with serving(silo_folder) as agent:
        agent.ask(plan, 0)
    assert init(run, "second", "records.csv", "--new-beginning", "the first was a rehearsal").returncode == 0
    for command in (["silo", "status", "second"], ["silo", "ledger", "second"], ["ledger", "second/clinic.ledger"]):
        assert "“the first was a rehearsal”" in run(*command).stdout
    assert run("silo", "certificate", "second", "--out", "certificate.json").returncode == 0
    proved = run("verify", "certificate.json").stdout
    assert "“the first was a rehearsal”" in proved
    with silo_folder.ledger() as ledger:
        account = ledger.account()
        assert f"whose releases used epsilon {account.spent()[0].epsilon:.4g}" in proved
        assert account.identity[:12] in proved
    check_refused(run("silo", "serve", "clinic"), tmp_path / "second" / "clinic.ledger")


def damage(statements: str) -> Callable[[Path], None]:
    def change(registry: Path) -> None:
        with closing(sqlite3.connect(registry)) as file:
            file.executescript(statements)

    return change


EDIT = "DROP TRIGGER entries_rest; UPDATE entries SET body = replace(body, 'clinic', 'cynics')"


@pytest.mark.parametrize(
    ("accident", "says"),
    [
        (Path.unlink, "registry.sqlite is missing"),
        (lambda registry: registry.with_name("fingerprint.key").unlink(), "fingerprint.key is missing"),
        (lambda registry: registry.with_name("fingerprint.key").write_text("00" * 32), "cannot be trusted"),
        (damage(EDIT), "cannot be trusted"),
        (damage("DROP TRIGGER entries_stay; DELETE FROM entries"), "cannot be trusted"),
        (lambda registry: registry.write_bytes(b"x" * 5000), "cannot be trusted"),
    ],
    ids=["lost", "without key", "other key", "edited", "shortened", "garbage"],
)
def test_without_a_registry_that_can_be_trusted_nothing_is_answered(
    run: Run, silo_folder: SiloFolder, own_state: Path, accident: Callable[[Path], Any], says: str
) -> None:
    accident(own_state / "ringfence" / "registry.sqlite")
    check_refused(run("silo", "serve", "clinic"), says, "silo register")
    check_refused(init(run, "second", "records.csv"), says)
    with silo_folder.ledger() as ledger:
        assert ledger.account().number == 2, "nothing was written"


def test_a_silo_that_came_from_another_user_or_machine_is_registered_by_its_operator(
    run: Run, silo_folder: SiloFolder, own_state: Path, plan_of: MakePlan
) -> None:
    plan = approved(silo_folder, plan_of(rounds=3))
    shutil.rmtree(own_state / "ringfence")
    check_refused(run("silo", "serve", "clinic"), "was registered before", "silo register")
    assert run("silo", "register", "clinic").returncode == 0
    check_refused(run("silo", "register", "clinic"), "already registered")
    with serving(silo_folder) as agent:
        assert isinstance(agent.ask(plan, 0), NoisyUpdate)
    assert "no registry knew it" in run("silo", "status", "clinic").stdout


def test_a_data_file_that_ends_half_way_is_neither_registered_nor_answered_from(
    run: Run, silo_folder: SiloFolder, tmp_path: Path, plan_of: MakePlan
) -> None:
    plan: Plan = approved(silo_folder, plan_of(rounds=3))
    data = tmp_path / "records.csv"
    whole = data.read_bytes()
    for broken, says in ((whole[: len(whole) // 2], ""), (whole + b'"', "well-formed"), (whole + b"\xff,", "2 cells")):
        data.write_bytes(broken)
        check_refused(run("silo", "serve", "clinic"), says)
    data.write_bytes(whole)
    with serving(silo_folder) as agent:
        assert isinstance(agent.ask(plan, 0), NoisyUpdate)
