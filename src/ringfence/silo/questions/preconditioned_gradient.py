"""The mean of the records' gradients along the request's axes, each cut to norm 1."""

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import PreconditionedGradient
from ringfence.silo.questions.gradient import mean_gradient
from ringfence.silo.records import Records


def compute(
    question: PreconditionedGradient,
    plan: Plan,
    argument: FloatArray,
    records: Records,
    chosen: FloatArray,
    batch: int,
) -> FloatArray:
    """Return the clipped mean gradient at the weights, and along the axes, in `argument`."""
    weights, axes = question.asked(plan, without_negligible(argument))
    return mean_gradient(plan, 1.0, weights, records, records.along(axes), chosen, batch)
