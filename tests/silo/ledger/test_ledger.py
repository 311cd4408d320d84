"""The ledger loses nothing, hides nothing, and says so when it was damaged."""

import os
import resource
import signal
import sqlite3
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import (
    AccountingError,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerWriteError,
    RegistryError,
)
from ringfence.protocol import NoisyUpdate, Plan, RefusalReason
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import StoredAnswer
from ringfence.silo.ledger.ledger import Ledger
from ringfence.silo.ledger.summary import summarise
from ringfence.silo.records.records import Records
from ringfence.storage import database as database_module
from ringfence.storage.chain import Chain, Draft
from ringfence.storage.stored_file import Kind
from tests.nursery import Python
from tests.silo.agents import edit_ledger
from tests.support import ask, ask_all, refusal, spent


@pytest.fixture
def used(gate: Gate, ledger: Ledger, plan: Plan) -> Path:
    """A closed ledger with a plan and three released rounds."""
    ask_all(gate, plan, range(3))
    ledger.close()
    return ledger.path


def test_a_reopened_ledger_says_what_it_said_before_and_only_its_owner_may_read_it(used: Path) -> None:
    assert used.stat().st_mode & 0o077 == 0
    with Ledger.open(used) as first, Ledger.open(used) as second:
        assert spent(first) == spent(second) > 0
        assert [entry.kind for entry in first.entries()] == [
            "opened", "budget", "approved", *["charged", "released"] * 3,
        ]  # fmt: skip


def test_entries_cannot_be_changed_or_deleted_through_sqlite(used: Path) -> None:
    connection = sqlite3.connect(used)
    for statement in ("DELETE FROM entries", "UPDATE entries SET body = '{}'"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE entries SET body = replace(body, '\"round\":1', '\"round\":4') WHERE kind = 'charged'",
        "UPDATE entries SET body = replace(body, '2.0', '9.0') WHERE kind = 'budget'",
        "UPDATE entries SET time = '2020-01-01' WHERE number = 2",
        "UPDATE entries SET payload = x'00' WHERE kind = 'released'",
        "UPDATE entries SET kind = 'refused' WHERE number = 6",
        "DELETE FROM entries WHERE number = 5",
        "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
        "DELETE FROM entries WHERE number > 3",
        "DELETE FROM entries",
        "UPDATE entries SET hash = (SELECT hash FROM entries WHERE number = 1) WHERE number = 3",
    ],
)
def test_a_ledger_edited_by_hand_is_not_served_from(used: Path, edit: str) -> None:
    edit_ledger(used, edit)
    with pytest.raises(LedgerDamagedError, match="cannot be trusted"):
        Ledger.open(used)


@pytest.mark.parametrize("keep", [0, 1, 100, 4096, 10_000])
def test_a_truncated_ledger_is_not_served_from(used: Path, keep: int) -> None:
    os.truncate(used, keep)
    with pytest.raises(LedgerError):
        Ledger.open(used)


def test_a_ledger_with_flipped_bytes_is_never_served_from_with_a_lower_cost(used: Path) -> None:
    with Ledger.open(used) as ledger:
        before = spent(ledger)
    content = used.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(len(content), size=60):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        used.write_bytes(bytes(damaged))
        try:
            with Ledger.open(used) as ledger:
                assert spent(ledger) >= before  # the byte was unused space
        except LedgerError:
            pass
        for leftover in used.parent.glob("*.ledger-*"):
            leftover.unlink()


def test_a_missing_ledger_is_no_fresh_budget_and_an_existing_file_is_never_overwritten(
    tmp_path: Path, used: Path
) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(tmp_path / "lost.ledger")
    assert not (tmp_path / "lost.ledger").exists()
    with pytest.raises(LedgerError, match="already"):
        Ledger.create(used, silo="clinic", budget=Budget(1.0, 1e-6))
    with pytest.raises(RegistryError, match="belongs to silo 'clinic', not to 'other'"):
        Ledger.open(used, owner="other")
    Chain(tmp_path / "empty.ledger", Kind("ledger", LedgerError), create=True).close()
    with pytest.raises(LedgerDamagedError, match="is empty"):
        Ledger.open(tmp_path / "empty.ledger")
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(LedgerDamagedError):
        Ledger.open(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (-1.0, 1e-6), (float("nan"), 1e-6), (1.0, 0.0), (1.0, 1.0)]
)
def test_a_budget_that_is_no_budget_is_refused(tmp_path: Path, epsilon: float, delta: float) -> None:
    with pytest.raises(AccountingError):
        Ledger.create(tmp_path / "new.ledger", silo="clinic", budget=Budget(epsilon, delta))
    assert not (tmp_path / "new.ledger").exists()


