"""A sweep's file survives kills, is never another's, and is read as rows."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import SweepError
from ringfence.simulation.cells import Cell, Value, cells
from ringfence.simulation.sweep import sweep
from ringfence.simulation.table import KIND, Log, SweepHeader, read_rows
from ringfence.storage.lines import Lines
from tests.simulation.sweeping import GRID, KILLED, Recorded, assert_complete, measure, measure_slowly

ROOT = Path(__file__).parents[2]


# Interruptions


def test_a_finished_sweep_runs_nothing_again_in_whatever_order_it_is_asked_for(tmp_path: Path) -> None:
    out = sweep(measure, cells(GRID, 2), out=tmp_path / "a.jsonl")
    before, task, seen = out.read_bytes(), Recorded(), []
    turned = {name: [*reversed(GRID[name])] for name in reversed(GRID)}
    sweep(task, cells(turned, 2), out=out, label="measure", block=1, watch=lambda *now: seen.append(now))
    assert (task.blocks, out.read_bytes(), seen) == ([], before, [(12, 12)])


def test_a_larger_grid_runs_only_what_is_new(tmp_path: Path) -> None:
    out = sweep(measure, cells({"a": [1, 2]}, 2), out=tmp_path / "a.jsonl")
    task = Recorded()
    sweep(task, cells({"a": [3, 2.0, 1]}, 3), out=out, label="measure")
    assert {(cell["a"], cell.trial) for cell in task.cells} == {(1, 2), (2, 2), (3, 0), (3, 1), (3, 2)}
    assert_complete(out, {"a": [1, 2, 3]}, 3)


def test_a_file_cut_at_any_byte_is_completed_without_repeating_a_whole_line(tmp_path: Path) -> None:
    grid: dict[str, Sequence[Value]] = {"a": [1, 2.5], "b": ["é\n"]}
    whole = sweep(measure, cells(grid, 2), out=tmp_path / "whole.jsonl").read_bytes()
    out = tmp_path / "cut.jsonl"
    for end in range(0, len(whole), 5):
        out.write_bytes(whole[:end])
        lines = whole[:end].count(b"\n")
        assert lines == 0 or len(list(read_rows(out))) == lines - 1, "a half-written row is not read"
        task = Recorded()
        sweep(task, cells(grid, 2), out=out, label="measure", block=3)
        assert_complete(out, grid, 2)
        assert len(task.cells) == 4 - max(lines - 1, 0)


@contextmanager
def started(out: Path, workers: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A sweep in its own process, which is killed in the end if it still runs; its workers outlive it, as they do."""
    command = [sys.executable, "-m", "tests.simulation.sweeping", str(out), str(workers)]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def orphans() -> Iterator[list[int]]:
    """Ends the workers of killed processes after the test."""
    groups: list[int] = []
    yield groups
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def wait_for_lines(out: Path, lines: int) -> None:
    deadline = time.monotonic() + 15
    while not out.exists() or out.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize(("workers", "kills"), [(1, 3), (2, 2)])
def test_a_sweep_killed_at_random_moments_ends_with_every_cell_exactly_once(
    tmp_path: Path, orphans: list[int], workers: int, kills: int
) -> None:
    out = tmp_path / "a.jsonl"
    kept = b""
    for attempt in range(kills):
        with started(out, workers) as process:
            orphans.append(process.pid)
            wait_for_lines(out, 1 + 60 * attempt + 3)
            time.sleep(random.uniform(0, 0.05))
        assert process.returncode == -signal.SIGKILL
        now = out.read_bytes()
        assert now.startswith(kept[: kept.rfind(b"\n") + 1]), "a finished row was lost"
        kept = now
    task = Recorded()
    sweep(task, cells(KILLED, 12), out=out, label="measure_slowly", block=7)
    assert_complete(out, KILLED, 12)
    assert len(task.cells) == 960 - (kept.count(b"\n") - 1), "a finished row was repeated"


