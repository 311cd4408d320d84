"""How often private intervals for coefficients hold, and how much longer they are than intervals without privacy.

Simulated tables, fresh in every run. All of the budget goes to the summary, which starts from weights of 0. What a silo
computes (`factors`), where the server asks and what it makes of the answers are the product's own; sums are in
floating point and noise is drawn from a seeded generator, once for all rounds that ask at one place.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.estimates.coefficients import (
    CoefficientInterval,
    SiloMoments,
    coefficient_intervals,
    first_moment_request,
    next_moment_request,
    pooled_moments,
)
from ringfence.model.summary import coefficients_in_table_units
from ringfence.planning.defaults import default_loss
from ringfence.planning.query_plans import make_summary_plan
from ringfence.planning.request import Member
from ringfence.protocol import (
    Ball,
    FloatArray,
    Full,
    Gradient,
    Guarantee,
    MinibatchSGD,
    Plan,
    Schema,
    SecondMoments,
    SiloTerms,
    Stage,
    StageTerms,
    Training,
    pack,
    parse_schema,
)
from ringfence.protocol.queries.second_moments import MomentsArgument
from ringfence.research.markdown import table
from ringfence.silo.queries.second_moments import factors

SILOS, RECORDS, EPSILON = 5, 2_000, 1.0
FEATURES = ("x1", "x2", "x3", "x4", "x5")
COEFFICIENTS = np.array([0.3, -0.2, 0.1, 0.0, 0.15, 0.05])
"""Of the features and the constant; four times as large for labels."""
NOISE = 0.15
RUNS, QUICK_RUNS, SEED = 1_000, 5, 2

Table = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Design:
    """How tables come about: whether features are nearly collinear, and how far silos differ.

    `drawn` says that silos' own coefficients are drawn anew in every run: intervals are then by silo.
    """

    name: str
    collinear: bool = False
    different: bool = False
    drawn: bool = False


DESIGNS = (
    Design("well conditioned"),
    Design("badly conditioned", collinear=True),
    Design("heterogeneous silos", different=True),
    Design("silos drawn at random", drawn=True),
)


def coefficient_rows(
    runs: int = 1_000, *, seed: int = 1, watch: Callable[[int, int], None] = lambda done, total: None
) -> list[dict[str, Any]]:
    """Return a row per design and loss: coverage of 95 % intervals, and how they compare with those without privacy.

    Coverage is over all coefficients, and of the two that have least and most of it. The inflation is the median ratio
    of the standard error to the one without privacy, for the coefficient where it is largest.
    """
    cases = [(design, labels) for design in DESIGNS for labels in (False, True)]
    rows = []
    for number, (design, labels) in enumerate(cases):
        rows.append(_row(design, labels, runs, np.random.default_rng([seed, number])))
        watch(number + 1, len(cases))
    return rows


def section(quick: bool, watch: Callable[[int, int], None]) -> str:
    """Write the part of the page."""
    runs = QUICK_RUNS if quick else RUNS
    header = ["design", "loss", "covered", "lowest and highest, for one coefficient", "inflation", "not reported"]
    rows = [
        [
            f"{row['design']}{', by silo' if row['by_silo'] else ''}",
            row["loss"],
            f"{row['coverage']:.1%}",
            f"{row['least_coverage']:.1%} to {row['most_coverage']:.1%}",
            "" if row["inflation"] is None else f"{row['inflation']:.2f}",
            f"{row['unreported']:.1%}",
        ]
        for row in coefficient_rows(runs, seed=SEED, watch=watch)
    ]
    return (
        f"{SILOS} silos of {RECORDS:,} records, {len(FEATURES)} features and a constant, epsilon {EPSILON:g} and the "
        f"default delta for everything; {runs} runs of each design. *Covered* is how often 95 % intervals contained "
        "the coefficient, over all coefficients and for the two with the lowest and highest coverage; *inflation* is "
        "the median ratio of the standard error to the one without privacy, where it is largest. The clipping "
        f"thresholds were chosen by looking at these designs, with other seeds.\n\n{table(header, rows, texts=2)}"
    )


def _row(design: Design, labels: bool, runs: int, random: np.random.Generator) -> dict[str, Any]:
    plan = summary_plan(labels)
    truth = _truth(design, labels, plan)
    found, plain = [], []
    for _ in range(runs):
        features, targets = draw(design, labels, RECORDS, random)
        found.append(private_intervals(plan, features, targets, random, by_silo=design.drawn))
        plain.append(_errors(plan, features, targets)[1])
    known = np.array([[one.is_known for one in run] for run in found])
    holds = np.array([[one.low <= exact <= one.high for one, exact in zip(run, truth, strict=True)] for run in found])
    ratio = np.array([[one.error for one in run] for run in found]) / np.array(plain)
    return {
        "design": design.name,
        "loss": plan.loss.name,
        "runs": runs,
        "by_silo": design.drawn,
        "coverage": float(holds.mean()),
        "least_coverage": float(holds.mean(axis=0).min()),
        "most_coverage": float(holds.mean(axis=0).max()),
        "inflation": None if design.drawn else float(np.median(ratio, axis=0).max()),
        "unreported": float(1 - known.mean()),
    }


def summary_plan(labels: bool, *, epsilon: float = EPSILON, records: int = RECORDS) -> Plan:
    """Return the plan of a summary of weights of 0, of equal silos, for labels or for numbers."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    target = {"type": "categorical", "categories": ["no", "yes"]} if labels else number
    data = parse_schema({"columns": {**dict.fromkeys(FEATURES, number), "y": target}}, target="y")
    members = [Member(f"silo{number}", records, epsilon) for number in range(SILOS)]
    return make_summary_plan(_trained(data), pack(np.zeros(data.width)), members)


