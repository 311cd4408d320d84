"""How well candidates are told apart by a budget: compared together, or each evaluated by itself with its share.

Made-up records of two classes in four silos; candidates are the best weights with noise of a few sizes. Both ways spend
the same on the held-out records: half of (epsilon, 1e-6). `python -m benchmarks.choosing`
"""

import json
import math

import numpy as np

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.estimates import comparison
from ringfence.estimates.answers import NoisyAnswer
from ringfence.estimates.comparison import ComparedLosses
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member
from ringfence.planning.search import LOSSES, SIZES
from ringfence.protocol import Comparison, FloatArray, Plan, parse_schema
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

RUNS = 400
WIDTH = 10
SILOS = 4


def main() -> None:
    """Print, for each setting, the error of differences of losses and what choosing by them costs."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    columns = {f"x{place}": number for place in range(WIDTH)}
    data = parse_schema(
        {"columns": columns | {"y": {"type": "categorical", "categories": ["no", "yes"]}}, "radius": 1.0}, target="y"
    )
    plan = make_plan(data, [Member("silo", 1000, 1.0, 1e-6)])
    rows = []
    for records in (100, 1000):
        for count in (2, 6, 24):
            for epsilon in (0.5, 1.0, 3.0):
                found = np.array(
                    [_one(plan, records, count, epsilon, np.random.default_rng(run)) for run in range(RUNS)]
                )
                root, mean = np.sqrt(np.mean(found[:, :2] ** 2, axis=0)), np.mean(found[:, 2:], axis=0)
                rows.append(
                    {
                        "held out per silo": records,
                        "candidates": count,
                        "epsilon": epsilon,
                        "error together": round(float(root[0]), 4),
                        "error by itself": round(float(root[1]), 4),
                        "lost together": round(float(mean[0]), 4),
                        "lost by itself": round(float(mean[1]), 4),
                        "lost by chance": round(float(mean[2]), 4),
                    }
                )
    print(json.dumps(rows, indent=1))


def _one(plan: Plan, records: int, count: int, epsilon: float, random: np.random.Generator) -> list[float]:
    """Return both ways' errors of a difference, and the losses that choosing by them, and by chance, gives up."""
    best = np.append(np.array([4.0, -3.0, 2.0] + [0.0] * (WIDTH - 3)), 0.5)
    models = best + random.normal(size=(count, plan.dimension)) * random.choice([0.3, 1.0, 2.0], size=(count, 1))
    shift = gaussian_shift(epsilon, 1e-6)
    features = random.normal(size=(SILOS * records, WIDTH))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1.0)
    whole = np.column_stack([np.ones(len(features)), features])[:, : plan.data.width]
    targets = np.where(whole @ best[: plan.data.width] + random.logistic(size=len(whole)) > 0, 1.0, -1.0)
    table = Records(plan.data, whole, targets)
    exact = np.array([np.mean(plan.loss.values(table.features @ own.reshape(-1, 1), table.targets)) for own in models])
    together = _together(plan, table, models, shift, random)
    cap = 2.0  # where an evaluation cuts losses before it knows more; half of the shift, and 1/k of it each
    cut = [
        np.mean(np.minimum(plan.loss.values(table.features @ own.reshape(-1, 1), table.targets), cap)) for own in models
    ]
    sigma = cap * math.sqrt(count) / (records * shift * math.sqrt(0.5)) / math.sqrt(SILOS)
    itself = np.array(cut) + random.normal(0.0, sigma, count)
    return [
        float((together[1] - together[0]) - (exact[1] - exact[0])),
        float((itself[1] - itself[0]) - (exact[1] - exact[0])),
        float(exact[np.argmin(together)] - exact.min()),
        float(exact[np.argmin(itself)] - exact.min()),
        float(exact.mean() - exact.min()),
    ]


def _together(plan: Plan, table: Records, models: FloatArray, shift: float, random: np.random.Generator) -> FloatArray:
    records, count = len(table) // SILOS, len(models)
    heard = {}
    edges = comparison.difference_edges(plan, models)
    bin_edges = edges
    for part, share in (("sizes", SIZES), ("losses", LOSSES)):
        query = Comparison.model_validate({"models": count, "part": part})
        sigma = 1 / (records * shift * math.sqrt(share)) / math.sqrt(SILOS)
        argument = np.concatenate([models.reshape(-1), bin_edges])
        answer = compute(query, plan, argument, table, np.ones(len(table)), len(table))
        heard[part] = NoisyAnswer(answer + random.normal(0.0, sigma, len(answer)), sigma, len(table))
        if part == "sizes":
            later = sigma * math.sqrt(SIZES / LOSSES)
            bin_edges = np.array([comparison.difference_clip(query, edges, heard["sizes"], later)])
    return ComparedLosses.of(query, float(bin_edges[0]), heard["losses"]).losses


if __name__ == "__main__":
    main()
