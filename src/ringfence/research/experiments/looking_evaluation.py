"""Evaluations of simulated models whose figures are known: how far private ones are off, and what intervals cover."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import rankdata

from ringfence.accounting import calibrate
from ringfence.accounting.charges import plan_events
from ringfence.estimates.answers import read_rounds
from ringfence.estimates.evaluation import model_metrics
from ringfence.estimates.metrics import Metric, ModelMetrics
from ringfence.protocol import (
    Evaluation,
    FloatArray,
    Full,
    Guarantee,
    Logistic,
    Loss,
    Plan,
    SiloTerms,
    Softmax,
    Squared,
    Stage,
    StageTerms,
    pack,
    parse_schema,
)
from ringfence.research.markdown import bullets, table
from ringfence.server.queries.evaluation import EvaluationFindings, argument, receive
from ringfence.server.state import RoundAnswers, ServerState
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

EPSILON, DELTA, SILOS, ROUNDS, RUNS = 1.0, 1e-6, 4, 2, 300
OTHER_SIZES, POPULATION = (100, 300, 3000), 200_000
REACH = 100.0
"""The largest score that the schema's bounds allow; it is the only feature, and the model's weight is 1."""

Data = tuple[FloatArray, FloatArray]
BinEdges = Mapping[str, FloatArray]


@dataclass(frozen=True)
class Design:
    """Scores (of several classes, several) and targets of so many records, as they come by chance."""

    loss: Loss
    draw: Callable[[np.random.Generator, int], Data]


def _labels(share: float, apart: float, spread: float, centre: float = 0.0) -> Design:
    def draw(random: np.random.Generator, count: int) -> Data:
        positive = random.random(count) < share
        scores = centre + random.normal(np.where(positive, apart, -apart), spread)
        return scores[:, None], np.where(positive, 1.0, -1.0)

    return Design(Logistic(), draw)


def _numbers(
    spread: float,
    error: float,
    centre: float = 0.0,
    law: Callable[[np.random.Generator, int], FloatArray] | None = None,
) -> Design:
    def draw(random: np.random.Generator, count: int) -> Data:
        predicted = centre + spread * random.standard_normal(count)
        off = random.standard_normal(count) if law is None else law(random, count)
        return predicted[:, None], np.clip(predicted + error * off, -1.0, 1.0)

    return Design(Squared(), draw)


def _classes(random: np.random.Generator, count: int) -> Data:
    own = random.choice(5, size=count, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    return 1.5 * np.eye(5)[own] + random.normal(size=(count, 5)), own.astype(np.float64)


DESIGNS: dict[str, Design] = {
    "balanced": _labels(0.5, 1.0, 1.2),
    "5 % positives": _labels(0.05, 0.5, 0.7, -2.5),
    "crowded near 0": _labels(0.5, 0.02, 0.024),
    "far out": _labels(0.4, 30.0, 36.0),
    "weak model": _labels(0.5, 0.1, 0.5),
    "strong model": _labels(0.5, 3.0, 1.5),
    "five classes": Design(Softmax(classes=5), _classes),
    "Gaussian errors": _numbers(0.2, 0.1),
    "small errors": _numbers(0.02, 0.005),
    "poor model": _numbers(0.2, 0.3),
    "crowded targets": _numbers(0.01, 0.005, 0.7),
    "Laplace errors": _numbers(0.1, 0.05, law=lambda random, count: random.laplace(size=count)),
    "t₄ errors": _numbers(0.1, 0.03, law=lambda random, count: random.standard_t(4, size=count)),
    "lognormal errors": _numbers(0.1, 0.02, law=lambda random, count: random.lognormal(0.0, 0.8, size=count)),
}


def plan_of(design: str, records: int) -> Plan:
    """Return a plan that evaluates the simulated model on as many records of each silo, for the whole budget."""
    return evaluation_plan(DESIGNS[design].loss, records)


@cache
def evaluation_plan(loss: Loss, records: int, epsilon: float = EPSILON, reach: float = REACH) -> Plan:
    """Return a plan that evaluates a model whose scores are the features, of at most `reach`."""
    number = {"type": "numeric", "lower": -reach, "upper": reach, "center": 0.0, "scale": 1.0}
    target = {
        "label": {"type": "categorical", "categories": ["no", "yes"]},
        "class": {"type": "categorical", "categories": [f"class {each}" for each in range(loss.outputs)]},
        "number": {"type": "numeric", "lower": -1.0, "upper": 1.0},
    }[loss.target_kind]
    scores = {f"score {each}": number for each in range(loss.outputs)}
    data = parse_schema({"columns": {**scores, "target": target}, "intercept": 0.0}, target="target")
    query = Evaluation(weights=pack(np.eye(loss.outputs).reshape(-1)))
    stage = Stage(query=query, rounds=ROUNDS, sampling=Full())

    def terms(name: str, sigma: float) -> SiloTerms:
        claim = Guarantee(epsilon=epsilon, delta=DELTA)
        own = (StageTerms(batch=records, sigma=sigma),)
        return SiloTerms(name=name, records=records, weight=1 / SILOS, guarantees=(claim,), stages=own)

    def plan(sigma: float) -> Plan:
        silos = tuple(terms(f"silo {each}", sigma) for each in range(SILOS))
        return Plan(run="looking", data=data, model_loss=loss, stages=(stage,), silos=silos)

    draft = plan(1.0)
    return plan(
        calibrate.least_noise(
            lambda sigma: plan_events(draft, terms("silo 0", sigma)), epsilon=epsilon, delta=DELTA, start=4 / records
        )
    )


def evaluate(plan: Plan, silos: Mapping[str, Data], random: np.random.Generator) -> tuple[ModelMetrics, BinEdges]:
    """Evaluate as silos and server do, with Gaussian noise of the plan's size; and return the last bin_edges."""
    query, learned = plan.stages[0].query, ServerState.initial(plan)
    assert isinstance(query, Evaluation)  # noqa: S101 (`plan_of` asks no other)
    for round in range(plan.rounds):
        asked = argument(query, learned, round)
        each = {}
        for terms in plan.silos:
            features, targets = silos[terms.name]
            exact = compute(
                query, plan, asked, Records(plan.data, features, targets), np.ones(terms.records), terms.records
            )
            each[terms.name] = exact + terms.stages[0].sigma * random.normal(size=len(exact))
        learned = receive(query, learned, RoundAnswers(0, round, list(each), np.zeros(0), each))
    found = learned.findings[query.name]
    rounds = found.rounds if isinstance(found, EvaluationFindings) else ()
    return model_metrics(read_rounds(query, plan, rounds)), query.read(plan, rounds[-1].argument).bin_edges


