"""A ledger does not unsee what it held, while it is open and when it is opened again, and never guesses at an entry."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import LedgerDamagedError, LedgerError, LedgerWriteError
from ringfence.protocol import Plan, RefusalReason
from ringfence.silo.gate.gate import Gate
from ringfence.silo.ledger.budget import Budget
from ringfence.silo.ledger.history import FORMATS
from ringfence.silo.ledger.ledger import Ledger
from ringfence.storage.chain import Draft, body_text
from tests.support import ask, ask_all, refusal, watch_draws


@pytest.fixture
def older(ledger: Ledger, tmp_path: Path) -> Path:
    """A copy of the new ledger; the ledger itself has one entry more."""
    copy = tmp_path / "older.ledger"
    shutil.copyfile(ledger.path, copy)
    ledger.grant(Budget(3.0, 1e-6), note="a test")
    return copy


def marks(state: Path) -> list[Path]:
    return sorted((state / "ringfence" / "heads").iterdir())


def test_an_open_ledger_refuses_an_older_file_every_time_and_takes_the_newest_again(
    ledger: Ledger, older: Path, tmp_path: Path
) -> None:
    newest = tmp_path / "newest.ledger"
    shutil.copyfile(ledger.path, newest)
    shutil.copyfile(older, ledger.path)
    for use in (ledger.account, lambda: ledger.grant(Budget(4.0, 1e-6), note="a test"), ledger.entries) * 3:
        with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing"):
            use()
    assert ledger.path.read_bytes() == older.read_bytes()
    shutil.copyfile(newest, ledger.path)
    assert ledger.account().budget == Budget(3.0, 1e-6)


def test_an_older_copy_is_not_opened_wherever_it_is_nor_one_that_went_another_way_and_grew_longer(
    ledger: Ledger, older: Path
) -> None:
    with pytest.raises(LedgerDamagedError, match=r"ends with entry 2, but once had entry 3 .* silo restore"):
        Ledger.open(older)
    with Ledger.open(older, marked=False) as other:
        for epsilon in (5.0, 6.0, 7.0):
            other.grant(Budget(epsilon, 1e-6), note="a test")
    with pytest.raises(LedgerDamagedError, match="ends with entry 5, but once had entry 3"):
        Ledger.open(older)
    with Ledger.open(ledger.path) as opened:
        assert opened.account().number == 3
    shutil.copyfile(older, ledger.path)
    with pytest.raises(LedgerDamagedError, match="entry 3, which it held before, is missing or was changed"):
        ledger.account()


def test_a_charge_is_in_the_watermark_before_its_answer_leaves(
    gate: Gate, ledger: Ledger, plan: Plan, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.ledger"
    for round in range(3):
        shutil.copyfile(ledger.path, copy)
        ask_all(gate, plan, [round])
        with pytest.raises(LedgerDamagedError, match=f"once had entry {5 + 2 * round} "):
            Ledger.open(copy)


def test_a_ledger_without_a_watermark_gets_one(ledger: Ledger, older: Path, own_state: Path) -> None:
    (mark,) = marks(own_state)
    assert mark.name == ledger.account().identity
    mark.unlink()
    with Ledger.open(older) as opened:  # as on another machine: nothing here knows better
        assert opened.account().number == 2
    assert marks(own_state) == [mark]


@pytest.mark.parametrize("content", [b"", b"ringfence watermark 1", b"\0" * 142])
def test_nothing_is_released_while_the_watermark_is_damaged(ledger: Ledger, own_state: Path, content: bytes) -> None:
    (mark,) = marks(own_state)
    mark.write_bytes(content)
    with pytest.raises(LedgerDamagedError, match=r"The watermark .* is damaged, or was edited.*nothing is released"):
        Ledger.open(ledger.path)
    mark.unlink()
    Ledger.open(ledger.path).close()


def test_ledgers_that_are_begun_at_once_for_silos_of_one_name_have_different_hashes(
    tmp_path: Path, own_state: Path
) -> None:
    bodies = set()
    for number in range(20):
        with Ledger.create(tmp_path / f"{number}.ledger", silo="clinic", budget=Budget(1.0, 1e-6)) as ledger:
            bodies.add(body_text(ledger.entries()[0].body))
    assert len(bodies) == 20  # so their hashes differ, also where their times are the same
    assert len(marks(own_state)) == 20


def test_a_ledger_that_nobody_will_open_again_leaves_no_watermark(tmp_path: Path, own_state: Path) -> None:
    Ledger.create(tmp_path / "brief.ledger", silo="clinic", budget=Budget(1.0, 1e-6), marked=False).close()
    assert not (own_state / "ringfence").exists()


def test_a_ledger_that_cannot_be_marked_is_neither_opened_nor_begun(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerWriteError, match=r"The ledger's watermark cannot be stored: .*XDG_STATE_HOME"):
        Ledger.open(ledger.path)
    with pytest.raises(LedgerError, match="The ledger's watermark cannot be stored"):
        Ledger.create(tmp_path / "new.ledger", silo="clinic", budget=Budget(1.0, 1e-6))
    assert not (tmp_path / "new.ledger").exists()


def later(kind: str, asked: Plan) -> Draft:
    """An entry as a later version might write it: today's fields, and a format that we do not know."""
    plan = asked.digest()
    bodies: dict[str, dict[str, Any]] = {
        "opened": {"silo": "clinic", "adjacency": "replace-one"},
        "budget": {"limits": [{"epsilon": 9.0, "delta": 1e-6, "against": "anyone"}]},
        "approved": {"events": []},
        "charged": {"plan": plan, "round": 1, "argument": "0" * 64, "event": {"kind": "gaussian", "shift": 0.001}},
        "released": {"plan": plan, "round": 0},
        "refused": {"plan": plan, "round": 0, "reason": "budget"},
        "ended": {"plan": plan, "why": "finished"},
        "courier": {"same_user": True},
        "registered": {"by": "somebody"},
        "used": {"use": "compared", "model": "0" * 64, "plan": plan, "by": "somebody"},
        "data": {"before": 40, "after": 41, "reason": "one more", "by": "somebody"},
    }
    return Draft(kind, {**bodies[kind], "format": FORMATS[kind] + 1})


