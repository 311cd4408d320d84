"""Data sets that differ in one record, and how far that moves a query's answer."""

import math
from typing import Literal

import numpy as np

from ringfence.accounting.charges import task_event
from ringfence.planning.propose import make_plan
from ringfence.planning.request import Member, PlanRequest
from ringfence.protocol import FloatArray, Plan, Schema, parse_schema
from ringfence.protocol.plan.plan import task
from ringfence.silo.channels.own_noise import grid_exponent
from ringfence.silo.gate import mechanism
from ringfence.silo.gate.mechanism import Draws
from ringfence.silo.records.records import Records
from tests.support import shift_in

Target = Literal["label", "number"]
TARGETS: list[Target] = ["label", "number"]


def schema_with(target: Target) -> Schema:
    """Three features without an intercept, so that a record may be any vector of norm up to √3."""
    number = {"type": "numeric", "lower": -1.0, "upper": 1.0}
    label = {"type": "categorical", "categories": ["no", "yes"]}
    columns = {"a": number, "b": number, "c": number, "y": label if target == "label" else number}
    return parse_schema({"columns": columns, "intercept": 0.0}, target="y")


def answer_of(plan: Plan, features: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the answer of the plan's first round but for the noise."""
    work = task(plan, plan.silos[0], 0, 0)
    draws = Draws(np.ones(len(targets)), np.zeros(work.length))
    return mechanism.release(plan, work, np.zeros(3), Records(plan.data, features, targets), draws)


def on_sphere(vectors: FloatArray, norm: float) -> FloatArray:
    scaled: FloatArray = vectors * norm / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return scaled


def bases(random: np.random.Generator, n: int, largest: float) -> list[FloatArray]:
    """Data sets of other records: none but zeros, in one direction, at the bound, inside, and far beyond it."""
    anywhere = random.normal(size=(n, 3))
    return [
        np.zeros((n, 3)),
        np.tile([largest, 0.0, 0.0], (n, 1)),
        on_sphere(anywhere, largest),
        on_sphere(anywhere, largest) * random.uniform(0, 1, (n, 1)),
        100 * anywhere,
    ]


def candidates(random: np.random.Generator, features: FloatArray, largest: float) -> list[FloatArray]:
    """Records to put in: nothing, the eigenvectors, the worst pairs for moments, random ones, and some far too long."""
    _, vectors = np.linalg.eigh(features.T @ features)
    near, far = math.sin(math.pi / 12), math.cos(math.pi / 12)
    worst = largest * np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [far, near, 0.0], [-near, -far, 0.0]])
    at_bound = [*(largest * vectors.T), *worst, *on_sphere(random.normal(size=(4, 3)), largest)]
    return [np.zeros(3), *at_bound, *(1000 * x for x in at_bound[:4]), *random.uniform(-1, 1, (4, 3))]


def surveyed(target: Target, records: int) -> Plan:
    """Return a plan whose first stage asks for the curvature."""
    request = PlanRequest(rounds=3, algorithm="accelerated", survey=True)
    return make_plan(schema_with(target), [Member("clinic", records, 1.0, 1e-6)], request)


def farthest(plan: Plan, target: Target) -> float:
    """Return how far replacing one record moves the answer of the plan's first round, at the most of what is tried."""
    largest, n = plan.data.feature_norm, plan.silos[0].records
    random = np.random.default_rng(n)
    ends = [-1.0, 1.0] if target == "label" else [-1.0, 1.0, 0.0, -50.0, 50.0]
    found = 0.0
    for features in bases(random, n, largest):
        targets = random.choice(ends, size=n)
        answers = []
        for candidate in candidates(random, features, largest):
            for end in ends:
                features[0], targets[0] = candidate, end
                answers.append(answer_of(plan, features, targets))
        moved = np.linalg.norm(np.array(answers)[:, None] - np.array(answers)[None], axis=2)
        found = max(found, float(moved.max()))
    return found


def charged_for(plan: Plan) -> float:
    """Return how far the answer of the plan's first round may move by what is charged for it."""
    terms = plan.silos[0]
    work = task(plan, terms, 0, 0)
    return shift_in(task_event(plan, terms, work)) * work.sigma


def check_bounds_are_public(plan: Plan) -> None:
    """Records beyond the public bounds must count as if they lay on them: three records, and a numeric target."""
    sigma = task(plan, plan.silos[0], 0, 0).sigma
    inside = on_sphere(np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 0.0], [5.0, 5.0, 0.0]]), plan.data.feature_norm)
    beyond = answer_of(plan, inside * [[7.0], [1e6], [1.0]], np.array([9.0, -9.0, 0.5]))
    at_bound = answer_of(plan, inside, np.array([1.0, -1.0, 0.5]))
    np.testing.assert_allclose(beyond, at_bound, atol=1e-12 + 2.0 ** grid_exponent(sigma))