def exact_metrics(loss: Loss, data: Data) -> dict[str, float]:
    """Return the exact metrics of records."""
    scores, targets = data
    if loss.target_kind == "number":
        below = float(np.mean(targets <= scores[:, 0]))
        return {**number_metrics(scores[:, 0], targets), "share of targets below the prediction": below}
    if loss.target_kind == "class":
        return {"accuracy": float(np.mean(np.argmax(scores, axis=1) == targets))}
    score, positive = scores[:, 0], targets > 0
    ranks, count = rankdata(score), int(positive.sum())
    ordered = positive[np.argsort(-score, kind="stable")]
    found = np.cumsum(ordered)[ordered] / (np.flatnonzero(ordered) + 1.0)
    return {
        "accuracy": float(np.mean((score > 0) == positive)),
        "AUC": float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(score) - count))),
        "average precision": float(np.mean(found)) if count else math.nan,
        "recall": float(np.mean(score[positive] > 0)),
        "precision": float(np.mean(positive[score > 0])) if np.any(score > 0) else math.nan,
        "Brier score": float(np.mean((1 / (1 + np.exp(-score)) - positive) ** 2)),
    }


def number_metrics(predicted: FloatArray, targets: FloatArray, bin_edges: BinEdges | None = None) -> dict[str, float]:
    """Return the exact metrics of a regression; with bin edges, also those of clipped errors and targets."""
    error, names, clipped = np.abs(predicted - targets), _NUMBERS, [math.inf, math.inf]
    if bin_edges is not None:
        whole = number_metrics(predicted, targets)
        clipped = [float(bin_edges[name][0]) for name in ("squared", "absolute")]
        centre, reach = bin_edges["target"]
        names, targets = _CLIPPED_NUMBERS, np.clip(targets, centre - reach, centre + reach)
    square, size = (np.minimum(error, clip) ** power for clip, power in zip(clipped, (2, 1), strict=True))
    variance = float(np.var(targets))
    found = math.sqrt(square.mean()), float(size.mean()), math.sqrt(variance), 1 - float(square.mean()) / variance
    own = dict(zip(names, found, strict=True))
    return own if bin_edges is None else whole | own