LIMIT = {"epsilon": 9.0, "delta": 1e-6}
NEWER: dict[str, tuple[Callable[[Plan], Draft], str]] = {
    **{kind: (partial(later, kind), rf"entry 6 has format {own + 1}, .* up to {own}") for kind, own in FORMATS.items()},
    "plan": (
        lambda plan: Draft("approved", {"events": []}, plan.content.replace(b'"format":1', b'"format":2')),
        "plan .* has format 2, .* up to 1",
    ),
}
UNREADABLE = {
    "kind": Draft("lent", {"format": 1, "plan": "0" * 64}),
    "fields": Draft("budget", {"format": 1, **LIMIT}),
    "number": Draft("budget", {"format": "1", "limits": []}),
    "observer": Draft("budget", {"format": 1, "limits": [{**LIMIT, "against": "nobody"}]}),
    "not against anyone": Draft("budget", {"format": 1, "limits": [{**LIMIT, "against": "server"}]}),
}


@pytest.mark.parametrize(
    ("entry", "says", "damaged"),
    [
        *((entry, f"{says}: install a newer version of Ringfence", False) for entry, says in NEWER.values()),
        *(
            (partial(lambda draft, _: draft, draft), "an entry that this version cannot read", True)
            for draft in UNREADABLE.values()
        ),
    ],
    ids=[*NEWER, *UNREADABLE],
)
def test_an_entry_of_a_newer_format_or_one_that_cannot_be_read_releases_nothing(
    gate: Gate, ledger: Ledger, plan: Plan, monkeypatch: pytest.MonkeyPatch,
    entry: Callable[[Plan], Draft], says: str, damaged: bool,
) -> None:  # fmt: skip
    """Neither by the gate that was running, nor after a restart, nor by a decision of the operator."""
    ask_all(gate, plan, [0])
    drawn = watch_draws(monkeypatch)
    last = ledger.entries()[-1]
    with ledger._chain.writing():
        ledger._chain.append(entry(plan), last.number, last.hash)
    before = ledger.entries()
    for round in (0, 1):
        assert refusal(ask(gate, plan, round)) is RefusalReason.UNAVAILABLE
    grant = partial(ledger.grant, Budget(9.0, 1e-6), note="a test")
    for use in (lambda: gate.approve(plan), grant, lambda: Ledger.open(ledger.path)):
        with pytest.raises(LedgerError, match=says) as refused:
            use()
        assert isinstance(refused.value, LedgerDamagedError) == damaged, "what is not damaged must not be restored"
    assert drawn == []
    assert ledger.entries() == before
