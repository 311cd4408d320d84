"""The mean of the records' gradients along the request's axes, each cut to norm 1."""

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import PreconditionedGradient
from ringfence.silo.exact_sums import Counts
from ringfence.silo.questions.gradient import gradient_total, mean_gradient
from ringfence.silo.records import Records


def total(
    question: PreconditionedGradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> Counts:
    """Add up the clipped gradients at the weights, and along the axes, in `argument`."""
    weights, axes = question.asked(plan, without_negligible(argument))
    return gradient_total(plan, 1.0, weights, records, records.along(axes), chosen)


def answer(question: PreconditionedGradient, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the mean."""
    del question, argument
    return mean_gradient(plan, 1.0, total, batch)