_NUMBERS = ("RMSE", "MAE", "RMSE of guessing the mean", "R²")
_CLIPPED_NUMBERS = (
    "RMSE of clipped errors",
    "MAE of clipped errors",
    "RMSE of guessing the mean of clipped targets",
    "R² of clipped errors",
)


def clipped_metrics(loss: Loss, data: Data, bin_edges: BinEdges) -> dict[str, float]:
    """Return the metrics that depend on the clipping of errors and losses."""
    if loss.target_kind == "number":
        return number_metrics(data[0][:, 0], data[1], bin_edges)
    figures = {"log loss": float(np.mean(np.minimum(loss.values(*data), bin_edges["loss"][0])))}
    if loss.target_kind == "label":
        below, above = np.split(bin_edges["scores"], 2)
        score = data[0][:, 0]
        bins = np.searchsorted(np.concatenate([-below[::-1], [0.0], above]), score) // 4
        apart = np.bincount(bins, 1 / (1 + np.exp(-score)) - (data[1] > 0))
        figures["expected calibration error"] = float(np.sum(np.abs(apart))) / len(score)
    return figures


@dataclass(frozen=True)
class Precision:
    """Of a figure in some runs: its root mean square error against the records' own, how often the interval covered
    the population's, how wide it was on average, and how often it was too wide to report a value."""

    truth: float
    error: float
    covered: float
    width: float
    unreported: float


def measure(design: str, records: int, runs: int, seed: int = 0, population: int = POPULATION) -> dict[str, Precision]:
    """Evaluate again and again, each time on fresh records."""
    plan, random = plan_of(design, records), np.random.default_rng(seed)
    loss, draw = DESIGNS[design].loss, DESIGNS[design].draw
    everybody = draw(random, population)
    seen: dict[str, list[tuple[float, float, float]]] = {}
    truths = exact_metrics(loss, everybody)
    for _ in range(runs):
        silos = {terms.name: draw(random, records) for terms in plan.silos}
        found, bin_edges = evaluate(plan, silos, random)
        reported = {metric.name: metric for metric in found.metrics}
        scores, targets = (np.concatenate(parts) for parts in zip(*silos.values(), strict=True))
        sample = scores, targets
        truths |= clipped_metrics(loss, everybody, bin_edges)
        for name, own in (exact_metrics(loss, sample) | clipped_metrics(loss, sample, bin_edges)).items():
            metric, covered, width = reported.get(name, Metric(name=name)), math.nan, math.nan
            if metric.low is not None and metric.high is not None:
                covered, width = float(metric.low <= truths[name] <= metric.high), metric.high - metric.low
            error = math.nan if metric.value is None else metric.value - own
            seen.setdefault(name, []).append((error, covered, width))
    result = {}
    for name, rows in seen.items():
        error, covered, width = (values[~np.isnan(values)] for values in np.array(rows).T)
        square, held, wide = (float(np.mean(own)) if len(own) else math.nan for own in (error**2, covered, width))
        result[name] = Precision(truths[name], math.sqrt(square), held, wide, 1 - len(error) / runs)
    return result


