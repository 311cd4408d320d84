"""Race the relatives, resumably: a file of cells for every method, and from all of them table, figure and page."""

from functools import partial
from pathlib import Path

from ringfence.research.experiments.league import reproduce as league
from ringfence.research.experiments.league import shown
from ringfence.research.experiments.league.results import LeaguePoint, LeagueResults, points_of
from ringfence.research.experiments.league.tables import league_folder
from ringfence.research.experiments.relatives import page
from ringfence.research.experiments.relatives.methods import RELATIVES
from ringfence.research.experiments.sweeps import SweepPart, Watch, run_parts, write_cells
from ringfence.research.markdown import command
from ringfence.simulation.cells import cells

NAME = "relatives"


def reproduce(
    out: Path,
    *,
    data_dir: Path | None = None,
    quick: bool = False,
    watch: Watch = lambda done, total: None,
) -> Path:
    """Run all cells that `out` does not hold yet, and write the figure, cells.csv and index.md beside them.

    Tables, trials and epsilons are the league's; `quick` runs two trials at one epsilon of the two smallest tables.
    """
    folder = league_folder(data_dir)
    names, trials, epsilons = league.scope(folder, quick)
    wanted = list(cells({"table": names, "epsilon": epsilons}, trials))
    parts = [
        league.reference_part(folder, names),
        *(
            SweepPart(partial(league.runs, folder, method), wanted, ("table", "epsilon"), name)
            for name, method in RELATIVES.items()
        ),
    ]
    rows = run_parts(NAME, parts, out, quick=quick, watch=watch)
    references = league.references_of(rows[league.REFERENCE])
    points: dict[tuple[str, str, float], LeaguePoint] = {}
    for name in RELATIVES:
        points |= points_of(rows[name], name, references)
    table = [{"method": name, **row} for name in RELATIVES for row in league.in_order(rows[name])]
    write_cells(table, out / "cells.csv")
    found = LeagueResults(references, points)
    return shown.write(page.parts_of(found, command(NAME, out, quick)), partial(page.draw, found), out)