def test_a_second_process_on_the_same_file_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with started(out, 1) as process:
        wait_for_lines(out, 2)
        with pytest.raises(SweepError, match="Another process is writing"):
            sweep(measure_slowly, cells(KILLED, 12), out=out)
        assert process.wait(15) == 0
    assert_complete(out, KILLED, 12)


# Files of others, damage and a full disk


def test_a_file_of_another_sweep_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    out = sweep(measure, cells({"a": [1]}, 1), out=tmp_path / "a.jsonl")
    before = out.read_bytes()
    with pytest.raises(SweepError, match="holds the sweep 'measure', not 'other'"):
        sweep(measure, cells({"a": [1]}, 1), out=out, label="other")
    with pytest.raises(SweepError, match="has the parameters 'a', not 'a', 'b'"):
        sweep(measure, cells({"a": [1], "b": [2]}, 1), out=out)
    with pytest.raises(SweepError, match="has the results 'error', 'name', but the task now returns 'x'"):
        sweep(lambda block: [{"x": 1}], cells({"a": [2]}, 1), out=out, label="measure")
    with pytest.raises(SweepError, match="has other parameters than the first"):
        sweep(measure, [Cell({"a": 1}, 0), Cell({"b": 1}, 0)], out=out)
    assert out.read_bytes() == before
    out.write_bytes(before.replace(b'"ringfence_sweep": 1', b'"ringfence_sweep": 2'))
    with pytest.raises(SweepError, match="another version"):
        sweep(measure, cells({"a": [1]}, 1), out=out)


@pytest.mark.parametrize("content", [b"my notes", b"my notes\nmore\n", b"[1]\n", b'{"a": 1}\n', b"\xff\n"])
def test_somebodys_own_file_is_never_touched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(SweepError, match="not a sweep's file"):
        sweep(measure, cells(GRID, 1), out=tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == content


@pytest.mark.parametrize("line", [b"garbage\n", b"{}\n", b'{"a": 1, "trial": 0}\n'])
def test_damage_before_the_last_line_is_named_not_repaired(tmp_path: Path, line: bytes) -> None:
    out = sweep(measure, cells({"a": [1, 2]}, 1), out=tmp_path / "a.jsonl")
    out.write_bytes(out.read_bytes() + line + b"{")
    with pytest.raises(SweepError, match="damaged in line 4"):
        sweep(measure, cells({"a": [1, 2]}, 1), out=out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_said_plainly() -> None:
    log = Log.__new__(Log)
    log.names, log.header = None, SweepHeader("measure", ())
    with Lines(Path("/dev/full"), KIND) as log._lines, pytest.raises(SweepError, match="No space left"):
        log.append([{"trial": 0}])


# Rows


def test_a_row_has_parameters_trial_and_results_as_python_s_own_values(tmp_path: Path) -> None:
    results = [
        {"error": value, "kind": "k", "ok": np.bool_(True)} for value in (np.float32(0.5), math.nan, np.int64(3))
    ]
    out = sweep(lambda block: results, cells({"b": [1, 2, 3], "a": ["x"]}, 1), out=tmp_path / "a.jsonl")
    rows = list(read_rows(out))
    assert math.isnan(float(rows.pop(1)["error"]))
    assert rows == [
        {"a": "x", "b": 1, "trial": 0, "error": 0.5, "kind": "k", "ok": True},
        {"a": "x", "b": 3, "trial": 0, "error": 3, "kind": "k", "ok": True},
    ]


def test_numbers_and_text_come_back_as_they_were(tmp_path: Path) -> None:
    grid: dict[str, Sequence[Value]] = {"epsilon": [0.1 + 0.2, math.inf], "text": ['a "b", c\nd', "é"], "flag": [True]}
    out = sweep(measure, cells(grid, 2), out=tmp_path / "a.jsonl")
    assert_complete(out, grid, 2)
