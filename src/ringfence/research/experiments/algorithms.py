"""`ringfence reproduce algorithms`: what the algorithms do with the parameters of theory, measured and on one page.

Four parts: excess risks on synthetic problems beside their bounds, rounds on ill-conditioned quadratics, rounds
on MNIST, and what tuning gains over the planner on the experiments of the paper. Cells are kept in one file per part,
so that a stopped run resumes; a violated bound is an error, and no page is written.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ringfence.research.drawing import style
from ringfence.research.experiments import (
    algorithm_figures,
    algorithm_page,
    communication,
    conditioning,
    excess,
    synthetic,
)
from ringfence.research.experiments.algorithm_page import AlgorithmResults, Tuning
from ringfence.research.experiments.methods import lower_bound
from ringfence.research.experiments.sweeps import SweepPart, Watch, mean_and_error, run_parts, sorted_by, write_cells
from ringfence.research.markdown import command, write_parts
from ringfence.simulation.cells import Row

NAME = "algorithms"


def reproduce(
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Watch = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet, check all bounds, and write figures, cells.csv and index.md.

    The last part reads cells.csv of the folders `mnist` and `insurance` beside `out`, where they are there. `quick`
    rehearses everything on tiny problems. Raises BoundViolatedError, before anything is written, for a violation.
    """
    size = synthetic.QUICK if quick else synthetic.FULL
    parts = [
        SweepPart(
            partial(excess.task, size),
            list(excess.wanted(quick)),
            ("problem", "method", "epsilon", "trial"),
            "synthetic",
        ),
        SweepPart(
            conditioning.task, list(conditioning.wanted(quick)), ("family", "ratio", "algorithm"), "conditioning"
        ),
        SweepPart(
            partial(communication.task, data_dir), list(communication.wanted(quick)), ("rounds", "trial"), "mnist"
        ),
    ]
    rows = run_parts(NAME, parts, out, quick=quick, watch=watch)
    return write(rows, out, size=size, quick=quick)


def write(rows: Mapping[str, Sequence[Row]], out: Path, *, size: synthetic.Size, quick: bool) -> Path:
    """Check the rows of the three sweeps, and write what they show into `out`; return the page."""
    excess.require_means_bounded(rows["synthetic"])
    excess.require_bounded(rows["conditioning"])
    points = excess.summary(rows["synthetic"])
    results = AlgorithmResults(
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
    with style():
        algorithm_figures.excess_risk(points, results.bounds, out / algorithm_page.FIGURES[0])
        algorithm_figures.conditioning_rounds(results.floors, out / algorithm_page.FIGURES[1])
        algorithm_figures.mnist_rounds(results.mnist, out / algorithm_page.FIGURES[2])
    write_cells([{"part": part, **row} for part, own in rows.items() for row in _ordered(own)], out / "cells.csv")
    return write_parts(out / "index.md", algorithm_page.parts_of(results, command(NAME, out, quick)))


def _errors(rows: Sequence[Row]) -> dict[tuple[str, int], tuple[float, float]]:
    """Return mean and standard error of the test error, by algorithm and rounds."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["trial"])):
        groups.setdefault((str(row["algorithm"]), int(row["rounds"])), []).append(float(row["error"]))
    return {key: mean_and_error(own) for key, own in groups.items()}


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Sort a part's rows by all that is not measured."""
    return sorted_by(rows, [name for name in rows[0] if name not in ("excess", "population", "error")])


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