def section(quick: bool, watch: Callable[[int, int], None]) -> str:
    """Measure every design, and the first two at other numbers of records, and write the tables."""
    sizes = dict.fromkeys(DESIGNS, 1000)
    wanted = [*sizes.items(), *(() if quick else [("balanced", n) for n in OTHER_SIZES])]
    wanted += [] if quick else [("Gaussian errors", n) for n in OTHER_SIZES]
    lines, missed = [], []
    for number, (design, records) in enumerate(wanted):
        runs, population = (3, 10_000) if quick else (RUNS, POPULATION)
        for name, found in measure(design, records, runs, number, population).items():
            if math.isnan(found.covered) and name in (*_NUMBERS, *_CLIPPED_NUMBERS):
                continue  # its stand-in has a line
            relative = found.error / abs(found.truth) if found.truth else math.nan
            numbers = f"{found.truth:.4f}", f"{found.error:.4f}", f"{relative:.1%}", f"{found.covered:.1%}"
            known = ["" if "nan" in text else text for text in (*numbers, f"{found.width:.4f}")]
            lines.append([design, str(records), name, *known, f"{found.unreported:.0%}"])
            if records == 1000 and name in GOALS:
                reached = relative if name.startswith("RMSE") else found.error
                missed += [f"{design}: {name} errs by {reached:.2g}"] * (reached > GOALS[name])
                missed += [f"{design}: {name} is covered in {found.covered:.1%}"] * (found.covered < 0.93)
        watch(number + 1, len(wanted))
    head = ["design", "records", "figure", "truth", "error", "relative", "covered", "width", "not reported"]
    runs_and_goals = _WORDS.format(runs=3 if quick else RUNS)
    return "\n\n".join([runs_and_goals, bullets(missed or ["none"]), table(head, lines, texts=3)])


GOALS = {"accuracy": 0.006, "AUC": 0.015, "RMSE of clipped errors": 0.03}
"""How far figures may be off with 1,000 records in each silo; the RMSE relative to itself."""

RARE_AUC = 1 / (50 * calibrate.gaussian_shift(EPSILON, DELTA)) / math.sqrt(SILOS)
"""What noise alone leaves of an AUC of 50 positives in each silo, if nothing else is asked."""

_WORDS = (
    f"{SILOS} silos evaluate a model on held-out records, with the stated number in each, at ε = {EPSILON:g}, δ = "
    f"{DELTA:g} for each record and the whole evaluation, which takes {ROUNDS} rounds. Records and noise are fresh in "
    "each of {runs} runs. *Error* is the root mean square distance of a private figure from that of the same records; "
    f"*covered* is how often the 95 % interval contained the figure of the population ({POPULATION} records), *width* "
    "its average width, also where it was too wide to report a value with it (*not reported*). Losses, and errors "
    "where the figure says so, are clipped where the last round clipped them. How the budget is divided and where "
    "values are clipped was chosen by looking at these designs, with up to 1,000 records; 3,000 came after.\n\nWith "
    "few positives an AUC says little at this budget, however it is asked: with 5 %, a silo has 50, and replacing one "
    "moves their mean rank by up to 1/50. Noise that hides this, with all of the budget spent on that one number, "
    f"leaves an error of {RARE_AUC:.3f} in the mean of {SILOS} silos.\n\nAn average precision's interval comes from "
    "bands that hold at all thresholds at once, and an expected calibration error's adds up the errors of all bins: "
    "both cover more than 95 %. So do intervals near a bound: if noise puts a value beyond it (an AUC above 1), the "
    "interval moves to the bound with it. Scores of numbers may be 100 times as large as targets here, so that errors "
    "are clipped; the [next section](#errors-with-outliers) says when they are not.\n\nWith 1,000 records in each silo "
    "the error, a root mean square, should be at most 0.006 for an accuracy, 0.015 for an AUC and 3 % for an RMSE of "
    "clipped errors, and each should be covered in at least 93 % of the runs (the standard error of such a share is "
    "1.3 %). Missed:"
)
