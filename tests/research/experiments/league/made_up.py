"""A league of two made-up tables, in the layout of the real one."""

import csv
from pathlib import Path

import numpy as np

SCHEMA = """
[columns.dose]
type = "numeric"
lower = 0
upper = 10

[columns.ward]
type = "categorical"
categories = ["a", "b"]

[columns.{target}]
{kind}
"""
KINDS = {
    "ill": 'type = "categorical"\ncategories = ["no", "yes"]',
    "cost": 'type = "numeric"\nlower = 0\nupper = 100',
}


def write_league(root: Path, records: int = 120) -> Path:
    """Write a table of labels in three silos and one of numbers in two, and return their folder."""
    random = np.random.default_rng(7)
    for target, kind in KINDS.items():
        home = root / "league" / target
        (home / "test").mkdir(parents=True)
        (home / "target.txt").write_text(f"{target}\n")
        (home / "schema.toml").write_text(SCHEMA.format(target=target, kind=kind))
        for silo in ("north", "south", "west")[: 3 if target == "ill" else 2]:
            _write(home / f"{silo}.csv", target, records, random)
            _write(home / "test" / f"{silo}.csv", target, records // 2, random)
    return root / "league"


def _write(path: Path, target: str, records: int, random: np.random.Generator) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["dose", "ward", target])
        for _ in range(records):
            dose, ward = random.uniform(0, 10), random.choice(["a", "b"])
            score = dose - (6 if ward == "b" else 3) + random.normal(0, 0.5)
            rows.writerow([f"{dose:.3f}", ward, ("yes" if score > 0 else "no") if target == "ill" else 40 + 5 * score])
