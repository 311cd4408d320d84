"""Run the league, resumably: a file of cells for every method, and from all of them table, figure and page."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ringfence.planning.request import Trust
from ringfence.research.experiments.league import own, page, results, shown
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.methods import (
    FLOORS,
    METHODS,
    OURS,
    OURS_SHUFFLED,
    STRESSED,
    WIDE,
    Method,
)
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults, Reference
from ringfence.research.experiments.league.tables import league_folder, load_table, table_names, table_schema
from ringfence.research.experiments.sweeps import (
    SweepPart,
    Watch,
    restore_parts,
    run_parts,
    sorted_by,
    write_cells,
)
from ringfence.research.markdown import command
from ringfence.simulation.cells import Cell, Row, cells
from ringfence.simulation.sweep import SweepTask
from ringfence.simulation.table import read_rows

NAME = "league"
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 3.0), (1.0,)
TRIALS, QUICK_TRIALS, QUICK_TABLES = 10, 2, 2
GATES, GATES_SHUFFLED, REFERENCE = "gates", "gates-shuffler", "reference"
GATE_EPSILON, WIDE_EPSILON, SHUFFLED_TRIALS = 1.0, 1.0, 5
RULES = "rule-"
"""How the files of candidate rules begin: `rule-NAME.jsonl`, with the same columns as the cells of a method."""


def reproduce(
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Watch = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet, and write the figure, cells.csv and index.md beside them.

    Every table of the league takes part. `quick` runs two trials at one epsilon of the two smallest tables. A method
    whose library is not installed is left out, and the page says so. A folder that has cells.csv alone, as a clone
    does, holds those cells: to run some again, remove their rows. Cells of several candidate rules, as files
    `rule-NAME.jsonl` in `out`, are compared leaving one table out.
    """
    folder = league_folder(data_dir)
    offered = _parts(folder, quick)
    if not quick:
        restore_parts(NAME, [part for _, part in offered], out)
    parts = [
        part
        for method, part in offered
        if method is None or method.is_installed or part.file(out, quick).is_file()  # it may have all cells
    ]
    rows = run_parts(NAME, parts, out, quick=quick, watch=watch)
    named = [part.name for part in parts if part.name != REFERENCE]
    table = [{"method": name, **row} for name in named for row in in_order(rows[name])]
    write_cells(table, out / "cells.csv")
    found = _results(rows, {path.stem.removeprefix(RULES): path for path in sorted(out.glob(f"{RULES}*.jsonl"))})
    return shown.write(page.parts_of(found, command(NAME, out, quick)), partial(page.draw, found), out)


def _parts(folder: Path, quick: bool) -> list[tuple[Method | None, SweepPart]]:
    """Return the sweeps of the league, those of a method with it."""
    names, trials, epsilons = scope(folder, quick)
    shuffled = [name for name in _smallest(folder) if name in names and _suits(folder, METHODS[OURS_SHUFFLED], name)]

    def part(
        method: Method, name: str, epsilons: Sequence[float], trials: int, wide: bool = False
    ) -> tuple[Method, SweepPart]:
        suited = [name for name in names if _suits(folder, method, name)]
        wanted = list(cells({"table": suited, "epsilon": epsilons}, trials)) if suited else []
        task = partial(_dated, partial(runs, folder, method, wide=wide))
        return method, SweepPart(task, wanted, ("table", "epsilon"), name)

    parts = [
        (None, reference_part(folder, names)),
        *(part(method, name, epsilons, trials) for name, method in METHODS.items()),
        *(part(method, name, (math.inf,), 1) for name, method in FLOORS.items()),
        *(part(METHODS[name], WIDE + name, (WIDE_EPSILON,), trials, True) for name in STRESSED),
        (None, _gates(folder, names, trials, "nobody", GATES)),
        (None, _gates(folder, shuffled[:1], min(trials, SHUFFLED_TRIALS), "shuffler", GATES_SHUFFLED)),
    ]
    return [(method, part) for method, part in parts if part.cells]


def _dated(task: SweepTask, block: list[Cell]) -> list[Row]:
    """Run a block, and add the day on which it ran to its rows."""
    today = datetime.now(UTC).date().isoformat()
    return [{**row, "day": today} for row in task(block)]


