"""Questions that one canary moves at a time, each set up for its worst case: one record or another, among zeros.

Each has the records for a coin, how answers are read, and, where a server may choose what it asks, what that is.
"""

import math
from collections.abc import Sequence

import numpy as np

from ringfence.audit.adversary import Observation, read_difference
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import pack
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation, SecondMoments
from ringfence.protocol.questions.second_moments import Asked
from ringfence.protocol.schedule import task
from ringfence.silo.questions.evaluation import compute as evaluated
from ringfence.silo.questions.second_moments import compute as second_moments
from ringfence.silo.records import Records


def curvature_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm, or of none, among zeros: the eigenvalue is X²/n or 0."""
    records = plan.silos[0].records
    features = np.zeros((records, 2))
    features[0, 0] = (coins[0] + 1) / 2
    return Records(plan.data, features, np.zeros(records))


def read_curvature(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Tell the two eigenvalues apart."""
    records = plan.silos[0].records
    sigma = task(plan, plan.silos[0], 0, 0).sigma
    return read_difference(answers[0], sigma, np.array([1.0 / records]), np.array([0.0]))


_NEAR, _FAR = math.sin(math.pi / 12), math.cos(math.pi / 12)
_FARTHEST = {1.0: (_FAR, _NEAR, 1.0), -1.0: (-_NEAR, -_FAR, -1.0)}
"""Two records between which the moments move as far as between any: features and target of the one for each coin."""


def moment_records(plan: Plan, coins: FloatArray) -> Records:
    """One of the two records, among zeros."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = _FARTHEST[coins[0]]
    return Records(plan.data, rows[:, :2], rows[:, 2])


def read_moments(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Means of features and target, and their mean squares, in units of their bounds, which are 1."""
    records = plan.silos[0].records
    sigma = task(plan, plan.silos[0], 0, 0).sigma
    worlds = (np.array([*row, *np.square(row)]) / records for row in _FARTHEST.values())
    return read_difference(answers[0], sigma, *worlds)


def evaluation_argument(plan: Plan, stage: int = 0) -> FloatArray:
    """Ask about all blocks alike, with a ruler by which one pair of records moves each as far as any pair can."""
    blocks = Evaluation().blocks(plan)
    ruler = {"squared": [2.0], "absolute": [2.0], "loss": [2.0], "target": [0.0, 1.0]}
    numbers = [
        ruler.get(block.name, np.linspace(-0.9, 0.9, block.ruler) + (block.name == "residuals")) for block in blocks
    ]
    shares = np.full(len(blocks), 1.0 / len(blocks) - 2.0**-50)
    return np.concatenate([np.eye(plan.dimension)[0], *numbers, shares])


def evaluation_records(plan: Plan, coins: FloatArray) -> Records:
    """One record with a score just below the bound, and the one bound or the other for a target, among zeros."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = 1 - 2.0**-20, 0.0, coins[0]
    return Records(plan.data, rows[:, :2], rows[:, 2])


def read_evaluation(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Tell the two records apart by all numbers of all rounds."""
    records, argument = plan.silos[0].records, evaluation_argument(plan)
    sigma = task(plan, plan.silos[0], 0, 0).sigma
    worlds = [evaluation_records(plan, np.array([coin])) for coin in (1.0, -1.0)]
    exact = [evaluated(Evaluation(), plan, argument, own, np.ones(records), records) for own in worlds]
    return _read_rounds(answers, sigma, exact)


SECOND_MOMENTS = SecondMoments(start=pack(np.zeros(2)))


def second_moments_argument(plan: Plan, stage: int = 0) -> FloatArray:
    """Ask at weights of 0, where the residual is the target, in units of half of its bound."""
    return Asked(np.zeros(plan.dimension), 0.5, 1.0, np.eye(plan.data.width)).packed()


def second_moments_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm, among zeros: its target just inside of the unit, or far beyond the other way."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = 1.0, 0.0, 0.5 - 2.0**-30 if coins[0] > 0 else -1.0
    return Records(plan.data, rows[:, :2], rows[:, 2])


def read_second_moments(plan: Plan, answers: Sequence[FloatArray]) -> Observation:
    """Tell the two records apart by all numbers of all rounds."""
    records, argument = plan.silos[0].records, second_moments_argument(plan)
    sigma = task(plan, plan.silos[0], 0, 0).sigma
    worlds = [second_moments_records(plan, np.array([coin])) for coin in (1.0, -1.0)]
    exact = [second_moments(SECOND_MOMENTS, plan, argument, own, np.ones(records), records) for own in worlds]
    return _read_rounds(answers, sigma, exact)


def _read_rounds(answers: Sequence[FloatArray], sigma: float, worlds: Sequence[FloatArray]) -> Observation:
    """Read rounds that all ask the same."""
    seen = [read_difference(answer, sigma, *worlds) for answer in answers]
    return Observation(np.concatenate([one.numbers for one in seen]), np.concatenate([one.strength for one in seen]))