def _trained(data: Schema) -> Plan:
    """Return some plan that weights of 0 can have come from."""
    training = Training(loss=default_loss(data), domain=Ball(radius=1.0), algorithm=MinibatchSGD(step=1.0))
    terms = SiloTerms(
        name="silo",
        records=1,
        weight=1.0,
        guarantees=(Guarantee(epsilon=1.0, delta=1e-6),),
        stages=(StageTerms(batch=1, sigma=1.0),),
    )
    stage = Stage(query=Gradient(clip=1.0), rounds=1, sampling=Full())
    return Plan(run="untrained", data=data, training=training, stages=(stage,), silos=(terms,))


def draw(design: Design, labels: bool, records: int, random: np.random.Generator) -> Table:
    """Draw a table: every silo's records, one silo after the other; the last feature is the constant."""
    x = random.uniform(-1.0, 1.0, (SILOS, records, len(FEATURES)))
    if design.collinear:
        x[..., 1] = 0.9 * x[..., 0] + 0.1 * x[..., 1]
        x[..., 3] = 0.3 + 0.15 * x[..., 3]
    own = np.zeros((SILOS, 1, len(FEATURES)))
    place = np.linspace(-1.0, 1.0, SILOS)[:, None, None]
    if design.different:
        x = 0.7 * x + 0.3 * place * np.array([1.0, -1.0, 1.0, 0.0, 0.0])
        own = 0.05 * place * np.array([1.0, 1.0, 0.0, -1.0, 0.0])
    if design.drawn:
        own = 0.03 * random.standard_normal(own.shape)
    scale = 4.0 if labels else 1.0
    scores = scale * (np.sum(x * (COEFFICIENTS[:-1] + own), axis=-1) + COEFFICIENTS[-1])
    noise = random.logistic(size=scores.shape) if labels else NOISE * random.standard_normal(scores.shape)
    if design.different and not labels:
        noise *= 1.0 + 0.6 * place[..., 0]
    targets = np.where(scores + noise > 0, 1.0, -1.0) if labels else np.clip(scores + noise, -1.0, 1.0)
    features = np.concatenate([x, np.ones((SILOS, records, 1))], axis=-1)
    return features.reshape(-1, features.shape[-1]), targets.reshape(-1)


