"""Evaluations of regressions whose errors have outliers and heavy tails: what intervals cover, and what is known.

An evaluation is simulated as one silo with all records and the noise of the mean of `SILOS` silos, which gives the same
answers, and from counts by bin rather than record by record.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringfence.errors import DatasetError
from ringfence.estimates.answers import AnsweredRound, NoisyAnswer, largest_score, read_rounds
from ringfence.estimates.evaluation import model_metrics, next_evaluation_request
from ringfence.estimates.intervals import Interval
from ringfence.estimates.metrics import Metric
from ringfence.protocol import Evaluation, FloatArray, Plan, Schema, Squared
from ringfence.protocol.arrays import TINY
from ringfence.protocol.queries import evaluation as blocks
from ringfence.protocol.queries.evaluation import EvaluationArgument
from ringfence.research import datasets
from ringfence.research.experiments.insurance import public_schema
from ringfence.research.experiments.league.tables import league_folder, load_table
from ringfence.research.experiments.looking_evaluation import SILOS, evaluation_plan, number_metrics
from ringfence.research.markdown import table

SIZES, EPSILONS, RUNS, POPULATION = (100, 300, 1000, 3000), (0.5, 1.0, 3.0), 300, 20_000
FIGURES = ("RMSE", "MAE", "R²", "RMSE of guessing the mean")
WIDE = 5.0
"""How many times wider than tight ones wide bounds are."""

Law = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True)
class Population:
    """Predictions and targets within public bounds: of targets ±1, of predictions ±`reach`."""

    predicted: FloatArray
    targets: FloatArray
    reach: float

    def shrunk(self, factor: float) -> "Population":
        """Return the population as it is within wider bounds."""
        return Population(self.predicted / factor, self.targets / factor, self.reach)


def _outliers(share: float) -> Law:
    def draw(random: np.random.Generator, count: int) -> FloatArray:
        far = random.random(count) < share
        return np.where(far, 50.0 * random.choice([-1.0, 1.0], count), random.standard_normal(count))

    return draw


LAWS: Mapping[str, tuple[float, Law]] = {
    "normal": (0.2, lambda random, count: random.standard_normal(count)),
    "t₃": (0.1, lambda random, count: random.standard_t(3, count)),
    "t₂": (0.1, lambda random, count: random.standard_t(2, count)),
    "lognormal": (0.05, lambda random, count: random.lognormal(0.0, 1.0, count)),
    "0.5 % outliers": (0.02, _outliers(0.005)),
    "2 % outliers": (0.02, _outliers(0.02)),
    "5 % outliers": (0.02, _outliers(0.05)),
}
"""The scale of errors within tight bounds, and their distribution; outliers lie at 50 deviations."""


def made_up(law: str, random: np.random.Generator, count: int = POPULATION) -> Population:
    """Return predictions with errors of a law; targets are clamped to the bounds, as training and evaluation do."""
    scale, draw = LAWS[law]
    predicted = np.clip(0.2 * random.standard_normal(count), -1.0, 1.0)
    return Population(predicted, np.clip(predicted + scale * draw(random, count), -1.0, 1.0), 1.0)


def _fitted(features: FloatArray, targets: FloatArray, schema: Schema) -> Population:
    """Return the predictions of ridge regression for a table's own records."""
    moments = features.T @ features / len(features) + 1e-3 * np.eye(features.shape[1])
    weights: FloatArray = np.asarray(np.linalg.solve(moments, features.T @ targets / len(features)), dtype=np.float64)
    bound, largest = schema.target_bound, largest_score(schema, Squared(), weights)
    return Population(features @ weights / bound, targets / bound, largest / bound)


