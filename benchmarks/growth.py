"""How the cost of whole commands grows with silos, columns and rows: python -m benchmarks.growth.

`ringfence plan` for many silos, `ringfence statistics` of many columns, and `ringfence schema check` of many rows,
beside pyarrow's own reader of the same file. Every command runs in a process of its own; processor seconds, user and
system, of the least of several tries. *Growth* is the slope of log seconds against log size.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import reading

SILOS = {10: 3, 100: 3, 1000: 3, 10_000: 2}
COLUMNS = {10: 3, 30: 3, 100: 3, 300: 2, 1000: 2}
ROWS = {10**4: 3, 10**5: 3, 10**6: 2, 10**7: 1}
"""Sizes, and how often each is tried."""

WIDTH = 30
RINGFENCE = (sys.executable, "-m", "ringfence")

Row = dict[str, Any]


def growth(rows: Sequence[Row], size: str, cost: str = "seconds") -> float:
    """Return the slope of log cost against log size, fitted by least squares."""
    logs = np.log([[row[size], row[cost]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


_LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)
sys.exit(code)
"""
"""A small process that starts a command: a command's peak memory counts that of the process that started it."""


def ran(command: Sequence[object], folder: Path, tries: int) -> Row:
    """Run a command in a folder; return the least of its processor seconds and the most of its memory, in MB."""
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state"), "OPENBLAS_NUM_THREADS": "1"}
    words, found = [sys.executable, "-c", _LAUNCHER, *map(str, command)], []
    for _ in range(tries):
        done = subprocess.run(words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found.append([float(number) for number in done.stdout.split()])
    return {"seconds": min(seconds for seconds, _ in found), "MB": max(most for _, most in found)}


def plan_command(silos: int, tries: int) -> Row:
    """Plan for that many silos of 1,000 records and 30 features: request, plan, quote, file and tables."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        write_schema(folder / "schema.toml", WIDTH)
        sizes = [word for place in range(silos) for word in ("--silo", f"silo-{place}=1000")]
        options = ("--schema", "schema.toml", "--target", "y", "--epsilon", "1", "--out", "plan.json", *sizes)
        return {"silos": silos, **ran([*RINGFENCE, "plan", *options], folder, tries)}


def statistics_command(columns: int, tries: int) -> Row:
    """Ask two silos of 1,000 rows for statistics of that many columns: plan, quote, gates, answers and estimates."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        write_schema(folder / "schema.toml", columns)
        for silo in ("north", "south"):
            reading.write(folder, 1000, columns)[0].rename(folder / f"{silo}.csv")
        options = ("--schema", "schema.toml", "--epsilon", "10", "--anyway", "--new-beginning", "repeated")
        asked = ("statistics", "north.csv", "south.csv", *options)
        return {"columns": columns, **ran([*RINGFENCE, *asked], folder, tries)}


def written(folder: str, rows: int) -> Row:
    """Write a table as CSV and as Parquet, and its schema."""
    write_schema(Path(folder) / "schema.toml", WIDTH)
    reading.write(Path(folder), rows, WIDTH)
    return {}


def check_command(folder: str, rows: int, tries: int) -> list[Row]:
    """Check a written table of that many rows against its schema, beside pyarrow's reader."""
    found, read = [], "import sys, pyarrow.csv as c, pyarrow.parquet as p; {}(sys.argv[1])"
    for file, reader in (("table.csv", "c.read_csv"), ("table.parquet", "p.read_table")):
        check = ran([*RINGFENCE, "schema", "check", "schema.toml", file], Path(folder), tries)
        beside = ran([sys.executable, "-c", read.format(reader), file], Path(folder), tries)
        format = file.partition(".")[2]
        found.append({"format": format, "rows": rows, **check, **{f"pyarrow, {name}": beside[name] for name in beside}})
    return found


def write_schema(path: Path, columns: int) -> None:
    """Write the schema of the tables of `reading.write`."""
    number = "type = 'numeric'\nlower = -4\nupper = 4\n"
    lines = [f"[columns.x{place}]\n{number}" for place in range(columns - 1)]
    path.write_text("".join(lines) + "[columns.y]\ntype = 'categorical'\ncategories = ['no', 'yes']\n")


def main() -> None:
    """Print what each command takes."""
    for found, size in (
        ([plan_command(silos, tries) for silos, tries in SILOS.items()], "silos"),
        ([statistics_command(columns, tries) for columns, tries in COLUMNS.items()], "columns"),
    ):
        print(*found, f"growth {growth(found, size):.2f}", sep="\n", flush=True)
    for rows, tries in ROWS.items():
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
            written(name, rows)
            print(*check_command(name, rows, tries), sep="\n", flush=True)


if __name__ == "__main__":
    main()
