"""The transcript is the run: replayed it gives the same model, and no crash makes it give another."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.errors import OutputError, TrainingError, TranscriptError
from ringfence.protocol import Plan, RoundRequest
from ringfence.protocol.public import canonical_json
from ringfence.server.conduct import Quorum, conduct, replay
from ringfence.server.rounds import RunResult, Session
from ringfence.server.transcript import (
    NAME,
    Answered,
    Asked,
    Closed,
    RunHeader,
    Transcript,
    from_line,
    read_transcript,
    to_line,
)
from tests.server.local import Local
from tests.server.test_session import NAMES, PLANS, answers, plan_of

PASS = Quorum(0)
Finished = tuple[Plan, bytes, RunResult]


def silos(request: RoundRequest) -> dict[str, bytes]:
    return {name: answer.to_bytes() for name, answer in answers(request).items()}


def go(plan: Plan, exchange: Local, folder: Path) -> RunResult:
    return conduct(plan, exchange, folder, seconds=0.01, quorum=PASS, patience=1)


def lines(folder: Path) -> list[bytes]:
    return (folder / NAME).read_bytes().splitlines(keepends=True)


def uninterrupted(plan: Plan, seed: int) -> RunResult:
    session = Session(plan, np.random.default_rng(seed))
    while not session.finished:
        session.receive(answers(session.request()))
    return session.result()


def assert_same(one: RunResult, other: RunResult) -> None:
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.history == other.history


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A plan, the transcript of its whole run, and the model."""
    folder = tmp_path_factory.mktemp("finished")
    plan = plan_of("accelerated", participation={"silos": 2})
    trained = go(plan, Local(silos), folder)
    return plan, (folder / NAME).read_bytes(), trained


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """Fresh folders, also within one property-based test."""
    return (tmp_path / str(number) for number in range(10**6))


@pytest.mark.parametrize("participation", [{}, {"silos": 2}, {"probability": 0.6}], ids=str)
@pytest.mark.parametrize("kind", PLANS)
def test_a_run_stopped_after_every_other_answer_is_bit_for_bit_the_run_that_was_not(
    tmp_path: Path, kind: str, participation: dict[str, object]
) -> None:
    plan = plan_of(kind, participation=participation)
    trained = None
    for _ in range(100):
        exchange = Local(silos, stop_after=2)  # one may be a refusal, which is asked again
        try:
            trained = go(plan, exchange, tmp_path)
            break
        except KeyboardInterrupt:
            assert exchange.handed_over == 2
    assert trained is not None
    header, _ = read_transcript(tmp_path)
    assert_same(trained, uninterrupted(plan, header.seed))
    assert_same(trained, replay(tmp_path))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_transcript_truncated_at_any_byte_goes_on_to_the_same_model_and_asks_no_finished_round_again(
    finished: Finished, folders: Iterator[Path], data: st.DataObject
) -> None:
    plan, content, trained = finished
    folder = next(folders)
    folder.mkdir()
    header = content.index(b"\n") + 1
    cut = data.draw(st.integers(header, len(content)))
    (folder / NAME).write_bytes(content[:cut])
    closed = content[:cut].count(b'"kind":"closed"') - (not content[:cut].endswith(b"\n"))
    exchange = Local(silos)
    assert_same(go(plan, exchange, folder), trained)
    assert all(round >= closed - 1 for round in exchange.rounds())
    assert all(isinstance(from_line(line), RunHeader | Asked | Answered | Closed) for line in lines(folder))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_open_round_scrambled_by_a_loss_of_power_is_asked_again_and_gives_the_same_model(
    finished: Finished, folders: Iterator[Path], data: st.DataObject
) -> None:
    """Of what was written after the last sync, the disk may hold any part."""
    plan, content, trained = finished
    folder = next(folders)
    folder.mkdir()
    whole = content.splitlines(keepends=True)
    synced = [0, *(place for place, line in enumerate(whole) if isinstance(from_line(line), Closed))]
    at = data.draw(st.integers(0, len(synced) - 2))
    kept, tail = whole[: synced[at] + 1], whole[synced[at] + 1 : synced[at + 1] + 1]
    holes = data.draw(st.lists(st.booleans(), min_size=len(tail), max_size=len(tail)))
    lost = [b"\0" * len(line) if hole else line for line, hole in zip(tail, holes, strict=True)]
    (folder / NAME).write_bytes(b"".join([*kept, *lost]))
    exchange = Local(silos)
    assert_same(go(plan, exchange, folder), trained)
    assert all(round >= at for round in exchange.rounds())


