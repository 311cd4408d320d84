"""More than 1,000 features: what is trained by default, beside what loss bounds favour, on public tables.

    python -m benchmarks.wide [TABLE ...]

Tables of the league with a product of every pair of their columns (adult, bank, communities and digits unless others
are named). Every epsilon is that of one run, for each record, against anyone who sees what its silo sends; delta is the
planner's. Three simulated runs of each. Errors are on held-out records: of labels their rate, of numbers the RMSE in
units of that of the mean of those that trained. RINGFENCE_DATA names the folder that holds the league.
"""

import os
import sys
import tomllib
from pathlib import Path

import numpy as np

from ringfence.planning.propose import BY_BOUND, make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import Schema, parse_schema
from ringfence.silo.records.records import Records, load_records
from ringfence.simulation import trials

TABLES, EPSILONS, RUNS = ("bank", "digits", "adult", "communities"), (0.5, 1.0, 3.0), 3
METHODS = {"default": None, "by loss bounds": BY_BOUND}


def schema_of(home: Path) -> Schema:
    """Return a table's schema, with a product of every pair of columns."""
    content = tomllib.loads((home / "schema.toml").read_text())
    target = (home / "target.txt").read_text().strip()
    columns = [name for name in content["columns"] if name != target]
    return parse_schema(content | {"maps": [{"type": "interaction", "columns": columns}]}, target=target)


def errors(schema: Schema, silos: dict[str, Records], test: list[Records], epsilon: float, method: str | None) -> str:
    """Return the mean error of the runs, its standard error, and how they were trained."""
    members = [Member(name, len(own), epsilon) for name, own in silos.items()]
    plan = make_plan(schema, members, PlanRequest(algorithm=method, held_out=0.0, curves=0))
    features, targets = (np.concatenate([getattr(own, name) for own in test]) for name in ("features", "targets"))
    mean = np.mean(np.concatenate([own.targets for own in silos.values()]))
    found = []
    for weights in trials.simulated_weights(plan, list(silos.values()), range(RUNS)):
        scores = features @ weights.reshape(schema.width, -1)
        if plan.loss.target_kind == "number":
            found.append(np.sqrt(np.mean((scores[:, 0] - targets) ** 2) / np.mean((mean - targets) ** 2)))
        else:
            told = scores.argmax(axis=1) if scores.shape[1] > 1 else np.where(scores[:, 0] > 0, 1.0, -1.0)
            found.append(np.mean(told != targets))
    surveyed = ", surveyed" if plan.training_numbers[0] else ""
    return f"{np.mean(found):.3f} ± {np.std(found, ddof=1) / RUNS**0.5:.3f} ({plan.algorithm.name}{surveyed})"


def main() -> None:
    """Print a row for each table and epsilon."""
    league = Path(os.environ["RINGFENCE_DATA"]) / "league"
    print(f"| table | features | records | ε | {' | '.join(METHODS)} |\n|---|---:|---:|---:|{'---|' * len(METHODS)}")
    for name in sys.argv[1:] or TABLES:
        home = league / name
        schema = schema_of(home)
        silos = {path.stem: load_records(path, schema) for path in sorted(home.glob("*.csv"))}
        test = [load_records(path, schema) for path in sorted((home / "test").glob("*.csv"))]
        records = sum(len(own) for own in silos.values())
        for epsilon in EPSILONS:
            told = [errors(schema, silos, test, epsilon, method) for method in METHODS.values()]
            print(f"| {name} | {schema.width:,} | {records:,} | {epsilon:g} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