def test_a_ledger_held_by_another_process_refuses_the_round_and_loses_nothing(
    ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    holder = sqlite3.connect(ledger.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", 0.05)
    with Ledger.open(ledger.path) as impatient:
        with pytest.raises(LedgerBusyError, match="another process"):
            impatient.grant(Budget(3.0, 1e-6), note="a test")
        assert refusal(ask(Gate(records, impatient), plan, 0)) is RefusalReason.UNAVAILABLE
        holder.execute("ROLLBACK")
        holder.close()
        assert isinstance(ask(Gate(records, impatient), plan, 0), NoisyUpdate)


WRITER = """
import sys
from pathlib import Path
from ringfence.storage.chain import Chain, Draft
from ringfence.storage.stored_file import Kind
from ringfence.silo.ledger.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger:
    for number in range(50):
        draft = Draft("refused", {"plan": sys.argv[2], "round": number, "reason": "not-approved"})
        ledger.update(lambda account: (None, [draft]))
"""


def test_several_processes_writing_at_once_keep_one_unbroken_chain(ledger: Ledger) -> None:
    writers = [Python([sys.executable, "-c", WRITER, str(ledger.path), str(i)]) for i in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    entries = ledger.entries()
    assert len(entries) == 2 + 4 * 50
    for i in range(4):
        assert [e.body["round"] for e in entries if e.body.get("plan") == str(i)] == list(range(50))


def test_a_write_that_fails_half_way_leaves_no_entry(ledger: Ledger) -> None:
    drafts = [Draft("budget", {"limits": Budget(9.0, 0.5).as_data()}), Draft("budget", {"limits": float("nan")})]
    with pytest.raises(ValueError, match="not JSON compliant"):
        ledger.update(lambda _: (None, drafts))
    assert ledger.account().budget == Budget(2.0, 1e-6)
    assert len(ledger.entries()) == 2


def test_on_a_full_disk_nothing_is_released_and_nothing_is_lost(gate: Gate, ledger: Ledger, plan: Plan) -> None:
    """The operating system itself refuses to let files grow, as it does when the disk is full."""
    before = len(ledger.entries())
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, old_limit[1]))
        answer = ask(gate, plan, 0)
        with pytest.raises(LedgerWriteError, match="Make room"):
            ledger.grant(Budget(3.0, 1e-6), note="a test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert refusal(answer) is RefusalReason.UNAVAILABLE
    assert len(ledger.entries()) == before
    assert isinstance(ask(gate, plan, 0), NoisyUpdate)


def test_the_summary_says_what_was_released_and_what_is_left(used: Path) -> None:
    summary = summarise(used)
    assert summary["silo"] == "clinic"
    assert summary["chain"] == "intact"
    (plan,) = summary["plans"]
    assert (plan["charged"], plan["released"], plan["rounds"], plan["state"]) == (3, 3, 5, "running")
    (text,) = summary["costs"]
    assert (text["against"], text["budget"], summary["delta"]) == ("anyone", 2.0, 1e-6)
    assert 0 < text["used"] < 1.0
    # The running plan has reserved the epsilon of 1 that it may come to.
    assert text["used"] + text["reserved"] == pytest.approx(1.0, rel=1e-4)
    assert text["left"] == pytest.approx(1.0, rel=2e-3)  # a part of delta is kept for plans that are not Gaussian
    assert text["guarantee"] == {"epsilon": 2.0, "delta": 1e-6}
    (own,) = plan["costs"]
    assert own == {"epsilon": text["used"], "delta": 1e-6, "against": "anyone"}


def test_a_use_inside_the_silo_stands_in_the_ledger_and_changes_no_cost(used: Path) -> None:
    with Ledger.open(used) as ledger:
        before = ledger.account()
        costs = before.spent(), before.committed(), before.guarantees(), before.left("anyone")
        ledger.use_inside("personalised", model="0" * 64, plan="1" * 64, note="for the ward")
        after = ledger.account()
        assert (after.spent(), after.committed(), after.guarantees(), after.left("anyone")) == costs
        assert ledger.entries()[-1].kind == "used"
    with Ledger.open(used) as again:
        assert dict(again.entries()[-1].body)["note"] == "for the ward"


def test_a_use_that_this_version_does_not_know_is_not_passed_over(used: Path) -> None:
    with Ledger.open(used) as ledger, pytest.raises(KeyError, match="sold"):
        ledger.use_inside("sold", model="0" * 64, plan="1" * 64)  # type: ignore[arg-type]


LARGE = 2**20


def test_a_ledger_with_many_large_answers_takes_the_memory_of_a_few(gate: Gate, ledger: Ledger, plan: Plan) -> None:
    ask_all(gate, plan, [0])
    event = next(iter(ledger.account().plans[plan.digest()].rounds.values())).event.to_dict()
    for round in range(1, 41):
        charged = Draft("charged", {"plan": plan.digest(), "round": round, "argument": "0" * 64, "event": event})
        released = Draft("released", {"plan": plan.digest(), "round": round}, bytes(LARGE))
        ledger.update(lambda _, drafts=(charged, released): (None, drafts))  # type: ignore[misc]
    tracemalloc.start()
    try:
        with Ledger.open(ledger.path) as opened:
            assert len(opened.account().plans[plan.digest()].rounds) == 41
            now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < LARGE
    assert most < 10 * LARGE


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET payload = CAST(replace(payload, 'plan', 'nalp') AS BLOB) WHERE number = {}",
        "UPDATE entries SET payload = CAST('other' AS BLOB) WHERE number = {}",
        "UPDATE entries SET body = '{{}}' WHERE number = {}",
        "UPDATE entries SET hash = 'other' WHERE number = {} - 1",
    ],
)
def test_a_stored_answer_that_was_changed_behind_the_agent_s_back_is_not_repeated(
    gate: Gate, ledger: Ledger, plan: Plan, statement: str
) -> None:
    ask_all(gate, plan, [0, 1])  # so that the entry is not the last one, at which the chain itself is looked at
    answer = ledger.account().plans[plan.digest()].rounds[0].answer
    assert answer is not None
    edit_ledger(ledger.path, statement.format(answer.entry))
    with pytest.raises(LedgerDamagedError, match=f"entry {answer.entry} is missing or was changed"):
        ledger.stored(answer)
    assert refusal(ask(gate, plan, 0)) is RefusalReason.UNAVAILABLE
    with pytest.raises(LedgerDamagedError, match="entry 99 is missing"):
        ledger.stored(StoredAnswer(99, answer.hash))
    last = ledger.account().number
    with pytest.raises(LedgerDamagedError, match=f"entry {last + 1} is missing"):
        ledger.stored(StoredAnswer(last + 1, answer.hash))


