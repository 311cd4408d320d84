"""The quote of a plan beside what becomes of it: does a model that is expected to beat guessing do so?

Every table is trained whole and in four small silos, at several epsilons. The constants of simulated populations
(`ringfence.rehearsal.population`) were chosen on the league's tables, one of them on insurance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, parse_schema
from ringfence.protocol.schema.encoding import features_of, read_cells, target_of
from ringfence.rehearsal.quote import Quote, rehearse
from ringfence.research import datasets
from ringfence.research.datasets import Encoded
from ringfence.research.experiments import insurance, obesity, personal
from ringfence.research.experiments.league.tables import LeagueTable, league_folder, load_table, table_names
from ringfence.research.markdown import table
from ringfence.silo.records.records import Records
from ringfence.simulation.trials import simulated_weights

EPSILONS = (0.25, 0.5, 1.0, 3.0)
SIZES = (480, 120, 40)
"""Records in each of four silos, beside all records in the table's own silos."""

DRAWS, RUNS = 3, 2
"""Draws of small silos, and runs on each; the whole table has `WHOLE_RUNS`."""

WHOLE_RUNS = 4
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.01)
"""Edges of the shares of rehearsals in the table of their reliability; the last includes 1."""

MORE = "more"
"""The folder of further tables, beside the league's."""

Watch = Callable[[int, int], None]
Silos = Mapping[str, tuple[FloatArray, FloatArray]]


class Cell(NamedTuple):
    """A table in silos of some size at an epsilon: whether its plan was refused, the share of rehearsals that beat
    guessing, and the share of guessing's error that models removed on average."""

    table: str
    silos: str
    epsilon: float
    refused: bool
    wins: float
    gain: float


def quote_cells(tables: Sequence[LeagueTable], watch: Watch = lambda done, total: None) -> list[Cell]:
    """Rehearse and train every table in silos of every size, at every epsilon."""
    cells, work = [], [(own, name, draws) for own in tables for name, draws in _divided(own)]
    for done, (own, name, draws) in enumerate(work):
        for epsilon in EPSILONS:
            errors, quotes = list[float](), list[Quote]()
            for draw, silos in enumerate(draws):
                members = [Member(silo, len(targets), epsilon) for silo, (_, targets) in silos.items()]
                plan = propose(own.schema, members, PlanRequest(run="quote", curves=0)).plan
                quotes = quotes or [rehearse(plan)]
                runs = WHOLE_RUNS if len(draws) == 1 else RUNS
                seeds = [100 * draw + run for run in range(runs)]
                errors += [own.error(weights) for weights in simulated_weights(plan, list(silos.values()), seeds)]
            (quote,) = quotes
            gain = 1 - float(np.mean(errors)) / own.guessing
            cells.append(Cell(own.name, name, epsilon, not quote.is_worth_it, quote.wins / quote.rehearsals, gain))
        watch(done + 1, len(work))
    return cells


def section(quick: bool, watch: Watch) -> str:
    """Write the part of the page."""
    league = [] if quick else list(_folder(league_folder(None)))
    others = [own for own in _packaged() if not quick or own.name == "diabetes"]
    others += [] if quick else [*_folder(league_folder(None).parent / MORE), *_named(league_folder(None).parent)]
    groups = {"league": quote_cells(league, watch), "other tables": quote_cells(others, watch)}
    every = [cell for cells in groups.values() for cell in cells]
    rows = [_counted(name, cells) for name, cells in {**groups, "all": every}.items() if cells]
    names = list(dict.fromkeys(cell.table for cell in every))
    by_table = [_counted(name, [cell for cell in every if cell.table == name]) for name in names]
    header = ["tables", "cells", "refused", "of these, no better", "others", "of these, no better"]
    return (
        "Before a plan is charged it is rehearsed on simulated records. It is refused if the median model of the "
        "rehearsals does not beat guessing. A cell is a table at an epsilon "
        f"({', '.join(f'{epsilon:g}' for epsilon in EPSILONS)}), in its own silos or in four silos of "
        f"{', '.join(map(str, SIZES))} records drawn from it; it is *no better* if the mean error of "
        f"{WHOLE_RUNS} runs ({DRAWS * RUNS} in small silos) on held-out records is that of guessing the largest class, "
        "or the mean, or more. The constants of simulated records were chosen on the league's tables, one of them on "
        "insurance; results on the others were seen meanwhile. The goal: at least 80 % of the refused cells are no "
        f"better, and at most 10 % of the others.\n\n{table(header, rows, texts=1)}\n\n"
        "A quote says in how many rehearsals the model beat guessing. This share is close to the chance that it does:"
        f"\n\n{_reliability(every)}\n\n{table(header, by_table, texts=1)}"
    )


