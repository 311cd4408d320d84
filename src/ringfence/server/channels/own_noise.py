"""Noisy vectors, averaged by the silos' public weights."""

from collections.abc import Mapping

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.channels import OwnNoise
from ringfence.protocol.messages import Answer, NoisyUpdate, RoundRequest, unpack
from ringfence.protocol.plan import Plan
from ringfence.server.channels import Totals

_LARGEST = 1e100
"""No honest number is larger, and a step from it cannot overflow; NaN and infinity fail the comparison too."""


def is_usable(channel: OwnNoise, plan: Plan, number: int, request: RoundRequest, answer: Answer) -> bool:
    """Tell whether it is a vector in the right shape; silos may be hostile too."""
    del channel, request
    if not isinstance(answer, NoisyUpdate):
        return False
    vector = unpack(answer.vector)
    return vector.shape == (plan.stages[number].question.length(plan),) and bool(np.all(np.abs(vector) <= _LARGEST))


def mean(
    channel: OwnNoise, plan: Plan, number: int, answers: Mapping[str, Answer], totals: Totals | None
) -> FloatArray | None:
    """Return the weighted mean."""
    del number, totals
    vectors = each(channel, answers)
    return mean_update(plan, vectors) if vectors else None


def each(channel: OwnNoise, answers: Mapping[str, Answer]) -> Mapping[str, FloatArray]:
    """Return all of them: the noise is in them."""
    del channel
    return {name: unpack(answer.vector) for name, answer in answers.items() if isinstance(answer, NoisyUpdate)}


def mean_update(plan: Plan, updates: Mapping[str, FloatArray]) -> FloatArray:
    """Average the updates by the silos' public weights: (N/M)·Σ p_i·g_i over the M that answered.

    With equal weights this is the plain mean. With others it is unbiased when every silo is equally likely to
    be among those that answer.
    """
    share = len(plan.silos) / len(updates)
    weights = {terms.name: terms.weight for terms in plan.silos}
    total: FloatArray = np.sum([share * weights[name] * vector for name, vector in updates.items()], axis=0)
    return total
