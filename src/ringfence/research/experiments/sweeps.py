"""What all experiments do with cells: run what is missing, average, and write every one down."""

import csv
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ringfence.errors import SweepError
from ringfence.simulation.cells import TRIAL, Cell, Row, Value, quoted
from ringfence.simulation.sweep import SweepTask, sweep
from ringfence.simulation.table import KIND, Log, SweepHeader, read_rows
from ringfence.storage.lines import Lines

Watch = Callable[[int, int], None]
"""Called with the number of cells done, and of all."""


@dataclass(frozen=True)
class SweepPart:
    """One sweep of an experiment; where there is but one, it needs no name."""

    task: SweepTask
    cells: Sequence[Cell]
    group: tuple[str, ...]
    name: str = ""

    def file(self, out: Path, quick: bool) -> Path:
        """Return the file of a part's cells; a rehearsal's are kept apart."""
        return out / ("-".join(filter(None, ("cells", "quick" if quick else "", self.name))) + ".jsonl")

    def label(self, experiment: str, quick: bool) -> str:
        """Return what a part's file is labelled by."""
        return f"{' '.join(filter(None, (experiment, self.name)))}, {'quick' if quick else 'full'}"


def run_parts(
    experiment: str, parts: Sequence[SweepPart], out: Path, *, quick: bool, watch: Watch
) -> dict[str, list[Row]]:
    """Run the cells that `out` does not hold yet, and return all rows, by the part's name.

    Cells are kept in one file per part, so that a stopped run resumes; a rehearsal's are kept apart.
    """
    out.mkdir(parents=True, exist_ok=True)
    total, before = sum(len(part.cells) for part in parts), 0
    rows: dict[str, list[Row]] = {}
    for part in parts:
        # NumPy's products are small: threads would wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            path = sweep(
                part.task,
                part.cells,
                out=part.file(out, quick),
                label=part.label(experiment, quick),
                group=part.group,
                workers=1,
                watch=partial(_watch, watch, before, total),
            )
        rows[part.name] = list(read_rows(path))
        before += len(part.cells)
    return rows


def restore_parts(experiment: str, parts: Sequence[SweepPart], out: Path) -> None:
    """Write the files of a full run's cells again from its cells.csv, where a folder has that and no file of cells.

    A clone has the table alone. The column `method` names the part.
    """
    if any(out.glob("cells*.jsonl")) or not (out / "cells.csv").is_file():
        return
    with (out / "cells.csv").open(newline="", encoding="utf-8") as file:
        table = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    for part in parts:
        rows = [
            {name: value for name, value in row.items() if name != "method"}
            for row in table
            if row["method"] == part.name
        ]
        if rows:
            header = SweepHeader(part.label(experiment, False), tuple(sorted(part.cells[0].keys() - {TRIAL})))
            with Lines(part.file(out, False), KIND) as lines:
                Log(lines, header).append(rows)


def _value(text: str) -> Value:
    """Return the number that a table's text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _watch(watch: Watch, before: int, total: int, done: int, _: int | None) -> None:
    watch(before + done, total)


def by_point(rows: Sequence[Row], problems: Sequence[str], methods: Sequence[str]) -> Iterator[list[Row]]:
    """Yield the rows of each problem, method and ε: sorted as the grid is, and all data sets and seeds together."""

    def key(row: Row) -> tuple[int, int, float]:
        return problems.index(str(row["problem"])), methods.index(str(row["method"])), float(row["epsilon"])

    # Sorted to the last column, since a sum's last digit depends on the order.
    ordered = sorted(rows, key=lambda row: (key(row), int(row["trial"]), int(row["seed"])))
    return (list(group) for _, group in groupby(ordered, key=key))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return a mean and its standard error, 0 where there is a single value."""
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def summarise(rows: Iterable[Mapping[str, Value]], *, by: Sequence[str], value: str) -> list[Row]:
    """Return, for each combination of the `by` columns, the mean of `value`, its 90% interval, and the count.

    The interval is from percentile_5 to percentile_95 of the rows themselves (linear between neighbours): how
    much trials differ, not how well their mean is known. Groups are sorted by `by`, numbers before strings. A
    value that is NaN or infinite makes its group's mean so, and may make a percentile NaN.
    """
    groups: dict[tuple[Value, ...], array[float]] = {}
    for row in rows:
        if missing := {*by, value} - row.keys():
            raise SweepError(f"The sweep has no column {quoted(missing)}. Choose among {quoted(row)}.")
        if isinstance(number := row[value], str):
            raise SweepError(f"The column '{value}' holds text, which has no mean. Choose a numeric column.")
        groups.setdefault(tuple(row[name] for name in by), array("d")).append(number)
    keys = sorted(groups, key=lambda key: [(isinstance(part, str), part) for part in key])
    return [dict(zip(by, key, strict=True)) | _statistics(groups[key]) for key in keys]


def _statistics(values: "array[float]") -> Row:
    with np.errstate(invalid="ignore"):  # between two infinities lies NaN, as documented
        low, high = np.percentile(values, [5, 95])
        mean = np.mean(values)
    return {"mean": float(mean), "percentile_5": float(low), "percentile_95": float(high), "count": len(values)}


def sorted_by(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Sort rows by the text of these columns: a sweep's rows stand in the order in which its workers finished."""
    return sorted(rows, key=lambda row: [str(row[name]) for name in names])


def write_cells(rows: Sequence[Mapping[str, Any]], path: Path, columns: Sequence[str] | None = None) -> Path:
    """Write a table at full precision; what a row does not have stays empty. Columns are as they first appear."""
    columns = columns or list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