def private_intervals(
    plan: Plan, features: FloatArray, targets: FloatArray, random: np.random.Generator, *, by_silo: bool = False
) -> list[CoefficientInterval]:
    """Return what a summary of that table finds."""
    (stage,), query = plan.stages, plan.stages[0].query
    if not isinstance(query, SecondMoments):
        raise TypeError("not the plan of a summary")
    sigma = {terms.name: terms.stages[0].sigma for terms in plan.silos}

    def answers(asked: MomentsArgument, rounds: int) -> Mapping[str, SiloMoments]:
        exact = exact_answers(plan, asked, features, targets)
        noise = random.standard_normal(exact.shape) / np.sqrt(rounds)
        return {
            terms.name: SiloMoments(terms.weight, sigma[terms.name], row + sigma[terms.name] * own, rounds)
            for terms, row, own in zip(plan.silos, exact, noise, strict=True)
        }

    asked = first_moment_request(query, plan)
    for _ in range(query.pilots):
        asked = next_moment_request(plan, asked, *pooled_moments(answers(asked, 1))[:2])
    half = (stage.rounds - query.pilots) // 2
    one = answers(asked, half)
    then = asked._replace(weights=next_moment_request(plan, asked, *pooled_moments(one)[:2]).weights)
    both = {
        name: own._replace(answer=(own.answer + one[name].answer) / 2, rounds=2 * half)
        for name, own in answers(then, half).items()
    }
    at = asked._replace(weights=(asked.weights + then.weights) / 2)
    _, functions, offsets = coefficients_in_table_units(plan)
    return coefficient_intervals(at, both, len(targets), functions, offsets, level=0.95, by_silo=by_silo)


def exact_answers(plan: Plan, asked: MomentsArgument, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return every silo's answer without noise, of silos of equal sizes."""
    along = features @ asked.axes.T
    v, curvature, pull = factors(
        plan.loss, asked, scores=features @ asked.weights[:, None], along=along, targets=targets
    )
    v, curvature, pull = (array.reshape(len(plan.silos), -1, *array.shape[1:]) for array in (v, curvature, pull))
    one, other = np.triu_indices(v.shape[2])
    scale = np.where(one == other, np.sqrt(0.5), 1.0)

    def squares(weights: FloatArray) -> FloatArray:
        sums: FloatArray = np.matmul((v * weights[..., None]).transpose(0, 2, 1), v)[:, one, other] * scale
        return sums

    gradient = np.matmul(pull[:, None, :], v)[:, 0]
    means: FloatArray = np.concatenate([squares(curvature), gradient, squares(pull**2)], axis=1) / v.shape[1]
    return means


def _truth(design: Design, labels: bool, plan: Plan) -> FloatArray:
    """Return the coefficients that intervals are to hold: those that fit best where silos are different."""
    if not design.different:
        return COEFFICIENTS * (4.0 if labels else 1.0)
    features, targets = draw(design, labels, 400_000, np.random.default_rng(0))
    return _errors(plan, features, targets)[0]


def _errors(plan: Plan, features: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weights of the least loss and their standard errors, without privacy."""
    weights = np.zeros(features.shape[1])
    for _ in range(8):
        scores = (features @ weights)[:, None]
        residuals = plan.loss.residuals(scores, targets)
        inverse = np.linalg.inv(features.T @ (features * plan.loss.curvatures(scores, targets)))
        step = inverse @ (features.T @ residuals[:, 0])
        weights = weights - step
        if np.max(np.abs(step)) < 1e-8:
            break
    scores = features * plan.loss.residuals((features @ weights)[:, None], targets)
    return weights, np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
