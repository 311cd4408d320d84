"""The mean of the records' gradients along the request's axes, each clipped to norm 1."""

from ringfence.protocol import FloatArray, Plan, PreconditionedGradient
from ringfence.protocol.arrays import without_negligible
from ringfence.silo.queries.gradient import gradient_total, mean_gradient
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records


def total(
    query: PreconditionedGradient, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray
) -> Counts:
    """Add up the clipped gradients at the weights and along the axes of `argument`."""
    weights, axes = query.read(plan, without_negligible(argument))
    return gradient_total(plan, 1.0, weights, records, records.along(axes), chosen)


def answer(query: PreconditionedGradient, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
    """Return the mean."""
    return mean_gradient(plan, 1.0, total, batch)
