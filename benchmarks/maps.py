"""What public maps of columns buy, and what their width costs: python -m benchmarks.maps [RUNS [TABLE ...]]

The league's tables (RINGFENCE_DATA names the folder), as they are and with maps, planned as `ringfence train` plans
where nothing but epsilon is given, and simulated. An error is the RMSE on held-out records in units of that of guessing
the mean; "not private" is least squares on the same features. "must remove" is what the planner's hint tells: the share
of the plain table's squared error that the maps have to remove to pay for their noise.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.planning.noise_warnings import maps_must_remove
from ringfence.planning.propose import propose
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import parse_schema
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.league.tables import SCHEMA, TARGET, TEST, LeagueTable, league_folder
from ringfence.silo.records.records import load_records
from ringfence.simulation import trials
from ringfence.storage.toml_files import read_toml

EPSILONS = (1.0, 3.0)
HOUR = {"type": "numeric", "lower": 0, "upper": 24}


def cyclic(harmonics: int) -> dict[str, Any]:
    """Return a map of the hour."""
    return {"type": "cyclic", "columns": ["hour"], "period": 24, "harmonics": harmonics}


def spline(knots: int, *columns: str) -> dict[str, Any]:
    """Return a map of columns."""
    return {"type": "spline", "columns": list(columns), "knots": knots}


def by_working_day(*columns: str) -> dict[str, Any]:
    """Return products of columns and the working day."""
    return {"type": "interaction", "columns": [*columns, "workingday"]}


def fourier(features: int, *columns: str) -> dict[str, Any]:
    """Return a map of columns together."""
    return {"type": "fourier", "columns": list(columns), "features": features, "seed": 1}


CEMENT = ("cement", "slag", "fly_ash", "water", "superplasticizer", "coarse", "fine", "age")
PLANT = ("temperature", "vacuum", "pressure", "humidity")

VARIANTS: dict[str, dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]] = {
    "bike": {
        "hour in 24 categories": ({}, []),
        "hour as a number": ({"hour": HOUR}, []),
        "cyclic, 4 harmonics": ({"hour": HOUR}, [cyclic(4)]),
        "cyclic, 4 harmonics × working day": ({"hour": HOUR}, [cyclic(4), by_working_day("hour")]),
        "spline, 9 knots × working day": ({"hour": HOUR}, [spline(9, "hour"), by_working_day("hour")]),
        "24 categories × working day": ({}, [by_working_day("hour")]),
        "cyclic × working day, 200 Fourier": (
            {"hour": HOUR},
            [cyclic(4), by_working_day("hour"), fourier(200, "hour", "temp", "humidity", "workingday")],
        ),
    },
    "concrete": {
        "plain": ({}, []),
        "spline of age": ({}, [{**spline(2, "age"), "knots": [7, 28, 90], "degree": 2}]),
        "splines of all, 3 knots": ({}, [{**spline(3, *CEMENT), "degree": 2}]),
        "splines of all, 9 knots": ({}, [spline(9, *CEMENT)]),
        "100 Fourier features": ({}, [fourier(100, *CEMENT)]),
    },
    "powerplant": {
        "plain": ({}, []),
        "splines of all, 3 knots": ({}, [{**spline(3, *PLANT), "degree": 2}]),
        "splines of all, 9 knots": ({}, [spline(9, *PLANT)]),
        "interactions": ({}, [{"type": "interaction", "columns": list(PLANT)}]),
        "100 Fourier features": ({}, [fourier(100, *PLANT)]),
    },
}


def mapped(name: str, columns: Mapping[str, Any], maps: list[dict[str, Any]]) -> LeagueTable:
    """Read a table with other columns and maps than its schema has."""
    home: Path = league_folder(None) / name
    content = read_toml(home / SCHEMA)
    changed: dict[str, Any] = {
        **content,
        "columns": {**content["columns"], **columns},
        **({"maps": maps} if maps else {}),
    }
    schema = parse_schema(changed, target=(home / TARGET).read_text(encoding="utf-8").strip())
    silos, tests = (
        {path.stem: load_records(path, schema) for path in sorted(where.glob("*.csv"))} for where in (home, home / TEST)
    )
    return LeagueTable(name, schema, silos, tests)


def measured(name: str, runs: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each of a table's variants."""
    for variant, (columns, maps) in VARIANTS[name].items():
        table = mapped(name, columns, maps)
        row: dict[str, Any] = {"table": name, "features": variant, "width": table.schema.width}
        row["not private"] = round(table.error(not_private(table.loss, *table.pooled)), 3)
        for epsilon in EPSILONS:
            members = [Member(silo, size, epsilon) for silo, size in table.sizes.items()]
            plan = propose(table.schema, members, PlanRequest(run="maps", curves=0)).plan
            errors = [
                table.error(weights)
                for weights in trials.simulated_weights(plan, list(table.silos.values()), range(runs))
            ]
            row[f"epsilon {epsilon:g}"] = round(float(np.mean(errors)), 3)
            row[f"± at {epsilon:g}"] = round(float(np.std(errors) / np.sqrt(len(errors) - 1)), 3)
            row[f"must remove at {epsilon:g}"] = round(maps_must_remove(plan), 2)
            row[f"by at {epsilon:g}"] = plan.algorithm.name
        yield row


def main() -> None:
    """Print a line for each variant."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name in sys.argv[2:] or VARIANTS:
        for row in measured(name, runs):
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
