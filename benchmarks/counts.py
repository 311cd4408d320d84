"""What preconditioned descent makes of counts and amounts, beside accelerated descent.

    python -m benchmarks.counts

Four silos dealt at random, simulated, with delta 1e-6; epsilon is that of one run, for each record, against anyone who
sees what its silo sends. Regret is the excess of the mean loss over the best weights', in units of the best constant's.
Needs statsmodels, which carries two of the tables, and RINGFENCE_DATA for two others.
"""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy.optimize import minimize

from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, parse_schema
from ringfence.protocol.losses.targets import values_of
from ringfence.silo.records.records import Records, load_records
from ringfence.simulation import trials

EPSILONS = (0.5, 1.0, 3.0)
RUNS = {"preconditioned": 12, "accelerated": 8}


class Table(NamedTuple):
    """A table with public bounds, and what is asked of it."""

    name: str
    frame: Any
    columns: dict[str, Any]
    target: str
    asked: dict[str, Any]


def number(lower: float, upper: float) -> dict[str, Any]:
    """Return a numeric column."""
    return {"type": "numeric", "lower": float(lower), "upper": float(upper)}


def tables() -> Iterator[Table]:
    """Yield the tables, one after the other."""
    visits = sm.datasets.randhie.load_pandas().data
    shares = dict.fromkeys(("idp", "physlm", "hlthg", "hlthf", "hlthp"), number(0, 1))
    amounts = {"lncoins": number(0, 5), "lpi": number(0, 8), "fmde": number(0, 9), "disea": number(0, 60)}
    columns = {"mdvis": number(0, 100), **shares, **amounts}
    yield Table("doctor visits (RAND)", visits, columns, "mdvis", {"loss": "poisson"})
    yield Table("doctor visits (RAND)", visits, columns, "mdvis", {"loss": "negative-binomial", "dispersion": 1.5})
    scales = {"rate_marriage": (1, 5), "age": (15, 60), "yrs_married": (0, 40), "children": (0, 10)}
    scales |= {"religious": (1, 4), "educ": (8, 20), "occupation": (1, 6), "occupation_husb": (1, 6)}
    columns = {name: number(*bounds) for name, bounds in scales.items()} | {"affairs": number(0, 100)}
    yield Table("affairs (Fair)", sm.datasets.fair.load_pandas().data, columns, "affairs", {"loss": "poisson"})
    folder = Path(os.environ["RINGFENCE_DATA"])
    bike = pd.concat([pd.read_csv(path, dtype=str) for path in sorted((folder / "league" / "bike").glob("*.csv"))])
    schema = tomllib.loads((folder / "league" / "bike" / "schema.toml").read_text())["columns"]
    yield Table("bike", bike, schema, "count", {"loss": "poisson"})
    choices = {"sex": ["female", "male"], "smoker": ["no", "yes"]}
    choices["region"] = ["northeast", "northwest", "southeast", "southwest"]
    columns = {name: {"type": "categorical", "categories": own} for name, own in choices.items()}
    columns |= {"age": number(18, 100), "bmi": number(10, 60), "children": number(0, 10)}
    columns["charges"] = number(500, 100_000)
    yield Table("insurance", pd.read_csv(folder / "insurance.csv"), columns, "charges", {"loss": "gamma"})
    yield from _made_up()


def _made_up() -> Iterator[Table]:
    random, count = np.random.default_rng(77), 6000
    features = random.normal(size=(count, 6)) * [1, 0.2, 3, 0.5, 1, 0.1]
    features[:, 1] += 0.9 * features[:, 0]
    means = np.exp(1 + 0.3 * features[:, 0] - 0.1 * features[:, 2] + 0.5 * features[:, 3])
    frame = pd.DataFrame(features, columns=[*"abcdef"])
    columns = dict.fromkeys("abcdef", number(-8, 8))
    counts = frame.assign(n=random.poisson(means * random.gamma(2, 0.5, count)))
    yield Table("made up, overdispersed", counts, columns | {"n": number(0, 100)}, "n", {"loss": "poisson"})
    sums = frame.assign(n=means * random.gamma(1.5, 1 / 1.5, count) + 0.01)
    yield Table("made up", sums, columns | {"n": number(0.01, 200)}, "n", {"loss": "gamma"})


def regrets(table: Table, algorithm: str) -> list[tuple[float, float]]:
    """Return mean regret and its standard error at each epsilon."""
    schema = parse_schema({"columns": table.columns}, target=table.target)
    frame = table.frame[list(table.columns)].sample(frac=1, random_state=1)
    silos = [load_records(frame.iloc[place::4].reset_index(drop=True), schema) for place in range(4)]
    found = []
    for epsilon in EPSILONS:
        members = [Member(f"silo {place}", len(own), epsilon, 1e-6) for place, own in enumerate(silos)]
        plan = make_plan(schema, members, PlanRequest(algorithm=algorithm, held_out=0.0, curves=0, **table.asked))
        best, constant = (_least(plan.loss, silos, columns) for columns in (slice(None), slice(-1, None)))
        own = [
            (_mean_loss(plan.loss, silos, weights) - best) / (constant - best)
            for weights in trials.simulated_weights(plan, silos, range(RUNS[algorithm]))
        ]
        found.append((float(np.mean(own)), float(np.std(own, ddof=1) / len(own) ** 0.5)))
    return found


def _mean_loss(loss: Any, silos: list[Records], weights: FloatArray, columns: slice = slice(None)) -> float:
    features = np.concatenate([own.features for own in silos])[:, columns]
    targets = np.concatenate([own.targets for own in silos])
    return float(values_of(loss, features @ weights.reshape(-1, 1), targets).mean())


def _least(loss: Any, silos: list[Records], columns: slice) -> float:
    """Return the least mean loss of weights for these columns."""
    width = silos[0].features[:1, columns].shape[1]

    def mean(weights: FloatArray) -> float:
        return _mean_loss(loss, silos, weights, columns)

    return float(minimize(mean, np.zeros(width)).fun)


def main() -> None:
    """Print a row for each table."""
    print("| table | loss | records, features | preconditioned, ε = 0.5 / 1 / 3 | accelerated |\n|---|---|---|---|---|")
    for table in tables():
        told = [" / ".join(f"{mean:.2f} ± {error:.2f}" for mean, error in regrets(table, how)) for how in RUNS]
        width = parse_schema({"columns": table.columns}, target=table.target).width
        print(
            f"| {table.name} | {table.asked['loss']} | {len(table.frame):,}, {width} | {' | '.join(told)} |", flush=True
        )


if __name__ == "__main__":
    main()
