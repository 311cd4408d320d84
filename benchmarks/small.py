"""What is trained by default in small federations with small budgets, beside guessing and what bounds favour.

    python -m benchmarks.small [EPSILON ...]

Twelve public tables, 486 records of each in four silos, delta 1e-3; epsilon (0.1 and 0.25 unless named) is that of one
run, for each record, against anyone who sees what its silo sends. Three draws of the records, ten simulated runs of
each. Errors are on up to 4,000 other records: of labels their rate, of numbers the RMSE in units of that of the mean of
those that trained. RINGFENCE_DATA names the folder that holds the league and insurance.csv; statsmodels carries the
other three tables.
"""

import os
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm

from ringfence.planning.propose import BY_BOUND, make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, parse_schema
from ringfence.silo.records.records import Records, load_records
from ringfence.simulation import trials

RECORDS, SILOS, DRAWS, RUNS, DELTA = 486, 4, 3, 10, 1e-3
HALVES = {
    "A": ("adult", "bank", "oj", "bike", "concrete", "powerplant"),
    "B": ("anes96", "fair", "visits", "communities", "insurance", "wages"),
}
"""Tables by alphabet, first those with labels and then those with numbers, dealt alternately; A chose the rule."""
METHODS = {"default": None, "by loss bounds": BY_BOUND, "accelerated": "accelerated"}


class Table(NamedTuple):
    """A table with public bounds, and its target."""

    frame: Any
    columns: dict[str, Any]
    target: str


def table(name: str) -> Table:
    """Return a table."""
    folder = Path(os.environ["RINGFENCE_DATA"])
    home = folder / "league" / name
    if home.is_dir():
        paths = [*sorted(home.glob("*.csv")), *sorted((home / "test").glob("*.csv"))]
        frame = pd.concat([pd.read_csv(path, dtype=str, keep_default_na=False) for path in paths])
        columns = tomllib.loads((home / "schema.toml").read_text())["columns"]
        return Table(frame, columns, (home / "target.txt").read_text().strip())
    if name == "insurance":
        choices = {"sex": ["female", "male"], "smoker": ["no", "yes"]}
        choices["region"] = ["northeast", "northwest", "southeast", "southwest"]
        columns = {own: {"type": "categorical", "categories": values} for own, values in choices.items()}
        columns |= _numbers({"age": (18, 100), "bmi": (10, 60), "children": (0, 10), "charges": (500, 100_000)})
        return Table(pd.read_csv(folder / "insurance.csv"), columns, "charges")
    data, target, bounds = _carried(name)
    frame = data.assign(**{target: np.where(data[target] > 0, "yes", "no")})
    labels = {target: {"type": "categorical", "categories": ["no", "yes"]}}
    return Table(frame, _numbers(bounds) | labels, target)


def _carried(name: str) -> tuple[Any, str, dict[str, tuple[float, float]]]:
    """Return a table that statsmodels carries, the number that is positive or not, and the others' bounds."""
    if name == "anes96":  # 0 is a vote for Clinton, 1 for Dole
        scales = dict.fromkeys(("selfLR", "ClinLR", "DoleLR", "educ"), (1.0, 7.0))
        scales |= {"logpopul": (-3, 10), "TVnews": (0, 7), "PID": (0, 6), "age": (18, 100), "income": (1, 24)}
        return sm.datasets.anes96.load_pandas().data, "vote", scales
    if name == "fair":
        scales = {"rate_marriage": (1, 5), "age": (15, 60), "yrs_married": (0, 40), "children": (0, 10)}
        scales |= {"religious": (1, 4), "educ": (8, 20), "occupation": (1, 6), "occupation_husb": (1, 6)}
        return sm.datasets.fair.load_pandas().data, "affairs", scales
    scales = dict.fromkeys(("idp", "physlm", "hlthg", "hlthf", "hlthp"), (0.0, 1.0))
    scales |= {"lncoins": (0, 5), "lpi": (0, 8), "fmde": (0, 9), "disea": (0, 60)}
    return sm.datasets.randhie.load_pandas().data, "mdvis", scales


def _numbers(bounds: dict[str, tuple[float, float]]) -> dict[str, Any]:
    return {name: {"type": "numeric", "lower": float(a), "upper": float(b)} for name, (a, b) in bounds.items()}


def error(weights: FloatArray, trained: FloatArray, test: Records, is_number: bool) -> float:
    """Return the rate of wrong labels, or the RMSE in units of that of the trained targets' mean."""
    scores, targets = test.features @ weights, test.targets
    if not is_number:
        return float(np.mean(np.where(scores > 0, 1.0, -1.0) != targets))
    return float(np.sqrt(np.mean((scores - targets) ** 2) / np.mean((trained.mean() - targets) ** 2)))


def errors(own: Table, epsilon: float) -> dict[str, list[float]]:
    """Return the errors of every method's runs, and of guessing what is most frequent, or the mean."""
    schema = parse_schema({"columns": own.columns}, target=own.target)
    found: dict[str, list[float]] = {"guessing": [], **{name: [] for name in METHODS}}
    for draw in range(DRAWS):
        frame = own.frame[list(own.columns)].sample(frac=1, random_state=draw).reset_index(drop=True)
        dealt = [frame.iloc[place:RECORDS:SILOS].reset_index(drop=True) for place in range(SILOS)]
        silos = [load_records(part, schema) for part in dealt]
        test = load_records(frame.iloc[RECORDS : RECORDS + 4000].reset_index(drop=True), schema)
        trained = np.concatenate([silo.targets for silo in silos])
        is_number = schema.target_column.is_number
        found["guessing"].append(1.0 if is_number else float(np.mean(test.targets != np.sign(trained.mean()))))
        members = [Member(f"silo {place}", len(silo), epsilon, DELTA) for place, silo in enumerate(silos)]
        for name, algorithm in METHODS.items():
            plan = make_plan(schema, members, PlanRequest(algorithm=algorithm, held_out=0.0, curves=0))
            seeds = range(100 * draw, 100 * draw + RUNS)
            found[name] += [
                error(own, trained, test, is_number) for own in trials.simulated_weights(plan, silos, seeds)
            ]
    return found


def main() -> None:
    """Print a row for each table and epsilon."""
    names = ["guessing", *METHODS]
    print(f"| half | table | ε | {' | '.join(names)} |\n|---|---|---:|{'---:|' * len(names)}")
    for epsilon in [float(text) for text in sys.argv[1:]] or [0.1, 0.25]:
        for half, tables in HALVES.items():
            for name in tables:
                found = errors(table(name), epsilon)
                told = [f"{np.mean(own):.3f} ± {np.std(own, ddof=1) / len(own) ** 0.5:.3f}" for own in found.values()]
                print(f"| {half} | {name} | {epsilon:g} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