def tables(data_dir: Path | None = None) -> dict[str, Population]:
    """Return the tables with amounts: medical charges, wages in dollars up to a million, and hourly rentals."""
    charges = datasets.load_table(datasets.INSURANCE, public_schema(), data_dir)
    found = {"insurance charges": _fitted(charges.features, charges.targets, public_schema())}
    folder = league_folder(data_dir)
    for name in ("wages", "bike"):
        own = load_table(folder, name)
        features, targets = own.pooled
        if name == "wages":
            unit, offset = own.schema.target_scaling
            targets = np.clip(np.exp(unit * targets + offset) / 5e5 - 1, -1.0, 1.0)
        found[{"wages": "wages in dollars", "bike": "bicycle rentals"}[name]] = _fitted(features, targets, own.schema)
    return found


def answer(plan: Plan, asked: EvaluationArgument, predicted: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the exact answer of records to an evaluation of a regression, from counts by bin."""
    query, edges, errors = Evaluation(), asked.bin_edges, np.abs(predicted - targets)
    centre, reach = edges["target"]
    place = np.clip((targets - centre) / reach, -1.0, 1.0)

    def tree(name: str, levels: int, values: FloatArray) -> FloatArray:
        counts = np.bincount(np.searchsorted(np.sort(edges[name]), values, side="right"), minlength=2**levels)
        return counts / len(values) @ (blocks.path_signs(levels) * blocks.node_weights(levels))

    means = {
        "below": np.mean(np.where(targets <= predicted, 1.0, -1.0)),
        "residuals": tree("residuals", blocks.RESIDUAL_LEVELS, errors),
        "squared": np.mean(np.minimum(errors / edges["squared"], 1.0) ** 2),
        "absolute": np.mean(np.minimum(errors / edges["absolute"], 1.0)),
        "targets": tree("targets", blocks.TARGET_LEVELS, targets),
        "target": np.array([np.mean(place), blocks.CURVE * np.mean(place**2)]),
        "loss": np.mean(np.minimum(errors**2 / 2 / edges["loss"], 1.0)),
    }
    return np.concatenate([np.atleast_1d(means[name]) * scale for name, scale in query.scale(plan, asked).items()])


@dataclass(frozen=True)
class Reported:
    """A figure's interval in one run, or its stand-in's, and the value in the population.

    A figure is `known` if it has a value, not only an interval, and nothing stands in for it.
    """

    interval: Interval
    truth: float
    is_known: bool

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative to the truth."""
        return (self.interval.high - self.interval.low) / 2 / max(abs(self.truth), TINY)

    @property
    def is_covered(self) -> bool:
        """Whether the interval contains the population's value."""
        return self.interval.low <= self.truth <= self.interval.high


def evaluate(plan: Plan, population: Population, random: np.random.Generator) -> dict[str, Reported]:
    """Evaluate fresh records of a population, and return what was reported for every figure that was."""
    query, rounds = Evaluation(figures=FIGURES[:3]), list[AnsweredRound]()
    count, sigma = SILOS * plan.silos[0].records, plan.silos[0].stages[0].sigma / math.sqrt(SILOS)
    chosen = random.integers(len(population.targets), size=count)
    for last in (False, True):
        argument = next_evaluation_request(query, plan, np.ones(1), None, rounds, last=last)
        exact = answer(plan, argument, population.predicted[chosen], population.targets[chosen])
        noisy = NoisyAnswer(exact + sigma * random.normal(size=len(exact)), sigma, count)
        rounds.append(AnsweredRound(argument.packed(), {"all": noisy}))
    metrics = {one.name: one for one in model_metrics(read_rounds(query, plan, rounds), query.figures).metrics}
    known = number_metrics(population.predicted, population.targets, query.read(plan, rounds[-1].argument).bin_edges)
    found = {}
    for figure in FIGURES:
        for name in (figure, f"{figure} of clipped errors", f"{figure} of clipped targets"):
            own = metrics.get(name, Metric(name=name))
            if own.low is not None and own.high is not None:
                is_known = name == figure and own.value is not None
                found[figure] = Reported(Interval(own.low, own.high), known[name], is_known)
    return found


def populations(random: np.random.Generator) -> list[tuple[str, str, Population]]:
    """Return simulated populations, and tables where the data are at hand, each with its name and kind of bounds."""
    found = []
    for law in LAWS:
        own = made_up(law, random)
        found += [(law, "tight", own), (law, "wide", own.shrunk(WIDE))]
    with contextlib.suppress(DatasetError):
        found += [(name, "public", own) for name, own in tables().items()]
    return found


def section(quick: bool, watch: Callable[[int, int], None]) -> str:
    """Evaluate every population with all sizes and budgets, and write the table."""
    random, lines = np.random.default_rng(0), []
    sizes, epsilons, runs = ((300, 1000), (1.0,), 3) if quick else (SIZES, EPSILONS, RUNS)
    every = populations(random)
    for done, (name, bounds, own) in enumerate(every):
        found = {
            (epsilon, size): [
                evaluate(evaluation_plan(Squared(), size, epsilon, own.reach), own, random) for _ in range(runs)
            ]
            for epsilon in epsilons
            for size in sizes
        }
        lines.append([name, bounds, *_row(own, found)])
        watch(done + 1, len(every))
    shown = [f"RMSE itself, {size:,}" for size in _SHOWN]
    head = ["errors", "bounds", "largest/RMSE", *(f"{name} covered" for name in _HEADS), *shown, "half-width, 1,000"]
    words = _WORDS.format(
        runs=runs, sizes=", ".join(f"{size:,}" for size in sizes), epsilons=", ".join(map("{:g}".format, epsilons))
    )
    return "\n\n".join([words, table(head, lines, texts=2)])


def _row(own: Population, found: Mapping[tuple[float, int], Sequence[Mapping[str, Reported]]]) -> list[str]:
    """Return how far errors may lie out, the coverage of every figure, and how often and how well an RMSE is known."""
    square = float(np.mean((own.predicted - own.targets) ** 2))
    cells = [f"{(1 + own.reach) / math.sqrt(square):.0f}"]
    for figure in FIGURES:
        each = [[one[figure].is_covered for one in runs if figure in one] for runs in found.values()]
        every = [covered for runs in each for covered in runs]
        often = [
            float(np.mean(got)) for got, runs in zip(each, found.values(), strict=True) if 2 * len(got) > len(runs)
        ]
        cells.append(f"{np.mean(every):.1%} ({min(often):.1%})" if often else "")
    for size in _SHOWN:
        runs = found.get((1.0, size), [])
        known = [one["RMSE"].is_known for one in runs if "RMSE" in one]
        cells.append(f"{sum(known) / len(runs):.0%}" if runs else "")
    widths = [one["RMSE"].half_width for one in found[1.0, 1000] if "RMSE" in one]
    return [*cells, f"{np.median(widths):.1%}"]


_HEADS = ("RMSE", "MAE", "R²", "guessing")
_SHOWN = (300, 1000, 3000)
_WORDS = (
    "An RMSE, MAE, R² or RMSE of guessing the mean depends on how large the largest few errors or targets are, "
    "which noise must hide. The public bounds of targets and scores limit them. Where noise is small enough to "
    "count everything up to that limit, the figure is reported as itself. Elsewhere the figure of clipped errors "
    "or targets stands in, under its own name and with the share of errors beyond the clip. No interval assumes "
    "anything about tails.\n\n"
    f"{SILOS} silos of {{sizes}} records each, ε = {{epsilons}} for each record, {{runs}} runs for each size and "
    f"ε. Records are drawn from a population of {POPULATION:,}, or from a table; its targets are clamped to the "
    f"bounds, as training and evaluation see them. Outliers lie at 50 deviations; wide bounds are {WIDE:g} times "
    "as wide as tight ones. *Covered* is how often the 95 % interval of what was reported contained the "
    "population's value: over all sizes and ε, and in brackets the lowest of those that reported the figure in "
    "more than half of the runs. The last columns are for ε = 1: how often the RMSE was reported as itself, and, "
    "with 1,000 records in each silo, the median half-width of its or its stand-in's interval, in percent of the "
    "value."
)
