"""What all visits of a person are worth at a person's (1, 1e-6), against one visit each: python -m benchmarks.persons

Made-up visits: a person has 1 to 20 of them, which differ, and whether one finds the person ill follows a logistic law.
Every rule for a person's rows trains by the planner's defaults, as `ringfence train` does, and so does a table of
everybody's first visit, in which a record is a person. Accuracy is that on fresh visits of fresh persons.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ringfence.planning.request import PlanRequest
from ringfence.protocol.arrays import FloatArray
from ringfence.workflow import TrainRequest, train_files

SEEDS, REPEATS = (1, 2, 3), 5
PERSONS = {"north": 1500, "south": 700, "west": 400}
WIDTH = 8
ASKED = PlanRequest(epsilon=1.0, delta=1e-6)
RULES = {
    "one visit per person": ASKED,
    "mean": ASKED,
    "rows, at most 5": replace(ASKED, person_rule="rows", rows_per_person=5),
    "rows, at most 20": replace(ASKED, person_rule="rows", rows_per_person=20),
    "sum": replace(ASKED, person_rule="sum"),
}
NUMBER, LABEL = "type = 'numeric'\nlower = -3\nupper = 3\n", "type = 'categorical'\ncategories = ['no', 'yes']\n"


def visits(random: np.random.Generator, persons: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the visits of so many persons: whose each is, what was measured, and what was found."""
    of_row = np.repeat(np.arange(persons), random.integers(1, 21, persons))
    measured = random.normal(0, 0.7, (persons, WIDTH))[of_row] + random.normal(0, 0.7, (len(of_row), WIDTH))
    truth = np.array([1.5, -1.0, 0.8, 0.5, -0.4, 0.3, 0.0, 0.0])
    ill = random.random(len(of_row)) < 1 / (1 + np.exp(0.5 - measured @ truth))
    return of_row, measured, ill


def written(path: Path, table: tuple[FloatArray, FloatArray, FloatArray], *, first: bool) -> Path:
    """Write visits, or everybody's first, as a silo's file."""
    of_row, measured, ill = table
    rows = np.unique(of_row, return_index=True)[1] if first else range(len(of_row))
    lines = [f"{of_row[row]},{','.join(map(repr, measured[row].tolist()))},{'yes' if ill[row] else 'no'}" for row in rows]
    path.write_text("\n".join([",".join(["patient", *names(), "ill"]), *lines]) + "\n")
    return path


def names() -> list[str]:
    """Name the features."""
    return [f"x{number}" for number in range(WIDTH)]


def accuracies(folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """Train by every rule on one made-up federation, with fresh noise each time, and test."""
    random = np.random.default_rng(seed)
    tables = {silo: visits(random, persons) for silo, persons in PERSONS.items()}
    test = written(folder / "test.csv", visits(random, 5000), first=False)
    schema = "".join(f"[columns.{name}]\n{NUMBER}" for name in names()) + f"[columns.ill]\n{LABEL}"
    for name, request in RULES.items():
        alone = name == "one visit per person"
        own = folder / name
        own.mkdir()
        (own / "schema.toml").write_text(schema if alone else "person = 'patient'\n" + schema)
        files = [written(own / f"{silo}.csv", table, first=alone) for silo, table in tables.items()]
        for repeat in range(REPEATS):
            asked = TrainRequest(
                files, own / "schema.toml", "ill", request, 0.0, {"north": test},
                ledgers=own / str(repeat), new_beginning="the benchmark is repeated",
            )  # fmt: skip
            (own / str(repeat)).mkdir()
            tested = train_files(asked).test
            assert tested is not None
            yield name, tested.value


def main() -> None:
    """Print each rule's accuracy, of every seed and in the mean over all."""
    found: dict[str, list[list[float]]] = {name: [] for name in RULES}
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            pairs = list(accuracies(Path(folder), seed))
        for name, values in found.items():
            values.append([value for rule, value in pairs if rule == name])
    print(f"{'':22}" + "".join(f"  seed {seed}" for seed in SEEDS) + "    mean ± standard error")
    for name, values in found.items():
        error = np.std(values, axis=1, ddof=1).mean() / np.sqrt(np.size(values))
        print(f"{name:22}" + "".join(f"{np.mean(own):8.4f}" for own in values) + f"{np.mean(values):8.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
