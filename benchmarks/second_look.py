"""Would a look at the loss's curvature in the middle of training pay? Preconditioned descent with and without one.

    python -m benchmarks.second_look [EPSILON ...]

After half of the rounds the server asks for second moments once more, along the axes that the survey found: those of
the features again, or weighted by how much the loss curves at the current weights, as a Newton method would. A tenth of
the budget pays for it, as for each look of the survey, and training has less. Beside that, the same looks without noise
and for nothing: no look can do better. Axes, clip and step are then decided anew by the same rule.

Tables with labels: four of the league, and three that statsmodels carries, cut at random into four silos. Ten simulated
runs each; epsilon (0.5, 1 and 3 unless named) is that of one run, for each record, against anyone who sees what its
silo sends. Errors are rates of wrong labels. RINGFENCE_DATA names the folder that holds the league.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.small import table
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, parse_schema
from ringfence.protocol.queries.feature_moments import WEIGHT
from ringfence.rehearsal.answers import NoiselessAnswers
from ringfence.research.experiments.league.tables import LeagueTable, league_folder, load_table
from ringfence.server.algorithms import algorithm_of, survey
from ringfence.server.algorithms.whitening import PrincipalAxes, noise_edge, principal_axes
from ringfence.server.queries import handler_of
from ringfence.server.queries.feature_moments import MomentsSurvey
from ringfence.server.state import RoundAnswers, ServerState
from ringfence.silo.records.records import load_records
from ringfence.simulation.trials import simulated_state

LEAGUE, CARRIED, SILOS, RUNS, SHARE = ("adult", "bank", "digits", "oj"), ("anes96", "fair", "visits"), 4, 10, 0.1
LOOKS = {
    "default": (None, False),
    "moments, free": ("moments", True),
    "curvature, free": ("curvature", True),
    "moments": ("moments", False),
    "curvature": ("curvature", False),
}


def tables() -> Iterator[LeagueTable]:
    """Load the tables."""
    folder: Path = league_folder(None)
    for name in LEAGUE:
        yield load_table(folder, name)
    for name in CARRIED:
        own = table(name)
        schema = parse_schema({"columns": own.columns}, target=own.target)
        frame = own.frame[list(own.columns)].sample(frac=1, random_state=0).reset_index(drop=True)
        tested = len(frame) // 5
        parts = [frame.iloc[tested + place :: SILOS].reset_index(drop=True) for place in range(SILOS)]
        silos = {f"silo {place}": load_records(part, schema) for place, part in enumerate(parts)}
        yield LeagueTable(name, schema, silos, {"test": load_records(frame.iloc[:tested], schema)})


def bends(plan: Plan, scores: FloatArray) -> FloatArray:
    """Return how much the loss curves for each record, in units of the most that two labels can."""
    if plan.loss.outputs == 1:
        odd = 1 / (1 + np.exp(-scores[:, 0]))
        return 4 * odd * (1 - odd)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    result: FloatArray = 4 * (1 - np.sum(likely**2, axis=1)) / (plan.loss.outputs - 1)
    return np.minimum(result, 1.0)


def looked(
    own: LeagueTable, learned: ServerState, shares: FloatArray, kind: str, free: bool, random: np.random.Generator
) -> ServerState:
    """Return what is known after one more look, with axes, clip and step decided anew."""
    plan, found = learned.plan, learned.findings["feature-moments"]
    if not isinstance(found, MomentsSurvey):
        raise TypeError("no survey was made")
    features, width = own.pooled[0], plan.data.width
    along = features @ found.axes.T
    along /= np.maximum(np.linalg.norm(along, axis=1), 1.0)[:, None]
    scores = features @ learned.state.weights.reshape(own.shape)
    weights = shares * (bends(plan, scores) if kind == "curvature" else 1.0)
    total = float(np.sum(weights))
    matrix, noise = (along * weights[:, None]).T @ along / total, found.noise / total
    if free:
        sizes, vectors = np.linalg.eigh(matrix)
        seen = PrincipalAxes(vectors.T @ found.axes, np.maximum(sizes, 0.0), noise_edge(found.noise, width))
    else:
        upper = np.triu(random.normal(size=(width, width)) * noise / math.sqrt(2), 1)
        seen = principal_axes(found.axes, matrix + upper + upper.T + np.diag(random.normal(size=width) * noise), noise)
    looks = found.target
    target = survey.estimate_from_class_shares(looks.shares / looks.rounds, found.noise / WEIGHT / looks.rounds**0.5)
    prepared = algorithm_of(plan).after_survey(plan, seen, target)
    return learned if prepared is None else replace(learned, settings=prepared[0])


def error(own: LeagueTable, plan: Plan, seed: int, kind: str | None, free: bool) -> float:
    """Return the error of one simulated run."""
    silos, random = list(own.silos.values()), np.random.default_rng([seed, 1])
    learned, held = simulated_state(plan, silos, seed), NoiselessAnswers(plan, silos)
    names = tuple(terms.name for terms in plan.silos)
    shares = np.concatenate([np.full(len(s), t.weight / len(s)) for s, t in zip(silos, plan.silos, strict=True)])
    query, number = plan.training_stages[0].query, plan.training_numbers[0]
    paid = SHARE if kind is not None and not free else 0.0
    noise = survey.training_noise(plan) * math.sqrt((1 - 2 * SHARE) / (1 - 2 * SHARE - paid))
    for step in range(plan.steps):
        if kind is not None and step == plan.steps // 2:
            learned = looked(own, learned, shares, kind, free, random)
        server, round = handler_of(query), plan.first_rounds[number] + step
        (exact,) = held.means(query, [server.argument(query, learned, round)])
        mean = exact + noise * random.standard_normal(exact.size)
        learned = server.receive(query, learned, RoundAnswers(number, round, names, mean))
    return own.error(learned.model())


def main() -> None:
    """Print a row for each table and epsilon, and the geometric means of the errors in units of the default's."""
    print(f"| table | ε | {' | '.join(LOOKS)} |\n|---|---:|{'---:|' * len(LOOKS)}")
    ratios: dict[float, list[FloatArray]] = {}
    for own in tables():
        for epsilon in [float(text) for text in sys.argv[1:]] or [0.5, 1.0, 3.0]:
            members = [Member(name, size, epsilon) for name, size in own.sizes.items()]
            plan = make_plan(own.schema, members, PlanRequest(algorithm="preconditioned", held_out=0.0, curves=0))
            found = np.array(
                [[error(own, plan, seed, kind, free) for seed in range(RUNS)] for kind, free in LOOKS.values()]
            )
            means, spreads = found.mean(axis=1), found.std(axis=1, ddof=1) / RUNS**0.5
            ratios.setdefault(epsilon, []).append(np.log(means / means[0]))
            told = (f"{mean:.4f} ± {spread:.4f}" for mean, spread in zip(means, spreads, strict=True))
            print(f"| {own.name} | {epsilon:g} | {' | '.join(told)} |", flush=True)
    for epsilon, logarithms in ratios.items():
        told = (f"{ratio:.3f}" for ratio in np.exp(np.mean(logarithms, axis=0)))
        print(f"| all, in units of the default | {epsilon:g} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
