"""`ringfence reproduce algorithms`: what the algorithms do with the parameters of theory, measured and on one page.

Four parts: excess risks on synthetic problems beside their certificates, rounds on ill-conditioned quadratics, rounds
on MNIST, and what tuning gains over the planner on the experiments of the paper. Cells are kept in one file per part,
so that a stopped run resumes; a violated certificate is an error, and no page is written.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.experiments import algorithm_figures, algorithm_page, communication, conditioning, excess, synthetic
from ringfence.experiments.algorithm_page import Results, Tuning
from ringfence.experiments.methods import lower_bound
from ringfence.simulation.cells import Cell, Row
from ringfence.simulation.sweep import Task, sweep
from ringfence.simulation.table import read_rows

NAME = "algorithms"
BLOCK = 64


def reproduce(
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet, check all certificates, and write figures, cells.csv and index.md.

    The last part reads cells.csv of the folders `mnist` and `insurance` beside `out`, where they are there. `quick`
    rehearses everything on tiny problems. Raises CertificateError, before anything is written, for a violation.
    """
    out.mkdir(parents=True, exist_ok=True)
    size = synthetic.QUICK if quick else synthetic.FULL
    parts: list[tuple[str, Task, list[Cell], tuple[str, ...]]] = [
        (
            "synthetic",
            partial(excess.task, size),
            list(excess.wanted(quick)),
            ("problem", "method", "epsilon", "trial"),
        ),
        ("conditioning", conditioning.task, list(conditioning.wanted(quick)), ("family", "ratio", "algorithm")),
        ("mnist", partial(communication.task, data_dir), list(communication.wanted(quick)), ("rounds", "trial")),
    ]
    total, before = sum(len(cells) for _, _, cells, _ in parts), 0
    rows: dict[str, list[Row]] = {}
    for part, task, cells, group in parts:
        path = sweep(
            task,
            cells,
            out=out / f"cells-{'quick-' if quick else ''}{part}.jsonl",
            label=f"{NAME} {part}, {'quick' if quick else 'full'}",
            block=BLOCK,
            group=group,
            workers=1,
            watch=partial(_watch, watch, before, total),
        )
        rows[part] = list(read_rows(path))
        before += len(cells)
    return write(rows, out, size=size, quick=quick)


def write(rows: Mapping[str, Sequence[Row]], out: Path, *, size: synthetic.Size, quick: bool) -> Path:
    """Check the rows of the three sweeps, and write what they show into `out`; return the page."""
    excess.require_certified(rows["synthetic"])
    excess.require_bounded(rows["conditioning"])
    points = excess.summary(rows["synthetic"])
    results = Results(
        size=size,
        points=points,
        bounds={epsilon: lower_bound(size, epsilon) for epsilon in sorted({point.epsilon for point in points})},
        floors=conditioning.floors(rows["conditioning"]),
        mnist=_errors(rows["mnist"]),
        tuning={name: _tuning(out.parent / name / "cells.csv", panel) for name, panel in algorithm_page.TUNED.items()},
        datasets=len({row["trial"] for row in rows["synthetic"]}),
        seeds=len({row["seed"] for row in rows["synthetic"]}),
        trials=len({row["trial"] for row in rows["mnist"]}),
    )
    with algorithm_figures.style():
        algorithm_figures.excess_risk(points, results.bounds, out / algorithm_page.FIGURES[0])
        algorithm_figures.conditioning_rounds(results.floors, out / algorithm_page.FIGURES[1])
        algorithm_figures.mnist_rounds(results.mnist, out / algorithm_page.FIGURES[2])
    _write_cells(rows, out / "cells.csv")
    page = out / "index.md"
    command = f"ringfence reproduce {NAME} --out {out.name}" + (" --quick" if quick else "")
    page.write_text(algorithm_page.text(results, command), encoding="utf-8")
    return page


def _watch(watch: Callable[[int, int], None], before: int, total: int, done: int, _: int | None) -> None:
    watch(before + done, total)


def _errors(rows: Sequence[Row]) -> dict[tuple[str, int], tuple[float, float]]:
    """Return mean and standard error of the test error, by algorithm and rounds."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["trial"])):
        groups.setdefault((str(row["algorithm"]), int(row["rounds"])), []).append(float(row["error"]))
    return {
        key: (float(np.mean(own)), float(np.std(own, ddof=1) / math.sqrt(len(own))) if len(own) > 1 else 0.0)
        for key, own in groups.items()
    }


def _tuning(path: Path, panel: str) -> Sequence[Tuning]:
    """Read the mean errors of the planner's and of the tuned curve from another experiment's cells; none if absent."""
    if not path.is_file():
        return []
    found: dict[tuple[float, str], list[float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["panel"] == panel and row["curve"] in ("untuned", "ringfence"):
                found.setdefault((float(row["epsilon"]), row["curve"]), []).append(float(row["error"]))
    return [
        Tuning(epsilon, float(np.mean(found[epsilon, "untuned"])), float(np.mean(found[epsilon, "ringfence"])))
        for epsilon in sorted({epsilon for epsilon, _ in found})
        if (epsilon, "untuned") in found and (epsilon, "ringfence") in found
    ]


def _write_cells(rows: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write all parts into one table, sorted, at full precision; what a part does not have stays empty."""
    ordered: list[dict[str, Any]] = []
    for part, own in rows.items():
        names = [name for name in own[0] if name not in ("excess", "population", "error")]
        ordered += [{"part": part, **row} for row in sorted(own, key=lambda row: [str(row[name]) for name in names])]
    columns = list(dict.fromkeys(name for row in ordered for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
