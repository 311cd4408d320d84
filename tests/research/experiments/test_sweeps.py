"""What experiments make of a sweep's rows."""

import itertools
import math
from pathlib import Path

import pytest

from ringfence.errors import SweepError
from ringfence.research.experiments.sweeps import SweepPart, restore_parts, run_parts, summarise, write_cells
from ringfence.simulation.cells import Cell, Row, cells


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


def test_a_table_of_cells_stands_in_for_their_files_and_rows_that_were_removed_run_again(tmp_path: Path) -> None:
    ran: list[tuple[object, int]] = []

    def task(block: list[Cell]) -> list[Row]:
        ran.extend((cell["epsilon"], cell.trial) for cell in block)
        return [{"error": float(cell["epsilon"]) / 3 + cell.trial, "chosen": "step 1"} for cell in block]

    part = SweepPart(task, list(cells({"table": ["a"], "epsilon": (0.5, math.inf)}, 2)), ("table",), "ours")

    def rows(out: Path) -> list[Row]:
        restore_parts("race", [part], out)
        found = run_parts("race", [part], out, quick=False, watch=lambda done, total: None)["ours"]
        return sorted(found, key=lambda row: (float(row["epsilon"]), int(row["trial"])))

    first, clone = rows(tmp_path / "first"), tmp_path / "clone"
    clone.mkdir()
    assert len(ran) == len(first) == 4
    table = [{"method": "ours", **row} for row in first]
    write_cells(table[:1] + table[2:], clone / "cells.csv")
    assert rows(clone) == first, "to the last digit"
    assert ran[4:] == [(0.5, 1)]
    write_cells(table[:1], clone / "cells.csv")
    assert rows(clone) == first, "a folder with files of cells goes by these"
    assert len(ran) == 5
