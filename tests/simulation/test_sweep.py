"""However a sweep is cut, stopped, shared out or started again, its table holds every cell exactly once."""

import csv
import functools
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib._parallel_backends import ThreadingBackend  # type: ignore[import-untyped]

from ringfence.errors import SweepError
from ringfence.simulation import sweep as module
from ringfence.simulation.cells import Cell, Row, Value, cells
from ringfence.simulation.sweep import sweep
from ringfence.simulation.table import _KIND, Finished, Log, read_rows, read_table, summarise, write_csv
from ringfence.storage.lines import Lines

ROOT = Path(__file__).parents[2]
GRID: dict[str, Sequence[Value]] = {"epsilon": [0.5, 1, math.inf], "loss": ["logistic", "hinge"], "private": [True]}
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())


def measure(block: list[Cell]) -> list[dict[str, Any]]:
    """A task whose results follow from the cell alone."""
    return [{"error": 1 / (1 + int(cell.id, 16)), "name": cell.id} for cell in block]


def measure_slowly(block: list[Cell]) -> list[dict[str, Any]]:
    time.sleep(0.005)
    return measure(block)


class Recorded:
    """A task that remembers its blocks, and can fail on a cell."""

    def __init__(self, failing: Cell | None = None) -> None:
        self.blocks: list[list[Cell]] = []
        self.failing = failing

    def __call__(self, block: list[Cell]) -> list[dict[str, Any]]:
        if self.failing in block:
            raise ZeroDivisionError("no records")
        self.blocks.append(block)
        return measure(block)

    @property
    def cells(self) -> list[Cell]:
        return list(itertools.chain(*self.blocks))


def ids(rows: Sequence[Row]) -> Counter[Value]:
    return Counter(row["name"] for row in rows)


def assert_complete(out: Path, grid: Mapping[str, Sequence[Value]], trials: int) -> None:
    """Every cell has one line, and that line is whole and right."""
    rows = list(read_rows(out))
    assert ids(rows) == Counter(cell.id for cell in cells(grid, trials))
    for row in rows:
        cell = Cell({name: row[name] for name in grid}, int(row["trial"]))
        assert row == {**cell, **measure([cell])[0]}


# What a cell is


@settings(max_examples=40)
@given(st.dictionaries(st.text(), VALUES), st.integers(0, 9), st.randoms())
def test_a_cells_id_does_not_depend_on_the_order_of_its_parameters(
    parameters: dict[str, Value], trial: int, order: random.Random
) -> None:
    parameters.pop("trial", None)
    shuffled = dict(order.sample(list(parameters.items()), len(parameters)))
    assert Cell(parameters, trial) == Cell(shuffled, trial)
    assert Cell(parameters, trial) != Cell(parameters, trial + 1)
    assert dict(Cell(parameters, trial)) == {**parameters, "trial": trial}


@settings(max_examples=40)
@given(st.dictionaries(st.text().filter(lambda name: name != "trial"), VALUES))
def test_a_cell_read_back_from_a_file_is_the_same_cell(parameters: dict[str, Value]) -> None:
    assert Cell(json.loads(json.dumps(parameters)), 0) == Cell(parameters, 0)


def test_equal_numbers_are_one_value_and_everything_else_is_another() -> None:
    assert len({Cell({"a": one}, 0).id for one in (1, 1.0, np.float32(1), np.int64(1))}) == 1
    assert len({Cell({"a": value}, 0) for value in (1, True, "1", 1.5, math.inf, "", 2**53 + 1, 2.0**53)}) == 8


def test_a_cells_id_never_changes() -> None:
    assert Cell({"loss": "logistic", "epsilon": 0.5}, 3).id == "5ad74ea473dd1349456bbe5e6a05e897"


def test_a_cell_is_frozen() -> None:
    cell = Cell({"a": 1}, 0)
    with pytest.raises(AttributeError):
        cell.trial = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        cell["a"] = 2  # type: ignore[index]


def test_a_grid_gives_every_combination_in_every_trial_and_can_be_gone_through_twice() -> None:
    grid = cells(GRID, 2)
    assert len(grid) == 12 == len(set(grid)) == len(set(grid))
    assert [dict(cell) for cell in cells({}, 2)] == [{"trial": 0}, {"trial": 1}]