def test_whoever_holds_a_ledger_can_read_and_append_entries_and_run_no_sql(ledger: Ledger) -> None:
    public = {name for name in dir(ledger._chain) if not name.startswith("_")}
    assert public == {
        "append", "close", "closed_on_error", "copy_to", "holds", "path", "payload", "read", "require", "writing"
    }  # fmt: skip


def test_that_the_courier_may_be_the_silo_s_own_user_is_recorded_once(ledger: Ledger) -> None:
    assert not ledger.account().same_user
    ledger.allow_same_user()
    ledger.allow_same_user()
    assert ledger.account().same_user
    assert [entry.kind for entry in ledger.entries()] == ["opened", "budget", "courier"]


def test_entries_state_the_format_in_which_they_are_written(ledger: Ledger) -> None:
    ledger.grant(Budget(3.0, 1e-6), note="a second study")
    ledger.use_inside("compared", model="m", plan="p", note="n")
    ledger.allow_same_user()
    assert {entry.body["format"] for entry in ledger.entries()} == {1}
    used = ledger.entries()[-2]
    assert (used.kind, used.body["use"], used.body["model"], used.body["plan"], used.body["note"]) == (
        "used", "compared", "m", "p", "n",
    )  # fmt: skip


def test_a_closed_ledger_holds_no_file(ledger: Ledger, own_state: Path) -> None:
    ledger.close()
    opened = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [path for path in opened if path.startswith((str(own_state), str(ledger.path)))]
