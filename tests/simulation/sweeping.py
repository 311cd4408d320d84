"""What tests of sweeps share: a grid, tasks that say what they ran, and a sweep in a process of its own."""

import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.simulation.cells import Cell, Row, Value, cells
from ringfence.simulation.sweep import sweep
from ringfence.simulation.table import read_rows

GRID: dict[str, Sequence[Value]] = {"epsilon": [0.5, 1, math.inf], "loss": ["logistic", "hinge"], "private": [True]}
KILLED: dict[str, Sequence[Value]] = {"a": range(40), "b": ["x", "y"]}


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


if __name__ == "__main__":  # the process that the tests kill
    sweep(measure_slowly, cells(KILLED, 12), out=Path(sys.argv[1]), block=7, workers=int(sys.argv[2]))
