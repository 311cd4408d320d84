"""The log of decisions: a JSON object per line, for its owner alone, never longer than it may be."""

import json
import os
from pathlib import Path

import pytest

from ringfence.storage import decision_log
from ringfence.storage.decision_log import DecisionLog

PLAN = "0" * 64


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_decision_is_a_line_with_what_is_known_of_it(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path)
    log("answered", plan=PLAN, round=0, head=7)
    log("refused", reason="malformed")
    log.close()
    answered, refused = lines(tmp_path / "decisions.log")
    assert len(str(answered["time"])) == len("2026-01-01T00:00:00+00:00"), "no word of how long a computation took"
    assert {**answered, "time": ""} == {"time": "", "decision": "answered", "plan": PLAN, "round": 0, "head": 7}
    assert {**refused, "time": ""} == {"time": "", "decision": "refused", "reason": "malformed"}


def test_nobody_else_may_read_it_whatever_the_mask_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "LONGEST", 200)
    previous = os.umask(0)
    try:
        log = DecisionLog(tmp_path)
        for round in range(20):
            log("answered", plan=PLAN, round=round)
        log.close()
    finally:
        os.umask(previous)
    files = list(tmp_path.iterdir())
    assert len(files) == decision_log.KEPT + 1
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_it_is_put_aside_when_it_is_long_and_the_oldest_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "LONGEST", 1000)
    log = DecisionLog(tmp_path)
    for round in range(200):
        log("answered", plan=PLAN, round=round)
    log.close()
    names = ["decisions.log", *(f"decisions.log.{number}" for number in range(1, decision_log.KEPT + 1))]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    kept = [line["round"] for name in reversed(names) for line in lines(tmp_path / name)]
    assert kept == list(range(200 - len(kept), 200))


def test_one_that_goes_on_continues_the_file(tmp_path: Path) -> None:
    for round in range(3):
        log = DecisionLog(tmp_path)
        log("answered", plan=PLAN, round=round)
        log.close()
    assert [line["round"] for line in lines(tmp_path / "decisions.log")] == [0, 1, 2]


def test_a_log_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "decisions.log").mkdir()
    log = DecisionLog(tmp_path)
    for round in range(3):
        log("answered", plan=PLAN, round=round)
    log.close()
    text = capsys.readouterr()
    assert text.err.count("\n") == 1
    assert "decisions.log cannot be written (Is a directory): decisions continue" in text.err