def test_damage_before_a_closed_round_is_refused_and_nothing_is_written(finished: Finished, tmp_path: Path) -> None:
    plan, content, _ = finished
    whole = content.splitlines(keepends=True)
    for place in (1, 3, len(whole) // 2):
        damaged = b"".join([*whole[:place], whole[place].replace(b'"', b"'", 1), *whole[place + 1 :]])
        (tmp_path / NAME).write_bytes(damaged)
        with pytest.raises(TranscriptError, match="damaged in round"):
            go(plan, Local(silos), tmp_path)
        assert (tmp_path / NAME).read_bytes() == damaged


@pytest.mark.parametrize("content", [b"my notes\n", b'{"check":"00","entry":{}}\n', b"x", b"\0\0\0"])
def test_a_file_that_is_not_a_transcript_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(TranscriptError, match="not a transcript"):
        go(plan_of("accelerated"), Local(silos), tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


@pytest.mark.parametrize("length", [0, 1, 9, 10, 60, 500])
def test_a_torn_header_begins_anew_since_nobody_was_asked_before_it_was_synced(tmp_path: Path, length: int) -> None:
    plan = plan_of("accelerated")
    (tmp_path / NAME).write_bytes(to_line(RunHeader(plan=plan, seed=1))[:length])
    assert_same(go(plan, Local(silos), tmp_path), replay(tmp_path))


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    go(plan_of("accelerated"), Local(silos), tmp_path)
    with pytest.raises(TranscriptError, match="run of another plan"):
        go(plan_of("localized"), Local(silos), tmp_path)


def test_two_servers_do_not_conduct_one_run_and_the_second_may_when_the_first_is_gone(tmp_path: Path) -> None:
    plan = plan_of("accelerated")
    with Transcript(tmp_path, plan), pytest.raises(TranscriptError, match="Another process is writing"):
        go(plan, Local(silos), tmp_path)
    go(plan, Local(silos), tmp_path)


def test_a_transcript_that_another_version_wrote_is_refused_rather_than_replayed_to_another_model(
    finished: Finished, tmp_path: Path
) -> None:
    plan, content, _ = finished
    whole = content.splitlines(keepends=True)
    asked = from_line(whole[1])
    assert isinstance(asked, Asked)
    for changed in (
        to_line(asked.model_copy(update={"request": "0" * 64})),
        to_line(asked.model_copy(update={"silos": ("s0",)})),
    ):
        (tmp_path / NAME).write_bytes(b"".join([whole[0], changed, *whole[2:]]))
        with pytest.raises(TranscriptError, match="another version"):
            go(plan, Local(silos), tmp_path)
    (tmp_path / NAME).write_bytes(content + checked_line(kind="vote"))
    with pytest.raises(TranscriptError, match="cannot read"):
        go(plan, Local(silos), tmp_path)


# What other versions wrote


def checked_line(**fields: Any) -> bytes:
    """Write any fields as a line with a right check, those of a header unless given."""
    content = canonical_json({"kind": "run", "seed": 7, "time": "2026-11-16T15:32:34.873+00:00", **fields})
    return b'{"check":"' + hashlib.sha256(content).hexdigest()[:32].encode() + b'","entry":' + content + b"}\n"


def test_a_transcript_of_a_newer_format_is_left_alone_and_the_error_says_what_to_install(tmp_path: Path) -> None:
    plan = plan_of("accelerated")
    content = checked_line(format=2, plan={"queries": "of another kind"}) + b"lines of another kind\n"
    (tmp_path / NAME).write_bytes(content)
    newer = "This transcript has format 2, and this version of Ringfence reads formats up to 1: install a newer version"
    with pytest.raises(TranscriptError, match=newer):
        go(plan, Local(silos), tmp_path)
    with pytest.raises(TranscriptError, match=newer):
        replay(tmp_path)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_header_that_is_no_header_of_any_format_is_refused(tmp_path: Path) -> None:
    plan = plan_of("accelerated").content.decode()
    for fields in (
        {"format": 1},
        {"format": 0, "plan": plan},
        {"format": "3", "plan": plan},
        {"format": 1, "plan": "{}"},
        {"format": 1, "plan": {}},
    ):
        (tmp_path / NAME).write_bytes(checked_line(**fields))
        with pytest.raises(TranscriptError, match="cannot read"):
            read_transcript(tmp_path)


def test_entries_out_of_order_are_refused(finished: Finished, tmp_path: Path) -> None:
    plan, content, _ = finished
    whole = content.splitlines(keepends=True)
    for order in ([0, 2, 1], [0, 1, 1], [0, 1, 2, 0]):
        (tmp_path / NAME).write_bytes(b"".join(whole[place] for place in order))
        with pytest.raises(TranscriptError):
            go(plan, Local(silos), tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_hostile_bytes_are_kept_as_they_came_and_change_nothing(folders: Iterator[Path], junk: bytes) -> None:
    plan = plan_of("minibatch-sgd")
    folder = next(folders)
    trained = go(plan, Local(lambda request: {**silos(request), "s1": junk}), folder)
    _, entries = read_transcript(folder)
    kept = [entry.answer() for entry in entries if isinstance(entry, Answered) and entry.silo == "s1"]
    assert set(kept) == {junk}
    assert all(outcome.unusable == ("s1",) for outcome in trained.history)
    without = Session(plan, np.random.default_rng(0))
    while not without.finished:
        given = answers(without.request())
        without.receive({name: given[name] for name in given if name != "s1"})
    assert trained.weights.tobytes() == without.result().weights.tobytes()
    assert_same(trained, replay(folder))


def test_an_answer_longer_than_any_honest_one_is_not_kept(tmp_path: Path) -> None:
    """Or a hostile silo could fill the server's disk."""
    plan = plan_of("minibatch-sgd")
    trained = go(plan, Local(lambda request: {**silos(request), "s1": b"x" * 10**6}), tmp_path)
    assert trained.history[4].unusable == ("s1",)
    assert (tmp_path / NAME).stat().st_size < 10**5
    assert_same(trained, replay(tmp_path))


def test_a_disk_that_cannot_be_written_stops_the_run_with_a_sentence_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("accelerated")
    real, written = os.write, 0

    def full(file: int, content: bytes) -> int:
        nonlocal written
        written += 1
        if written == 9:
            return real(file, content[:20])
        if written == 10:
            raise OSError(28, "No space left on device")
        return real(file, content)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutputError, match=r"No space left on device.*run the same command again"):
        go(plan, Local(silos), tmp_path)
    monkeypatch.undo()
    assert_same(go(plan, Local(silos), tmp_path), replay(tmp_path))


def test_a_run_that_is_not_over_has_no_model_to_replay(tmp_path: Path) -> None:
    with pytest.raises(TranscriptError, match="holds no run"):
        replay(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        go(plan_of("accelerated"), Local(silos, stop_after=7), tmp_path)
    with pytest.raises(TrainingError, match="is still in round 2"):
        replay(tmp_path)


def test_a_finished_run_gives_its_model_again_and_asks_nobody(tmp_path: Path) -> None:
    plan = plan_of("accelerated")
    trained = go(plan, Local(silos), tmp_path)
    before = (tmp_path / NAME).read_bytes()
    silent = Local(silos)
    assert_same(go(plan, silent, tmp_path), trained)
    assert silent.calls == []
    assert (tmp_path / NAME).read_bytes() == before


def test_every_line_is_json_and_says_when_who_was_asked_and_who_answered(tmp_path: Path) -> None:
    go(plan_of("accelerated"), Local(silos), tmp_path)
    entries = [json.loads(line)["entry"] for line in lines(tmp_path)]
    assert entries[0]["kind"] == "run"
    assert all(entry["time"].endswith("+00:00") for entry in entries)
    assert next(e["silos"] for e in entries if e["kind"] == "asked") == list(NAMES)
    assert [e["answered"] for e in entries if e["kind"] == "closed"][3:6] == [[], list(NAMES), ["s0", "s2"]]