def _reliability(cells: Sequence[Cell]) -> str:
    """Compare the share of rehearsals that beat guessing with the share of cells that do."""
    rows = []
    for low, high in pairwise(QUARTERS):
        own = [cell for cell in cells if low <= cell.wins < high]
        better = f"{sum(cell.gain > 0 for cell in own) / len(own):.0%}" if own else "–"
        rows.append([f"{low:.0%} to {min(high, 1.0):.0%}", str(len(own)), better])
    return table(["rehearsals that beat guessing", "cells", "of these, better"], rows, texts=1)


def _counted(name: str, cells: Sequence[Cell]) -> list[str]:
    refused, others = [cell for cell in cells if cell.refused], [cell for cell in cells if not cell.refused]
    return [name, str(len(cells)), str(len(refused)), _no_better(refused), str(len(others)), _no_better(others)]


def _no_better(cells: Sequence[Cell]) -> str:
    bad = sum(cell.gain <= 0 for cell in cells)
    return f"{bad} ({bad / len(cells):.0%})" if cells else "–"


def _divided(own: LeagueTable) -> Iterator[tuple[str, list[Silos]]]:
    """Yield a table in its own silos, and some draws of four silos of each size."""
    features, targets = own.pooled
    yield "own", [{name: (each.features, each.targets) for name, each in own.silos.items()}]
    for size in SIZES:
        if 4 * size <= len(targets):
            orders = [np.random.default_rng(draw).permutation(len(targets))[: 4 * size] for draw in range(DRAWS)]
            yield (
                f"4 × {size}",
                [
                    {
                        f"silo {number}": (features[rows], targets[rows])
                        for number, rows in enumerate(np.split(order, 4))
                    }
                    for order in orders
                ],
            )


def _folder(folder: Path) -> Iterator[LeagueTable]:
    return (load_table(folder, name) for name in table_names(folder))


def _named(folder: Path) -> Iterator[LeagueTable]:
    """Yield the tables of other experiments."""
    yield _in_silos("insurance", datasets.load_table(datasets.INSURANCE, insurance.public_schema(), folder))
    yield _in_silos("obesity", datasets.load_table(datasets.OBESITY, obesity.public_schema(), folder))
    yield _in_silos("schools", datasets.load_schools(personal.school_schema(), folder)[0])


@dataclass(frozen=True)
class _Numbers:
    """A table of numbers that comes with a package: public bounds of its columns, and its target's column."""

    name: str
    bounds: Sequence[tuple[float, float]]
    target: Mapping[str, Any]
    load: Callable[[], tuple[Any, Any]]

    def encoded(self) -> Encoded:
        """Read the table, and encode it by its bounds."""
        features, targets = self.load()
        columns: dict[str, Any] = {
            f"c{place}": {"type": "numeric", "lower": low, "upper": high}
            for place, (low, high) in enumerate(self.bounds)
        }
        schema = parse_schema({"columns": {**columns, "target": dict(self.target)}}, target="target")
        cells = {f"c{place}": [f"{x:.9g}" for x in features[:, place]] for place in range(len(self.bounds))}
        cells["target"] = [f"{x:.9g}" for x in targets]
        readings = read_cells(schema.used, cells, source=self.name)
        return Encoded(schema, features_of(schema, readings), target_of(schema, readings).astype(np.float64))


