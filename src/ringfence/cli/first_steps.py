"""`ringfence example`, `ringfence demo` and `ringfence tour`: to try things out, each in one command."""

import csv
import dataclasses
import random
import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from ringfence.cli.options import AsJson, option
from ringfence.cli.output import Output, Table, say, show_output
from ringfence.errors import OutputError, require_extra
from ringfence.federation.progress import progress
from ringfence.planning.options import offered

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


def example(
    folder: Path = offered(Path(), "Where to write: a new folder, or one without these files.", argument=True),
) -> Output:
    """Write invented records of three hospitals, and their schema.

    Examples:
      ringfence example
      ringfence example hospitals
    """
    files = [str(file) for file in write_example(folder)]
    return Output({"files": files}, f"Wrote {', '.join(files)}.")


def write_example(folder: Path) -> list[Path]:
    """Write a CSV file per silo, a filled-in schema and two new patients; return the files.

    The records are nobody's, and others each time: two examples are two data sets, each with ledgers of its own. A file
    that exists is never written over.
    """
    files = [folder / name for name in (*(f"{silo}.csv" for silo in SIZES), "schema.toml", "new.csv")]
    for file in files:
        if file.exists():
            raise OutputError(f"{file} already exists and is not overwritten: name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        first = secrets.randbelow(10**9)
        choices = random.Random(first)  # noqa: S311 (invented records need no secret)
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


def demo(json: AsJson = False) -> None:
    """Train on handwritten digits of five silos, and show the errors.

    Each line is trained and evaluated privately at its own epsilon.

    Examples:
      ringfence demo
    """
    import numpy as np

    from ringfence.cli import demo as experiment

    digits = experiment.load_digits(np.random.default_rng())
    if not json:
        say("Is a digit odd or even? Five silos, each with two of the ten digits; each silo adds its own noise.")
    with progress() as bar:
        task = bar.add_task("rounds")

        lines = list(
            experiment.run(
                digits, planned=lambda plan: bar.reset(task, total=plan.rounds), watch=lambda _: bar.advance(task)
            )
        )
    best, shown = experiment.non_private_error(digits), lines[1]
    header = ["epsilon", "error", "low", "high"]
    rows = [[getattr(line, name) for name in header] for line in lines]
    output = Output(
        {
            "lines": [dict(zip(header, row, strict=True)) for row in rows],
            "non_private_error": best,
            "statement": shown.statement.text(),
        },
        "",
        Table(
            ["epsilon", "error", "from", "to"],
            [*rows, ["none", best, "", ""]],
            "Errors on held-out digits, measured privately by the same silos, with 95% intervals",
        ),
        "\nEach line is a separate run. The digits are public, so the costs of the runs are not added up.",
        "The last line is the best fit without privacy, by somebody who may see all digits.",
        f"Privacy statement of the run at epsilon {shown.epsilon:g}:\n\n{shown.statement.text()}",
    )
    show_output(output, json=json)


def tour(rounds: Annotated[int, option("Number of training rounds.", min=1)] = 12) -> None:
    """Run a federation of a server and three silos on this machine.

    It starts an engine's server and three silos, trains, shows the ledgers, and removes everything again.

    Examples:
      ringfence tour
    """
    require_extra("deployment", "The tour", "psutil", "nvflare", "starlette", "uvicorn")
    from ringfence.deployment.tour import tour as run

    run(say, rounds=rounds)


def doctor(
    folders: list[Path] | None = offered(
        None, "Folders to check: of a silo or a shuffler, or a startup kit.", argument=True, metavar="[FOLDER]..."
    ),
) -> Output:
    """Check this machine and your folders, and say what to fix.

    The exit status is 1 if something is wrong.

    Examples:
      ringfence doctor
      ringfence doctor north-silo
    """
    from ringfence.deployment.doctor import examine

    findings = examine(folders or [])
    lines = []
    for place, here in groupby(findings, key=attrgetter("place")):
        lines.append(f"{place}:")
        lines += [f"  {'ok   ' if each.well else 'WRONG'} {each.check}: {each.says}" for each in here]
    return Output(
        {"findings": [dataclasses.asdict(finding) for finding in findings]},
        *lines,
        failed=not all(finding.well for finding in findings),
    )
