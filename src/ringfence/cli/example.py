"""Invented records of three hospitals, for trying things out: the files that the documentation's examples use."""

import csv
import random
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

from ringfence.errors import OutputError

SIZES = {"north": 500, "south": 800, "west": 300}
SCHEMA = """\
columns.patient = {type = "ignore"}
columns.age = {type = "numeric", lower = 0, upper = 120}
columns.pressure = {type = "numeric", lower = 50, upper = 250}
columns.smoker = {type = "categorical", categories = ["no", "yes"]}
columns.ill = {type = "categorical", categories = ["no", "yes"]}
"""
FEATURES = ["age", "pressure", "smoker"]
NEW_PATIENTS: list[list[object]] = [[70, 150, "yes"], [30, 110, "no"]]


def write_example(folder: Path) -> list[Path]:
    """Write a CSV file per silo, a filled-in schema and two new patients; return the files.

    The records are nobody's, and the same each time but for the patients' numbers: two examples are two data sets,
    each with ledgers of its own. A file that exists is never written over.
    """
    files = [folder / name for name in (*(f"{silo}.csv" for silo in SIZES), "schema.toml", "new.csv")]
    for file in files:
        if file.exists():
            raise OutputError(f"{file} already exists and is not overwritten: name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        choices, first = random.Random(1), secrets.randbelow(10**9)  # noqa: S311 (invented records need no secret)
        for file, size in zip(files[: len(SIZES)], SIZES.values(), strict=True):
            _write(file, ["patient", *FEATURES, "ill"], (_patient(first + number, choices) for number in range(size)))
        files[-2].write_text(SCHEMA, encoding="utf-8")
        _write(files[-1], FEATURES, NEW_PATIENTS)
    except OSError as problem:
        why = problem.strerror
        raise OutputError(f"The example cannot be written to {folder}: {why}. Name another folder.") from None
    return files


def _patient(number: int, choices: random.Random) -> list[object]:
    """Return the row of an invented patient, for the example's tables."""
    age, pressure, smoker = round(choices.uniform(20, 90)), round(choices.gauss(130, 20)), choices.random() < 0.3
    ill = (age - 60) / 15 + (pressure - 130) / 20 + 1.5 * smoker + choices.gauss(0, 1) > 0
    return [number, age, pressure, *("yes" if answer else "no" for answer in (smoker, ill))]


def _write(file: Path, header: list[str], rows: Iterable[Sequence[object]]) -> None:
    """Write one of the example's invented tables as CSV."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        table = csv.writer(opened, lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)
