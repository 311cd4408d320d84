"""Run the league, resumably: a file of cells for every method, and from all of them table, figure and page."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ringfence.planning.request import Trust
from ringfence.research.experiments.league import own, page, results, shown
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.methods import METHODS, OURS, OURS_SHUFFLED, Method
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults, Reference
from ringfence.research.experiments.league.tables import league_folder, load_table, table_names
from ringfence.research.experiments.sweeps import SweepPart, Watch, run_parts, sorted_by, write_cells
from ringfence.research.markdown import command
from ringfence.simulation.cells import Cell, Row, cells
from ringfence.simulation.table import read_rows

NAME = "league"
EPSILONS, QUICK_EPSILONS = (0.5, 1.0, 3.0), (1.0,)
TRIALS, QUICK_TRIALS, QUICK_TABLES = 10, 2, 2
GATES, GATES_SHUFFLED, REFERENCE = "gates", "gates-shuffler", "reference"
GATE_EPSILON, SHUFFLED_TRIALS = 1.0, 5
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
    whose library is not installed is left out, and the page says so. Cells of several candidate rules, as files
    `rule-NAME.jsonl` in `out`, are compared leaving one table out.
    """
    folder = league_folder(data_dir)
    names, trials, epsilons = scope(folder, quick)
    shuffled = [name for name in _smallest(folder) if name in names and _suits(folder, METHODS[OURS_SHUFFLED], name)]
    by_table = ("table", "epsilon")
    installed = [name for name, method in METHODS.items() if method.is_installed]
    parts = [
        reference_part(folder, names),
        *(
            SweepPart(
                partial(runs, folder, METHODS[name]),
                _cells(folder, METHODS[name], names, epsilons, trials),
                by_table,
                name,
            )
            for name in installed
        ),
        _gates(folder, names, trials, "nobody", GATES),
        _gates(folder, shuffled[:1], min(trials, SHUFFLED_TRIALS), "shuffler", GATES_SHUFFLED),
    ]
    rows = run_parts(NAME, [part for part in parts if part.cells], out, quick=quick, watch=watch)
    found = _results(
        rows, installed, {path.stem.removeprefix(RULES): path for path in sorted(out.glob(f"{RULES}*.jsonl"))}
    )
    table = [
        {"method": name, **row} for name in (*installed, GATES, GATES_SHUFFLED) for row in in_order(rows.get(name, []))
    ]
    write_cells(table, out / "cells.csv")
    return shown.write(page.parts_of(found, command(NAME, out, quick)), partial(page.draw, found), out)


def _cells(
    folder: Path, method: Method, names: Sequence[str], epsilons: Sequence[float], trials: int
) -> Sequence[Cell]:
    """Return a method's cells; a table that has too few silos for it has none."""
    suited = [name for name in names if _suits(folder, method, name)]
    return list(cells({"table": suited, "epsilon": epsilons}, trials)) if suited else []


def _suits(folder: Path, method: Method, name: str) -> bool:
    return len(list((folder / name).glob("*.csv"))) >= method.fewest_silos


def _gates(folder: Path, names: Sequence[str], trials: int, trust: Trust, part: str) -> SweepPart:
    wanted = list(cells({"table": names, "epsilon": (GATE_EPSILON,)}, trials)) if names else []
    return SweepPart(partial(_through_gates, folder, trust), wanted, ("table", "epsilon", "trial"), part)


def _results(rows: dict[str, list[Row]], installed: Sequence[str], rules: dict[str, Path]) -> LeagueResults:
    references = references_of(rows[REFERENCE])
    points: dict[tuple[str, str, float], LeaguePoint] = {}
    for name in installed:
        points |= results.points_of(rows.get(name, []), name, references)
    agreements = [
        *results.agreements(rows[GATES], rows[OURS], "nobody"),
        *results.agreements(rows.get(GATES_SHUFFLED, []), rows.get(OURS_SHUFFLED, []), "a shuffler"),
    ]
    candidates = {name: list(read_rows(path)) for name, path in rules.items()}
    left_out = results.leave_one_table_out(candidates, references) if candidates else []
    return LeagueResults(references, points, agreements, left_out)


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


def runs(folder: Path, method: Method, block: list[Cell]) -> list[Row]:
    """Run all trials of a method on a table at an ε."""
    table = load_table(folder, str(block[0]["table"]))
    found = method.run(table, float(block[0]["epsilon"]), [cell.trial for cell in block])
    return [{"error": table.error(run.weights), "rounds": run.rounds, "chosen": run.chosen} for run in found]


def _through_gates(folder: Path, trust: Trust, block: list[Cell]) -> list[Row]:
    """Train through real gates, once for each trial."""
    table = load_table(folder, str(block[0]["table"]))
    found = [own.through_gates(table, float(cell["epsilon"]), trust) for cell in block]
    return [{"error": table.error(run.weights), "rounds": run.rounds, "chosen": run.chosen} for run in found]
