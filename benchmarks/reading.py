"""How fast tables are read, beside pyarrow's own reader on the same file, and in how much memory, as ratios in one run.

    python -m benchmarks.reading [--rows 200000] [--columns 30] [--turns 5]

Every reading is in a process of its own, after a small file of the same kind, so that imports are done and no memory of
an earlier reading is at hand: that is how tables are read. Readers take turns, and the fastest turn of each counts, in
processor seconds of all threads, the kernel's included. Once more they read again and again in one process, where
memory that was used before is at hand. Memory is the most that a process has beyond what it had before it read.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ringfence.protocol import Schema, parse_schema
from ringfence.silo.records.records import load_data_set, load_records

MILLION = 10**6

AGAIN = 3
"""How often a table is read in one process."""

Row = dict[str, Any]


def schema(columns: int) -> Schema:
    """Numbers, some of them beyond their bounds, and two categories."""
    numbers = {f"x{place}": {"type": "numeric", "lower": -4, "upper": 4} for place in range(columns - 1)}
    return parse_schema({"columns": {**numbers, "y": {"type": "categorical", "categories": ["no", "yes"]}}}, target="y")


def write(folder: Path, rows: int, columns: int) -> list[Path]:
    """Write a table as CSV and as Parquet, a million rows at a time."""
    random, csv, parquet = np.random.default_rng(1), folder / "table.csv", folder / "table.parquet"
    names = [f"x{place}" for place in range(columns - 1)]
    fields = pa.schema([*((name, pa.float64()) for name in names), ("y", pa.string())])
    with pyarrow.csv.CSVWriter(csv, fields) as lines, pyarrow.parquet.ParquetWriter(parquet, fields) as groups:
        for begin in range(0, rows, MILLION):
            count = min(MILLION, rows - begin)
            table = {name: np.round(random.normal(size=count), 6) for name in names}
            held = pa.table({**table, "y": random.choice(["no", "yes"], count)}, schema=fields)
            lines.write_table(held)
            groups.write_table(held)
    return [csv, parquet]


def pyarrow_reader(path: Path, of: Schema) -> object:
    """Read as pyarrow does."""
    del of
    return pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pyarrow.parquet.read_table(path)


READERS: dict[str, Callable[[Path, Schema], object]] = {
    "pyarrow": pyarrow_reader,
    "data set": load_data_set,  # every cell read, scaled and kept, every row marked: what an agent holds at first
    "records": load_records,  # the same, and one model's features
}


def memory(field: str) -> int:
    """Return bytes of memory that this process has (VmRSS), or has had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def read_once(reader: str, path: Path, small: Path, columns: int, repeats: int) -> Row:
    """Read a table, and tell what that takes."""
    of, read = schema(columns), READERS[reader]
    read(small, of)
    before, times = memory("VmRSS"), []
    for _ in range(repeats):
        begun = time.process_time()
        made = read(path, of)
        times.append(time.process_time() - begun)
        del made
    return {"seconds": min(times), "memory": memory("VmHWM") - before}


def measure(rows: int, columns: int, turns: int) -> list[Row]:
    """Return what each reader takes of each format."""
    found = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "small").mkdir()
        for path, small in zip(write(folder, rows, columns), write(folder / "small", 50, columns), strict=True):
            best: dict[str, Row] = {reader: {} for reader in READERS}
            for _ in range(turns):
                for reader, own in best.items():
                    took = _apart(reader, path, small, columns, 1)
                    for what, number in took.items():
                        own[what] = min(own.get(what, number), number)
            for reader, own in best.items():
                own["again"] = _apart(reader, path, small, columns, AGAIN)["seconds"]
                found.append({"format": path.suffix[1:], "records": rows, "columns": columns, "reader": reader, **own})
    return found


def _apart(reader: str, path: Path, small: Path, columns: int, repeats: int) -> Row:
    asked = json.dumps([reader, str(path), str(small), columns, repeats])
    command = [sys.executable, "-m", "benchmarks.reading", "--one", asked]
    result: Row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return result


def main() -> None:
    """Measure, or read once for another process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        reader, path, small, columns, repeats = json.loads(given.one)
        print(json.dumps(read_once(reader, Path(path), Path(small), columns, repeats)))
        return
    for row in measure(given.rows, given.columns, given.turns):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