def _suits(folder: Path, method: Method, name: str) -> bool:
    return method.suits(table_schema(folder, name), len(list((folder / name).glob("*.csv"))))


def _gates(folder: Path, names: Sequence[str], trials: int, trust: Trust, part: str) -> SweepPart:
    wanted = list(cells({"table": names, "epsilon": (GATE_EPSILON,)}, trials)) if names else []
    return SweepPart(
        partial(_dated, partial(_through_gates, folder, trust)), wanted, ("table", "epsilon", "trial"), part
    )


def _results(rows: Mapping[str, list[Row]], rules: Mapping[str, Path]) -> LeagueResults:
    references = references_of(rows[REFERENCE])

    def points(prefix: str) -> dict[tuple[str, str, float], LeaguePoint]:
        found: dict[tuple[str, str, float], LeaguePoint] = {}
        for name in METHODS:
            found |= results.points_of(rows.get(prefix + name, []), name, references)
        return found

    candidates = {name: list(read_rows(path)) for name, path in rules.items()}
    return LeagueResults(
        references,
        points(""),
        [
            *results.agreements(rows[GATES], rows[OURS], "nobody"),
            *results.agreements(rows.get(GATES_SHUFFLED, []), rows.get(OURS_SHUFFLED, []), "a shuffler"),
        ],
        results.leave_one_table_out(candidates, references) if candidates else [],
        {(name, str(row["table"])): float(row["error"]) for name in FLOORS for row in rows[name]},
        points(WIDE),
        {
            name: sorted({str(row["day"]) for row in own if "day" in row})
            for name, own in rows.items()
            if name != REFERENCE
        },
    )


def scope(folder: Path, quick: bool) -> tuple[list[str], int, tuple[float, ...]]:
    """Return the tables, the trials and the epsilons of a run; a rehearsal has few of all."""
    if quick:
        return _smallest(folder)[:QUICK_TABLES], QUICK_TRIALS, QUICK_EPSILONS
    return table_names(folder), TRIALS, EPSILONS


def reference_part(folder: Path, names: Sequence[str]) -> SweepPart:
    """Return the sweep that measures guessing and the models without privacy."""
    return SweepPart(partial(_reference, folder), list(cells({"table": names}, 1)), ("table",), REFERENCE)


def references_of(rows: Sequence[Row]) -> list[Reference]:
    """Return what that sweep found."""
    return [
        Reference(**{name: value for name, value in row.items() if name != "trial"})  # type: ignore[arg-type]
        for row in sorted_by(rows, ("table",))
    ]


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Sort rows by table, ε and trial."""
    return sorted(rows, key=lambda row: (str(row["table"]), float(row["epsilon"]), int(row["trial"])))


def _smallest(folder: Path) -> list[str]:
    """Return the tables' names, those with the least to read first."""

    def size(name: str) -> int:
        return sum(path.stat().st_size for path in (folder / name).glob("*.csv"))

    return sorted(table_names(folder), key=size)


def _reference(folder: Path, block: list[Cell]) -> list[Row]:
    """Measure guessing and the model without privacy."""
    table = load_table(folder, str(block[0]["table"]))
    return [
        {
            "target": str(table.schema.target),
            "records": len(table.pooled[1]),
            "silos": len(table.silos),
            "weights": table.shape[0] * table.shape[1],
            "guessing": table.guessing,
            "not_private": table.error(not_private(table.loss, *table.pooled)),
        }
        for _ in block
    ]


def runs(folder: Path, method: Method, block: list[Cell], *, wide: bool = False) -> list[Row]:
    """Run all trials of a method on a table at an ε, by its schema or with bounds that are too wide."""
    table = load_table(folder, str(block[0]["table"]), wide=wide)
    found = method.run(table, float(block[0]["epsilon"]), [cell.trial for cell in block])
    return [{"error": run.error(table), "rounds": run.rounds, "chosen": run.chosen} for run in found]


def _through_gates(folder: Path, trust: Trust, block: list[Cell]) -> list[Row]:
    """Train through real gates, once for each trial."""
    table = load_table(folder, str(block[0]["table"]))
    found = [own.through_gates(table, float(cell["epsilon"]), trust) for cell in block]
    return [{"error": run.error(table), "rounds": run.rounds, "chosen": run.chosen} for run in found]