@pytest.mark.parametrize(
    ("grid", "trials", "sentence"),
    [
        ({"a": []}, 1, "at least one value"),
        ({"loss": "hinge"}, 1, "needs a list"),
        ({"a": [1, 1.0]}, 1, "same value twice"),
        ({"a": [math.nan]}, 1, "cannot be nan"),
        ({"a": [None]}, 1, "cannot be None"),
        ({"a": [np.zeros(2)]}, 1, "give a number"),
        ({"a": [1]}, 0, "at least 1"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(grid: dict[str, Any], trials: int, sentence: str) -> None:
    with pytest.raises(SweepError, match=sentence):
        cells(grid, trials)


def test_no_parameter_is_named_trial() -> None:
    with pytest.raises(SweepError, match="rename it"):
        list(cells({"trial": [1]}, 1))


# Blocks


def test_a_sweep_runs_every_cell_once_and_reports_its_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    task = Recorded()
    out = sweep(task, cells(GRID, 3), out=tmp_path / "new" / "a.jsonl", block=5, watch=lambda *now: seen.append(now))
    assert_complete(out, GRID, 3)
    assert [len(block) for block in task.blocks] == [5, 5, 5, 3]
    assert seen == [(5, 18), (10, 18), (15, 18), (18, 18), (18, 18)]


@pytest.mark.parametrize("group", [("trial", "loss"), lambda cell: (cell.trial, cell["loss"])])
def test_a_block_holds_one_group_and_only_a_groups_last_block_is_short(tmp_path: Path, group: Any) -> None:
    task = Recorded()
    grid: dict[str, Sequence[Value]] = {"step": range(7), "loss": ["logistic", "hinge"]}
    sweep(task, cells(grid, 3), out=tmp_path / "a.jsonl", block=3, group=group)
    groups = [{(cell.trial, cell["loss"]) for cell in block} for block in task.blocks]
    assert all(len(found) == 1 for found in groups)
    sizes = {
        key: sorted(len(b) for b, g in zip(task.blocks, groups, strict=True) if key in g) for g in groups for key in g
    }
    assert sizes == {key: [1, 3, 3] for key in itertools.product(range(3), grid["loss"])}


def test_cells_of_very_many_groups_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_BLOCKS", 5)
    drawn = 0

    def counted() -> Iterator[Cell]:
        nonlocal drawn
        for cell in cells({"step": range(2), "data": range(40)}, 1):
            drawn += 1
            yield cell

    finished = 0

    def task(block: list[Cell]) -> list[dict[str, Any]]:
        nonlocal finished
        assert drawn - finished <= 5 * 2 + 1
        finished += len(block)
        return measure(block)

    out = sweep(task, counted(), out=tmp_path / "a.jsonl", block=2, group=["data"])
    assert len(list(read_rows(out))) == 80


def test_a_million_cells_stream_through_little_memory_and_may_stop_early(tmp_path: Path) -> None:
    grid = cells({"a": range(100), "b": range(100), "c": ["x", "y"]}, 50)
    assert len(grid) == 1_000_000

    def stop(done: int, total: int | None) -> None:
        if done >= 2_000:
            raise KeyboardInterrupt

    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sweep(measure, grid, out=tmp_path / "a.jsonl", block=100, watch=stop)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000  # two thousand cells in a list would take twice that, a million a thousand times
    assert len(list(read_rows(tmp_path / "a.jsonl"))) == 2_000


def test_cells_need_not_come_from_a_grid_and_one_that_is_given_twice_runs_once(tmp_path: Path) -> None:
    task, seen = Recorded(), []
    both = itertools.chain(cells({"a": [1, 2]}, 2), cells({"a": [2, 3]}, 1))
    sweep(task, both, out=tmp_path / "a.jsonl", block=2, watch=lambda *now: seen.append(now))
    assert len(task.cells) == len(set(task.cells)) == 5
    assert seen[-1] == (6, None)


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
        task = Recorded()
        sweep(task, cells(grid, 2), out=out, label="measure", block=3)
        assert_complete(out, grid, 2)
        assert len(task.cells) == 4 - max(whole[:end].count(b"\n") - 1, 0)


def test_a_half_written_row_is_not_read(tmp_path: Path) -> None:
    out = sweep(measure, cells(GRID, 1), out=tmp_path / "a.jsonl")
    out.write_bytes(out.read_bytes()[:-1])
    assert len(list(read_rows(out))) == 5


@contextmanager
def started(out: Path, workers: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A sweep in its own process, which is killed in the end if it still runs; its workers outlive it, as they do."""
    command = [sys.executable, "-m", "tests.simulation.test_sweep", str(out), str(workers)]
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


KILLED: dict[str, Sequence[Value]] = {"a": range(40), "b": ["x", "y"]}


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


def test_a_second_process_on_the_same_file_is_told_so_and_harms_nothing(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    with started(out, 1) as process:
        wait_for_lines(out, 2)
        with pytest.raises(SweepError, match="Another process is writing"):
            sweep(measure_slowly, cells(KILLED, 12), out=out)
        assert process.wait(15) == 0
    assert_complete(out, KILLED, 12)


# Failures


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_names_its_cell_keeps_what_is_finished_and_goes_on_when_mended(
    tmp_path: Path, workers: int
) -> None:
    out = tmp_path / "a.jsonl"
    broken = Recorded(failing=Cell({"epsilon": 1, "loss": "hinge", "private": True}, 0))
    with pytest.raises(SweepError, match="ZeroDivisionError: no records") as caught:
        sweep(broken, cells(GRID, 9), out=out, label="one", block=1, workers=workers)
    assert "epsilon=1, loss='hinge', private=True, trial=0" in str(caught.value)
    assert "in __call__" in caught.value.__notes__[0]  # where it happened, also in a worker
    finished = ids(list(read_rows(out)))
    assert len(finished) == 3 if workers == 1 else len(finished) >= 3
    mended = Recorded()
    sweep(mended, cells(GRID, 9), out=out, label="one")
    assert Counter(cell.id for cell in mended.cells) + finished == Counter(cell.id for cell in cells(GRID, 9))
    assert_complete(out, GRID, 9)


def test_blocks_under_way_beside_a_failing_one_are_kept(tmp_path: Path) -> None:
    def task(block: list[Cell]) -> list[dict[str, Any]]:
        if block[0]["a"] == 0:
            raise ZeroDivisionError
        time.sleep(0.1)
        return measure(block)

    with joblib.parallel_config(backend="threading"), pytest.raises(SweepError, match="a=0, trial=0"):
        sweep(task, cells({"a": range(50)}, 1), out=tmp_path / "a.jsonl", block=1, workers=2)
    assert {1, 2, 3} <= set(read_table(tmp_path / "a.jsonl")["a"]) < set(range(1, 40))


def test_a_failing_block_is_described_by_what_its_cells_share() -> None:
    block = list(cells({"a": range(9), "b": ["x"]}, 1))
    failure = module._run(Recorded(failing=block[3]), block)
    assert "a in [0, 1, 2, 3, 4, …], b='x', trial=0" in str(failure)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ([], "0 rows for 6 cells"),
        ([{"error": 1}] * 5 + [{"loss_": 1}], "different names"),
        ([{"loss": 1}] * 6, "'loss' is named like a parameter"),
        ([{"error": np.zeros(2)}] * 6, "ValueError"),
        ([{"error": None}] * 6, "None is not a number"),
    ],
)
def test_a_task_that_returns_no_table_is_refused_and_nothing_is_written(
    tmp_path: Path, result: list[dict[str, Any]], sentence: str
) -> None:
    with pytest.raises(SweepError, match=sentence):
        sweep(lambda block: result, cells(GRID, 1), out=tmp_path / "a.jsonl")
    assert list(read_rows(tmp_path / "a.jsonl")) == []


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


def test_what_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="at least 1"):
        sweep(measure, cells(GRID, 1), out=tmp_path / "a", block=0)
    with pytest.raises(SweepError, match="no cells"):
        sweep(measure, [], out=tmp_path / "a")
    with pytest.raises(SweepError, match="no parameter 'data' to group by"):
        sweep(measure, cells(GRID, 1), out=tmp_path / "a", group="data")
    with pytest.raises(SweepError, match="cannot be opened"):
        sweep(measure, cells(GRID, 1), out=tmp_path)
    with pytest.raises(SweepError, match="cannot be read"):
        read_table(tmp_path / "a")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_is_said_plainly() -> None:
    log = Log.__new__(Log)
    log.names = None
    with Lines(Path("/dev/full"), _KIND) as log._lines, pytest.raises(SweepError, match="No space left"):
        log.append(Finished(frozenset(), b"row\n", 1))


# Workers


@pytest.mark.parametrize("backend", ["loky", "threading", "returns lists"])
def test_workers_of_any_kind_write_the_same_table_as_this_process(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "returns lists":  # as Ray's does
        monkeypatch.setattr(ThreadingBackend, "supports_return_generator", False)
        backend = "threading"
    alone = sweep(measure, cells(GRID, 5), out=tmp_path / "alone.jsonl", block=2, group=["trial"])
    with joblib.parallel_config(backend=backend, n_jobs=2):
        shared = sweep(measure, cells(GRID, 5), out=tmp_path / "shared.jsonl", block=2, group=["trial"])
    assert sorted(alone.read_bytes().splitlines()) == sorted(shared.read_bytes().splitlines())


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_are_made_only_as_results_are_written_even_if_that_is_slow(tmp_path: Path, workers: int) -> None:
    drawn = 0

    def counted() -> Iterator[Cell]:
        nonlocal drawn
        for cell in cells({"a": range(150)}, 1):
            drawn += 1
            yield cell

    def write_slowly(done: int, total: int | None) -> None:
        assert drawn - done <= 8 * workers
        time.sleep(0.002)

    with joblib.parallel_config(backend="threading"):
        sweep(measure, counted(), out=tmp_path / "a.jsonl", block=1, workers=workers, watch=write_slowly)
    assert_complete(tmp_path / "a.jsonl", {"a": range(150)}, 1)


def test_an_error_in_the_caller_or_in_its_cells_ends_the_workers_quietly(tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise KeyError("caller")

    def broken() -> Iterator[Cell]:
        yield from itertools.islice(cells({"a": range(300)}, 1), 50)
        raise KeyError("cells")

    with joblib.parallel_config(backend="threading"):
        with pytest.raises(KeyError, match="caller"):
            sweep(measure_slowly, cells({"a": range(300)}, 1), out=tmp_path / "a", block=1, workers=2, watch=fail)
        with pytest.raises(KeyError, match="cells"):
            sweep(measure_slowly, broken(), out=tmp_path / "a", block=1, workers=2)
    sweep(measure_slowly, cells({"a": range(60)}, 1), out=tmp_path / "a", block=9)
    assert_complete(tmp_path / "a", {"a": range(60)}, 1)


def test_the_default_label_is_the_tasks_own_name(tmp_path: Path) -> None:
    def scaled(block: list[Cell], factor: float) -> list[dict[str, float]]:
        return [{"error": factor} for _ in block]

    out = sweep(functools.partial(scaled, factor=2.0), cells(GRID, 1), out=tmp_path / "a.jsonl")
    assert json.loads(out.read_text().splitlines()[0])["label"].endswith("scaled")


# Tables


def test_a_table_has_parameters_trial_and_results_as_columns_of_equal_length(tmp_path: Path) -> None:
    results = [
        {"error": value, "kind": "k", "ok": np.bool_(True)} for value in (np.float32(0.5), math.nan, np.int64(3))
    ]
    out = sweep(lambda block: results, cells({"b": [1, 2, 3], "a": ["x"]}, 1), out=tmp_path / "a.jsonl")
    table = read_table(out)
    assert math.isnan(float(table["error"].pop(1)))
    assert table == {
        "a": ["x"] * 3,
        "b": [1, 2, 3],
        "trial": [0] * 3,
        "error": [0.5, 3],
        "kind": ["k"] * 3,
        "ok": [True] * 3,
    }


def test_a_csv_file_holds_the_same_values(tmp_path: Path) -> None:
    grid: dict[str, Sequence[Value]] = {"epsilon": [0.1 + 0.2, math.inf], "text": ['a "b", c\nd', "é"], "flag": [True]}
    out = sweep(measure, cells(grid, 2), out=tmp_path / "a.jsonl")
    with write_csv(out, tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        back = list(csv.DictReader(file))
    assert [
        {
            "epsilon": float(row["epsilon"]),
            "text": row["text"],
            "flag": row["flag"] == "True",
            "trial": int(row["trial"]),
            "error": float(row["error"]),
            "name": row["name"],
        }
        for row in back
    ] == list(read_rows(out))


def test_a_sweep_that_finished_nothing_has_an_empty_table(tmp_path: Path) -> None:
    with pytest.raises(SweepError):
        sweep(lambda block: [], cells({"a": [1]}, 1), out=tmp_path / "a.jsonl")
    assert read_table(tmp_path / "a.jsonl") == {"a": [], "trial": []}
    assert write_csv(tmp_path / "a.jsonl", tmp_path / "a.csv").read_text() == "a,trial\n"


def test_a_summary_has_mean_percentiles_and_count_per_group_in_order() -> None:
    rows: list[Row] = [
        {"loss": loss, "epsilon": epsilon, "trial": trial, "error": trial * epsilon}
        for loss, epsilon, trial in itertools.product(["logistic", "hinge"], [2.0, 1], range(21))
    ]
    summary = summarise(iter(rows), by=["epsilon", "loss"], value="error")
    assert [(group["epsilon"], group["loss"]) for group in summary] == [
        (1, "hinge"),
        (1, "logistic"),
        (2.0, "hinge"),
        (2.0, "logistic"),
    ]
    expected = {"mean": 20.0, "percentile_5": 2.0, "percentile_95": 38.0, "count": 21}
    assert summary[3] == {"epsilon": 2.0, "loss": "logistic", **expected}
    assert summarise(rows, by=[], value="trial")[0]["count"] == 84
    assert summarise([], by=["a"], value="b") == []


def test_a_summary_shows_a_diverged_run_and_refuses_what_has_no_mean() -> None:
    rows: list[Row] = [{"a": 1, "text": "x", "error": error} for error in (0.5, math.inf, math.inf)]
    (group,) = summarise(rows, by=["a"], value="error")
    assert group["mean"] == math.inf
    with pytest.raises(SweepError, match="holds text"):
        summarise(rows, by=["a"], value="text")
    with pytest.raises(SweepError, match="no column 'b'"):
        summarise(rows, by=["b"], value="error")


if __name__ == "__main__":  # the process that the tests kill
    sweep(measure_slowly, cells(KILLED, 12), out=Path(sys.argv[1]), block=7, workers=int(sys.argv[2]))
