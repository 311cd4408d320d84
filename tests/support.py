"""What several test files share."""

from collections.abc import Callable

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.messages import Answer, Reason, Refusal, RoundRequest
from ringfence.protocol.plan import Plan
from ringfence.silo.gate import Gate

MakePlan = Callable[..., Plan]


def ask(gate: Gate, plan: Plan, round: int, weights: FloatArray | float = 0.0) -> Answer:
    """Ask a gate for a round at the given weights."""
    return gate.answer(RoundRequest.at(plan.digest(), round, np.zeros(plan.dimension) + weights))


def refusal(answer: Answer) -> Reason:
    """Return why the answer is a refusal, which it must be."""
    assert isinstance(answer, Refusal)
    return answer.reason
