"""However a sweep is cut into blocks, shared out or fails, its table holds every cell exactly once."""

import functools
import itertools
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
from joblib._parallel_backends import ThreadingBackend  # type: ignore[import-untyped]

from ringfence.errors import SweepError
from ringfence.simulation import sweep as module
from ringfence.simulation.cells import Cell, Value, cells
from ringfence.simulation.sweep import sweep
from ringfence.simulation.table import read_rows
from tests.simulation.sweeping import GRID, Recorded, assert_complete, ids, measure, measure_slowly

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
        if done >= 20_000:
            raise KeyboardInterrupt

    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sweep(measure, grid, out=tmp_path / "a.jsonl", block=100, watch=stop)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_500_000  # that many cells in a list would take four times that, a million two hundred times
    assert len(list(read_rows(tmp_path / "a.jsonl"))) == 20_000


def test_cells_need_not_come_from_a_grid_and_one_that_is_given_twice_runs_once(tmp_path: Path) -> None:
    task, seen = Recorded(), []
    both = itertools.chain(cells({"a": [1, 2]}, 2), cells({"a": [2, 3]}, 1))
    sweep(task, both, out=tmp_path / "a.jsonl", block=2, watch=lambda *now: seen.append(now))
    assert len(task.cells) == len(set(task.cells)) == 5
    assert seen[-1] == (6, None)


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
    assert {1, 2, 3} <= {row["a"] for row in read_rows(tmp_path / "a.jsonl")} < set(range(1, 40))


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
        list(read_rows(tmp_path / "a"))


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
