"""Noisy vectors, averaged by the silos' public weights."""

from collections.abc import Mapping

import numpy as np

from ringfence.protocol import Answer, FloatArray, NoisyUpdate, OwnNoise, Plan, unpack
from ringfence.server.channels.base import Averaged, Totals

_LARGEST = 1e100
"""No honest number is larger, and a step from it cannot overflow; NaN and infinity fail the comparison too."""


def is_usable(plan: Plan, number: int, answer: Answer) -> bool:
    """Return whether a silo's answer with its own noise is a vector in the right shape; silos may be hostile too."""
    if not isinstance(answer, NoisyUpdate):
        return False
    vector = unpack(answer.vector)
    return vector.shape == (plan.stages[number].query.length(plan),) and bool(np.all(np.abs(vector) <= _LARGEST))


def average(
    channel: OwnNoise, plan: Plan, number: int, answers: Mapping[str, Answer], totals: Totals | None
) -> Averaged | None:
    """Return the weighted mean of the silos' answers, and the answers: their own noise is in them."""
    each = {name: unpack(answer.vector) for name, answer in answers.items() if isinstance(answer, NoisyUpdate)}
    return (mean_update(plan, each), each) if each else None


def mean_update(plan: Plan, updates: Mapping[str, FloatArray]) -> FloatArray:
    """Average the updates by the silos' public weights: (N/M)·Σ p_i·g_i over the M that answered.

    With equal weights this is the plain mean. With others it is unbiased when every silo is equally likely to
    be among those that answer.
    """
    share = len(plan.silos) / len(updates)
    weights = {terms.name: terms.weight for terms in plan.silos}
    total: FloatArray = np.sum([share * weights[name] * vector for name, vector in updates.items()], axis=0)
    return total
