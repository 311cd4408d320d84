"""A ledger does not unsee what it held: while it is open, and when it is opened again."""

import shutil
from pathlib import Path

import pytest

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError
from ringfence.protocol.messages import NoisyUpdate
from ringfence.silo.budget import Budget
from ringfence.silo.gate import Gate
from ringfence.silo.ledger import Ledger
from ringfence.storage.chain import body_text
from tests.support import MakePlan, ask

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def older(ledger: Ledger, tmp_path: Path) -> Path:
    """A copy of the new ledger; the ledger itself has one entry more."""
    copy = tmp_path / "older.ledger"
    shutil.copyfile(ledger.path, copy)
    ledger.grant(Budget(3.0, 1e-6))
    return copy


def marks(state: Path) -> list[Path]:
    return sorted((state / "ringfence" / "heads").iterdir())


def test_an_open_ledger_refuses_an_older_file_every_time_and_takes_the_newest_again(
    ledger: Ledger, older: Path, tmp_path: Path
) -> None:
    newest = tmp_path / "newest.ledger"
    shutil.copyfile(ledger.path, newest)
    shutil.copyfile(older, ledger.path)
    for _ in range(5):
        with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing"):
            ledger.account()
        with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing"):
            ledger.grant(Budget(4.0, 1e-6))
        with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing"):
            ledger.entries()
    assert ledger.path.read_bytes() == older.read_bytes()
    shutil.copyfile(newest, ledger.path)
    assert ledger.account().budget == Budget(3.0, 1e-6)


def test_an_open_ledger_refuses_a_file_that_went_another_way_and_grew_longer(ledger: Ledger, older: Path) -> None:
    with Ledger.open(older, marked=False) as other:
        for epsilon in (5.0, 6.0, 7.0):
            other.grant(Budget(epsilon, 1e-6))
    shutil.copyfile(older, ledger.path)
    for _ in range(3):
        with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing or was changed"):
            ledger.account()


def test_an_older_copy_is_not_opened_wherever_it_stands(ledger: Ledger, older: Path) -> None:
    for _ in range(3):
        with pytest.raises(LedgerDamagedError, match=r"ends with entry 2, but once had entry 3 .* silo restore"):
            Ledger.open(older)
    with Ledger.open(ledger.path) as opened:
        assert opened.account().number == 3


def test_a_copy_that_went_another_way_is_not_opened_though_it_is_longer(ledger: Ledger, older: Path) -> None:
    with Ledger.open(older, marked=False) as other:
        for epsilon in (5.0, 6.0, 7.0):
            other.grant(Budget(epsilon, 1e-6))
    with pytest.raises(LedgerDamagedError, match="ends with entry 5, but once had entry 3"):
        Ledger.open(older)


def test_a_charge_is_in_the_watermark_before_its_answer_leaves(
    gate: Gate, ledger: Ledger, plan_of: MakePlan, tmp_path: Path
) -> None:
    plan, copy = plan_of(), tmp_path / "copy.ledger"
    gate.approve(plan)
    for round in range(3):
        shutil.copyfile(ledger.path, copy)
        assert isinstance(ask(gate, plan, round), NoisyUpdate)
        with pytest.raises(LedgerDamagedError, match=f"once had entry {5 + 2 * round} "):
            Ledger.open(copy)


def test_a_ledger_without_a_watermark_gets_one(ledger: Ledger, older: Path, own_state: Path) -> None:
    (mark,) = marks(own_state)
    assert mark.name == ledger.account().identity
    mark.unlink()
    with Ledger.open(older) as opened:  # as on another machine: nothing here knows better
        assert opened.account().number == 2
    assert marks(own_state) == [mark]


@pytest.mark.parametrize("version", ["v0_1_0", "v0_2_0"])
def test_a_ledger_of_an_earlier_version_gets_a_watermark(version: str, tmp_path: Path, own_state: Path) -> None:
    golden, path, older = GOLDEN / version / "silos" / "half-finished", tmp_path / "a.ledger", tmp_path / "b.ledger"
    for copy in (path, older):
        shutil.copyfile(golden / "clinic.ledger", copy)
    with Ledger.open(path) as ledger:
        before = ledger.account().number
        ledger.grant(Budget(9.0, 1e-6))
    assert len(marks(own_state)) == 1
    with pytest.raises(LedgerDamagedError, match=f"ends with entry {before}, but once had entry {before + 1}"):
        Ledger.open(older)


@pytest.mark.parametrize("content", [b"", b"ringfence watermark 1", b"\0" * 142])
def test_nothing_is_released_while_the_watermark_is_damaged(ledger: Ledger, own_state: Path, content: bytes) -> None:
    (mark,) = marks(own_state)
    mark.write_bytes(content)
    with pytest.raises(LedgerDamagedError, match=r"The watermark .* is damaged, or was edited.*nothing is released"):
        Ledger.open(ledger.path)
    mark.unlink()
    Ledger.open(ledger.path).close()


def test_a_state_folder_that_cannot_be_made_is_told_with_what_to_do(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerWriteError, match=r"The ledger's watermark cannot be stored: .*XDG_STATE_HOME"):
        Ledger.open(ledger.path)


def test_ledgers_that_are_begun_at_once_for_silos_of_one_name_are_told_apart(tmp_path: Path, own_state: Path) -> None:
    bodies = set()
    for number in range(20):
        with Ledger.create(tmp_path / f"{number}.ledger", silo="clinic", budget=Budget(1.0, 1e-6)) as ledger:
            bodies.add(body_text(ledger.entries()[0].body))
    assert len(bodies) == 20  # so their hashes differ, also where their times are the same
    assert len(marks(own_state)) == 20


def test_a_ledger_that_nobody_will_open_again_leaves_no_watermark(tmp_path: Path, own_state: Path) -> None:
    Ledger.create(tmp_path / "brief.ledger", silo="clinic", budget=Budget(1.0, 1e-6), marked=False).close()
    assert not (own_state / "ringfence").exists()


def test_a_ledger_that_cannot_be_marked_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerError, match="The ledger's watermark cannot be stored"):
        Ledger.create(tmp_path / "new.ledger", silo="clinic", budget=Budget(1.0, 1e-6))
    assert not (tmp_path / "new.ledger").exists()
