"""What all visits of a person are worth at a person's (1, 1e-6), against one visit each: python -m benchmarks.persons

Made-up visits: a person has 1 to 20 of them, which differ, and whether one finds the person ill follows a logistic law.
Every rule for a person's rows trains by the planner's defaults, as `ringfence train` does, and so does a table of
everybody's first visit, in which a record is a person. Accuracy is that on fresh visits of fresh persons: of a few
models that were trained, for each seed and all together, and of many more that the simulator makes by the same plans.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.federation.requests import TrainRequest
from ringfence.federation.workflow import train_files
from ringfence.planning.request import PlanRequest
from ringfence.protocol import Plan
from ringfence.silo.records.records import Records, load_records
from ringfence.simulation import engine
from ringfence.simulation.trials import simulated_state

SEEDS, TRAINED, SIMULATED = (1, 2, 3), 3, 100
PERSONS = {"north": 1500, "south": 700, "west": 400}
NAMES = [f"x{number}" for number in range(8)]
TRUTH = np.array([1.5, -1.0, 0.8, 0.5, -0.4, 0.3, 0.0, 0.0])
ASKED = PlanRequest(epsilon=1.0, delta=1e-6, algorithm="bounded")
RULES = {
    "one visit per person": ASKED,
    "mean": ASKED,
    "rows, at most 2": replace(ASKED, person_rule="rows", rows_per_person=2),
    "rows, at most 5": replace(ASKED, person_rule="rows", rows_per_person=5),
    "rows, at most 20": replace(ASKED, person_rule="rows", rows_per_person=20),
    "sum": replace(ASKED, person_rule="sum"),
}
NUMBER, LABEL = "type = 'numeric'\nlower = -3\nupper = 3\n", "type = 'categorical'\ncategories = ['no', 'yes']\n"
SCHEMA = "".join(f"[columns.{name}]\n{NUMBER}" for name in NAMES) + f"[columns.ill]\n{LABEL}"


def write_visits(path: Path, random: np.random.Generator, persons: int) -> Path:
    """Write the visits of so many persons, one after the other."""
    of_row = np.repeat(np.arange(persons), random.integers(1, 21, persons))
    measured = random.normal(0, 0.7, (persons, len(NAMES)))[of_row] + random.normal(0, 0.7, (len(of_row), len(NAMES)))
    ill = random.random(len(of_row)) < 1 / (1 + np.exp(0.5 - measured @ TRUTH))
    rows = [
        [str(of_row[row]), *map(repr, measured[row].tolist()), "yes" if ill[row] else "no"] for row in range(len(ill))
    ]
    path.write_text("\n".join(map(",".join, [["patient", *NAMES, "ill"], *rows])) + "\n")
    return path


def write_first_visits(path: Path, visits: Path) -> Path:
    """Write everybody's first visit."""
    first = {line.partition(",")[0]: line for line in reversed(visits.read_text().splitlines())}
    path.write_text("\n".join(reversed(first.values())) + "\n")
    return path


def simulated(plan: Plan, silos: list[Records], test: Records) -> list[float]:
    """Return the accuracies of many simulated runs of the plan."""
    known = [simulated_state(plan, silos, seed) for seed in range(SIMULATED)]
    streams, runs = engine.from_plans([plan] * SIMULATED, range(SIMULATED), learned=known)
    weights = engine.simulate(engine.Rules.of(plan), engine.federation_of(plan, silos), streams, runs)
    right: Any = 1 - engine.evaluate(plan.loss, weights, test.features, test.targets)[1]
    return [float(share) for share in right]


def accuracies(folder: Path, seed: int) -> dict[str, tuple[list[float], list[float]]]:
    """Train and simulate by every rule on one made-up federation."""
    random, found = np.random.default_rng(seed), {}
    visits = [write_visits(folder / f"{silo}.csv", random, persons) for silo, persons in PERSONS.items()]
    test = write_visits(folder / "test.csv", random, 5000)
    for name, request in RULES.items():
        own, alone = folder / name, name == "one visit per person"
        own.mkdir()
        (own / "schema.toml").write_text(SCHEMA if alone else "person = 'patient'\n" + SCHEMA)
        files = [write_first_visits(own / path.name, path) for path in visits] if alone else visits
        trained = []
        for repeat in range(TRAINED):
            (own / str(repeat)).mkdir()
            asked = TrainRequest(
                files, own / "schema.toml", "ill", request, tests={"north": test},
                ledgers=own / str(repeat), new_beginning="the benchmark is repeated",
            )  # fmt: skip
            done = train_files(asked)
            assert done.test is not None
            trained.append(done.test.value)
        plan = done.result.model.plan
        silos = [load_records(path, plan.data) for path in files]
        found[name] = trained, simulated(plan, silos, load_records(test, plan.data))
    return found


def shown(values: list[list[float]]) -> str:
    """Write the mean of each seed, and that of all with its standard error."""
    error = np.std(values, axis=1, ddof=1).mean() / np.sqrt(np.size(values))
    return "".join(f"{np.mean(own):8.4f}" for own in values) + f"{np.mean(values):8.4f} ± {error:.4f}"


def main() -> None:
    """Print every rule's accuracy."""
    found = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            found.append(accuracies(Path(folder), seed))
    head = "".join(f"  seed {seed}" for seed in SEEDS) + "     all ± error"
    print(f"{'':22}{'trained ':->39}{'simulated ':->42}\n{'':22}{head}   {head}")
    for name in RULES:
        print(f"{name:22}" + "   ".join(shown([seed[name][way] for seed in found]) for way in (0, 1)))


if __name__ == "__main__":
    main()
