"""Questions that one canary moves at a time, each set up for its worst case: one record or another, among zeros.

Each has the records for a coin, and, where a server may choose what it asks, what that is.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from ringfence.audit.adversary import Observation, read_difference
from ringfence.protocol import sections
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import pack
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Evaluation, SecondMoments
from ringfence.protocol.questions.feature_means import Window
from ringfence.protocol.questions.feature_moments import Viewed
from ringfence.protocol.questions.second_moments import Asked
from ringfence.protocol.schedule import task
from ringfence.silo.questions import compute
from ringfence.silo.records import Records


def curvature_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm, or of none, among zeros: the eigenvalue is X²/n or 0."""
    records = plan.silos[0].records
    features = np.zeros((records, 2))
    features[0, 0] = (coins[0] + 1) / 2
    return Records(plan.data, features, np.zeros(records))


_NEAR, _FAR = math.sin(math.pi / 12), math.cos(math.pi / 12)
_FARTHEST = {1.0: (_FAR, _NEAR, 1.0), -1.0: (-_NEAR, -_FAR, -1.0)}
"""Two records between which the moments move as far as between any: features and target of the one for each coin."""


def moment_records(plan: Plan, coins: FloatArray) -> Records:
    """One of the two records, among zeros."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = _FARTHEST[coins[0]]
    return Records(plan.data, rows[:, :2], rows[:, 2])


def evaluation_argument(plan: Plan, stage: int) -> FloatArray:
    """Ask about all blocks alike, with a ruler by which one pair of records moves each as far as any pair can."""
    del stage
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


SECOND_MOMENTS = SecondMoments(start=pack(np.zeros(2)))


def second_moments_argument(plan: Plan, stage: int) -> FloatArray:
    """Ask at weights of 0, where the residual is the target, in units of half of its bound."""
    del stage
    return Asked(np.zeros(plan.dimension), 0.5, 1.0, np.eye(plan.data.width)).packed()


def second_moments_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm, among zeros: its target just inside the unit, or far beyond the other way."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = 1.0, 0.0, 0.5 - 2.0**-30 if coins[0] > 0 else -1.0
    return Records(plan.data, rows[:, :2], rows[:, 2])


def feature_moments_argument(plan: Plan, stage: int) -> FloatArray:
    """Look along axes so long that every record is cut."""
    del stage
    return Viewed(4.0 * np.eye(plan.data.width), -1.0, 1.0).packed()


def feature_moments_records(plan: Plan, coins: FloatArray) -> Records:
    """One record along the one axis, with the least target, or along the other, with the largest, among zeros."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = (1.0, 0.0, -1.0) if coins[0] > 0 else (0.0, 1.0, 1.0)
    return Records(plan.data, rows[:, :2], rows[:, 2])


def feature_means_argument(plan: Plan, stage: int) -> FloatArray:
    """Look at all of the target's range."""
    del plan, stage
    return Window(-1.0, 1.0).packed()


def feature_means_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm along an axis, with the largest target, or its negative, among zeros."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = coins[0], 0.0, coins[0]
    return Records(plan.data, rows[:, :2], rows[:, 2])


def preconditioned_argument(plan: Plan, stage: int) -> FloatArray:
    """Ask at weights of 0, where the residual is the target, along axes so long that every gradient is cut."""
    del stage
    return np.concatenate([np.zeros(plan.dimension), 4.0 * np.eye(plan.data.width).reshape(-1)])


def preconditioned_records(plan: Plan, coins: FloatArray) -> Records:
    """One record of the largest norm, among zeros, with the one bound or the other for a target."""
    rows = np.zeros((plan.silos[0].records, 3))
    rows[0] = 1.0, 0.0, coins[0]
    return Records(plan.data, rows[:, :2], rows[:, 2])


def read(
    plan: Plan,
    answers: Sequence[FloatArray],
    *,
    records: Callable[[Plan, FloatArray], Records],
    argument: Callable[[Plan, int], FloatArray],
) -> Observation:
    """Tell the two records apart by all numbers of all rounds.

    A server that knows all the others computes for itself what either would have the silo answer without noise.
    """
    worlds = [records(plan, np.array([coin])) for coin in (1.0, -1.0)]
    asked = [argument(plan, number) for number in range(len(plan.stages))]
    exact = [[_answer(plan, number, own, one) for own in worlds] for number, one in enumerate(asked)]
    seen = [
        read_difference(answer, task(plan, plan.silos[0], round, 0).sigma, *exact[plan.place(round).number])
        for round, answer in enumerate(answers)
    ]
    return Observation(np.concatenate([one.numbers for one in seen]), np.concatenate([one.strength for one in seen]))


def _answer(plan: Plan, number: int, records: Records, asked: FloatArray) -> FloatArray:
    """Return what a silo with these records would answer in a stage, without noise."""
    stage, terms = plan.stages[number], plan.silos[0]
    chosen = np.zeros(terms.records)
    chosen[sections.members(stage.section, terms.records, plan.held_out)] = 1.0
    return compute(stage.question, plan, asked, records, chosen, terms.stages[number].batch)