def _number(low: float, high: float) -> dict[str, Any]:
    return {"type": "numeric", "lower": low, "upper": high}


def _classes(count: int) -> dict[str, Any]:
    return {"type": "categorical", "categories": [str(number) for number in range(count)]}


def _sklearn(name: str, **options: Any) -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:
        import sklearn.datasets

        found = getattr(sklearn.datasets, f"load_{name}")(**options)
        return found.data, found.target

    return load


def _mlxtend(name: str, columns: int) -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:
        from mlxtend import data

        features, targets = getattr(data, f"{name}_data")()
        features = features[:, :columns].astype(float)
        whole = np.isfinite(features).all(axis=1)
        return features[whole], targets[whole]

    return load


_CELLS = [(5, 40), (5, 50), (30, 250), (50, 3000), (0, 0.3), (0, 1), (0, 1), (0, 0.3), (0, 0.5), (0, 0.2)]
_ERRORS = [(0, 4), (0, 6), (0, 30), (0, 600), (0, 0.05), (0, 0.2), (0, 0.5), (0, 0.1), (0, 0.1), (0, 0.05)]
_WORST = [(5, 50), (5, 60), (30, 350), (50, 5000), (0, 0.4), (0, 1.5), (0, 1.5), (0, 0.4), (0, 1), (0, 0.3)]
_PATIENTS = [(18, 100), (1, 2), (10, 60), (50, 200), (80, 400), (20, 300), (10, 120), (1, 15), (2, 7), (40, 200)]
_WINES = [(8, 16), (0, 10), (0, 5), (0, 40), (50, 200), (0, 5), (0, 6), (0, 1), (0, 5), (0, 15), (0, 2), (0, 5),
          (0, 2000)]  # fmt: skip
_CARS = [(3, 12), (50, 500), (40, 300), (1000, 6000), (5, 30), (65, 85), (1, 3)]
_HOUSES = [(0, 100), (0, 100), (0, 40), (0, 1), (0, 1), (1, 12), (0, 100), (0, 20), (1, 24), (0, 1000), (5, 30),
           (0, 400), (0, 50)]  # fmt: skip

PACKAGED = (
    _Numbers("breast cancer", _CELLS + _ERRORS + _WORST, _classes(2), _sklearn("breast_cancer")),
    _Numbers("diabetes", _PATIENTS, _number(0, 400), _sklearn("diabetes", scaled=False)),
    _Numbers("iris", [(0, 10)] * 4, _classes(3), _sklearn("iris")),
    _Numbers("cultivars", _WINES, _classes(3), _sklearn("wine")),
    _Numbers("cars", _CARS, _number(0, 60), _mlxtend("autompg", len(_CARS))),
    _Numbers("houses", _HOUSES, _number(0, 60), _mlxtend("boston_housing", len(_HOUSES))),
)
"""Tables that come with scikit-learn and mlxtend, with wide, round bounds."""


def _packaged() -> Iterator[LeagueTable]:
    return (_in_silos(own.name, own.encoded()) for own in PACKAGED)


def _in_silos(name: str, encoded: Encoded) -> LeagueTable:
    """Hold out a fifth of a table at random, and divide the rest into four silos."""
    order = np.random.default_rng(0).permutation(len(encoded.targets))
    held_out, *silos = np.split(order, np.linspace(len(order) // 5, len(order), 5, dtype=int)[:-1])

    def records(rows: Any) -> Records:
        return Records(encoded.schema, encoded.features[rows], encoded.targets[rows])

    each = {f"silo {number}": records(rows) for number, rows in enumerate(silos)}
    return LeagueTable(name, encoded.schema, each, {"held out": records(held_out)})
