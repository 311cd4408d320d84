"""The silos' answers without noise, at many arguments at once.

Queries in the table `MEANS` are computed for all silos together, with sums in floating point. Any other query, and any
about persons, is computed silo by silo as the silos do.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from ringfence.protocol import Axes, BaseQuery, FeatureMoments, FloatArray, Plan, PreconditionedGradient, Query
from ringfence.protocol.arrays import TINY
from ringfence.protocol.queries.feature_moments import WEIGHT
from ringfence.silo.queries import compute
from ringfence.silo.queries.feature_moments import target_bin
from ringfence.silo.queries.gradient import clipped_mean
from ringfence.silo.records.records import Records

Silos: TypeAlias = Sequence[tuple[FloatArray, FloatArray] | Records]
"""Each silo's features and targets, or its records."""


class WeightedRows:
    """All silos' rows in one matrix, and each row's weight in the server's average."""

    def __init__(self, silos: Sequence[Records], weights: FloatArray, dtype: DTypeLike) -> None:
        """Hold the rows of one or all simulated silos, each with its share of the average, in numbers of that type."""
        sizes = [own.rows for own in silos]
        self.features = np.concatenate([own.features for own in silos], dtype=dtype)
        self.targets = np.concatenate([own.targets for own in silos])
        self.shares = np.repeat(np.divide(weights, sizes), sizes).astype(dtype)
        self._norms: dict[bytes, FloatArray] = {}

    def norms(self, axes: Sequence[Axes]) -> FloatArray:
        """Return every simulated row's feature norm along each set of axes; those of the last call are cached."""
        known, keys = self._norms, [own.packed().tobytes() for own in axes]
        self._norms = {
            key: known[key] if key in known else np.linalg.norm(own.along(self.features, np.matmul), axis=1)
            for key, own in dict(zip(keys, axes, strict=True)).items()
        }
        return np.stack([self._norms[key] for key in keys], axis=1)


class NoiselessAnswers:
    """Silos that answer for all their records, and the server's average of their answers."""

    def __init__(self, plan: Plan, silos: Silos, dtype: DTypeLike = np.float64) -> None:
        """Prepare to answer a plan's queries on the silos' records without noise, in numbers of that type."""
        self.plan = plan
        different = {id(own): own for own in silos}  # silos with the same records give the same answers
        self.silos = [
            own.encoded(plan.data) if isinstance(own, Records) else Records(plan.data, *own)
            for own in different.values()
        ]
        places = {own: place for place, own in enumerate(different)}
        self._places = [places[id(own)] for own in silos]
        self._weights = np.bincount(self._places, [terms.weight for terms in plan.silos]).astype(np.float64)
        self._all = WeightedRows(self.silos, self._weights, dtype)
        self._parts = [WeightedRows([own], np.ones(1), dtype) for own in self.silos]

    def means(self, query: Query, arguments: Sequence[FloatArray]) -> FloatArray:
        """Return the silos' averaged noiseless answers, a row for each argument; equal ones are computed once."""
        if means := self._together(query):
            return _once(arguments, lambda own: means(query, self.plan, own, self._all))
        averages: FloatArray = np.einsum("i,rij->rj", self._weights, self._different(query, arguments))
        return averages

    def each(self, query: Query, arguments: Sequence[FloatArray]) -> FloatArray:
        """Return the silos' noiseless answers, a row each, to each argument; equal ones are computed once."""
        return self._different(query, arguments)[:, self._places]

    def _different(self, query: Query, arguments: Sequence[FloatArray]) -> FloatArray:
        """Return the noiseless answers to each argument, a row for each silo with records of its own."""
        if means := self._together(query):
            return _once(
                arguments, lambda own: np.stack([means(query, self.plan, own, rows) for rows in self._parts], axis=1)
            )
        return _once(arguments, lambda own: np.stack([self._answers(query, argument) for argument in own]))

    def _answers(self, query: Query, argument: FloatArray) -> FloatArray:
        """Return every silo's noiseless answer to one argument, a row each."""
        return np.stack([compute(query, self.plan, argument, own, np.ones(len(own)), len(own)) for own in self.silos])

    def _together(self, query: Query) -> "Means | None":
        """Return the function that computes a query's noiseless answers for all arguments at once, if there is one."""
        return MEANS.get(type(query)) if all(own.persons is None for own in self.silos) else None


def _once(arguments: Sequence[FloatArray], answer: Callable[[list[FloatArray]], FloatArray]) -> FloatArray:
    """Return the noiseless answer to each argument, computing that of equal arguments once."""
    different = {argument.tobytes(): argument for argument in arguments}
    answers = dict(zip(different, answer(list(different.values())), strict=True))
    return np.stack([answers[argument.tobytes()] for argument in arguments])


def feature_moments(
    query: FeatureMoments, plan: Plan, arguments: Sequence[FloatArray], rows: WeightedRows
) -> FloatArray:
    """Return the second moments of features along axes, and the target's bins: a product of rows per argument."""
    answers, bins = [], query.bins(plan)
    one, other = np.triu_indices(plan.data.width)
    factors = np.where(one == other, 1.0, math.sqrt(2.0))
    for argument in arguments:
        viewed = query.read(plan, argument)
        along = rows.features @ viewed.axes.T.astype(rows.features.dtype)
        squares = np.einsum("ij,ij->i", along, along)
        along *= np.sqrt(rows.shares / np.maximum(squares, 1.0))[:, None]
        triangle = (along.T @ along)[one, other] * factors
        spread = np.bincount(target_bin(plan, viewed.lower, viewed.upper, bins, rows.targets), rows.shares, bins)
        answers.append(np.concatenate([triangle, WEIGHT * spread]))
    return np.stack(answers)


def preconditioned_gradients(
    query: PreconditionedGradient, plan: Plan, arguments: Sequence[FloatArray], rows: WeightedRows
) -> FloatArray:
    """Return the clipped mean gradients: two products with the rows, and one more for each new set of axes.

    Clipping outer(Ax, residual) to norm 1 is clipping the residual to 1/‖Ax‖. The sum of the clipped outer(x, residual)
    is multiplied by the axes at the end.
    """
    asked = [query.read(plan, argument) for argument in arguments]
    weights = np.stack([own.reshape(plan.data.width, -1) for own, _ in asked], axis=1)
    total = clipped_mean(
        plan.loss,
        1 / np.maximum(rows.norms([axes for _, axes in asked]), TINY),
        weights=weights,
        features=rows.features,
        norms=np.ones(len(rows.targets)),
        targets=rows.targets,
        shares=rows.shares,
    )
    return np.stack([axes.turned(total[:, place]).reshape(-1) for place, (_, axes) in enumerate(asked)])


Means = Callable[[Any, Plan, Sequence[FloatArray], WeightedRows], FloatArray]
"""Returns the average of the silos' answers, a row for each argument."""

MEANS: dict[type[BaseQuery], Means] = {
    FeatureMoments: feature_moments,
    PreconditionedGradient: preconditioned_gradients,
}
