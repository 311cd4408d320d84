"""Computes queries from records: a file for each query of `protocol.queries`, one for both gradients.

An answer is a function of a sum over records, in whole numbers. So the sums of parts of the records, computed one after
the other or on several threads, give the same bytes as all records at once.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np

from ringfence import protocol
from ringfence.protocol import BaseQuery, FloatArray, Plan, Query
from ringfence.silo.queries import (
    column_distributions,
    comparison,
    curvature,
    evaluation,
    feature_means,
    feature_moments,
    gradient,
    second_moments,
    statistics,
    survival_curve,
)
from ringfence.silo.records import exact_sums
from ringfence.silo.records.exact_sums import Counts
from ringfence.silo.records.records import Records


class AnswerFromRecords(Protocol):
    """How a query is computed: in two pure functions, which a query's file may offer."""

    def total(self, query: Any, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Return the sum of a query's terms over records, in whole numbers.

        `chosen` is 1 for every record that takes part and 0 for others. The numbers are made by
        `silo.records.exact_sums`, whose arithmetic the charge covers. Each record's must be a function of that record
        and the argument alone.
        """

    def answer(self, query: Any, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
        """Return the answer of a query, without noise, from the total of all records."""


class MeanOfTerms:
    """Computes a `MeanQuery` from its records' vectors, of numbers of at most 1.

    `terms(query, plan, argument, records)` has a row for each row of the records; a person's rows are averaged. Where
    vectors are much longer than records, they are made `in_parts`, of a few records at a time.
    """

    def __init__(
        self, terms: Callable[[Any, Plan, FloatArray, Records], FloatArray], *, in_parts: bool = False
    ) -> None:
        """Make the answer to a query that is a mean over records of its `terms`."""
        self._terms, self._in_parts = terms, in_parts

    def total(self, query: Any, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray) -> Counts:
        """Add up the query's vectors, each number rounded towards zero to 31 bits."""
        if not self._in_parts:
            return exact_sums.column_sums(records.means(self._terms(query, plan, argument, records)), chosen)

        def parts() -> Iterator[tuple[FloatArray, FloatArray, int]]:
            """Yield which records take part and their terms of the query, a part of the records at a time."""
            for part in exact_sums.parts(len(records), query.length(plan)):
                some = records.take(np.arange(len(records))[part])
                yield chosen[part, None], some.means(self._terms(query, plan, argument, some)), 0

        result: Counts = exact_sums.outer_sum(parts())[0]
        return result

    def answer(self, query: Any, plan: Plan, argument: FloatArray, total: Counts, batch: int) -> FloatArray:
        """Return the mean of the query's terms over the batch."""
        return exact_sums.quotient(total, batch)


COMPUTATIONS: dict[type[BaseQuery], AnswerFromRecords] = {
    protocol.ColumnDistributions: MeanOfTerms(column_distributions.terms, in_parts=True),
    protocol.Comparison: MeanOfTerms(comparison.terms),
    protocol.Curvature: curvature,
    protocol.Evaluation: MeanOfTerms(evaluation.terms),
    protocol.FeatureMeans: feature_means,
    protocol.FeatureMoments: feature_moments,
    protocol.Gradient: gradient,
    protocol.PreconditionedGradient: gradient,
    protocol.SecondMoments: MeanOfTerms(second_moments.terms, in_parts=True),
    protocol.Statistics: statistics,
    protocol.SurvivalCurve: MeanOfTerms(survival_curve.terms),
}


def compute(
    query: Query, plan: Plan, argument: FloatArray, records: Records, chosen: FloatArray, batch: int
) -> FloatArray:
    """Return the exact answer to any query, without noise: a pure function, not private by itself.

    The argument may begin with the places of knots, by which the records are then encoded.
    """
    computation = COMPUTATIONS[type(query)]
    knots, argument = np.split(argument, [query.knots(plan)])
    records = records.encoded(plan.data.placed(knots)) if knots.size else records
    total = records.total(partial(computation.total, query, plan, argument), chosen, query.breadth(plan))
    return computation.answer(query, plan, argument, total, batch)
