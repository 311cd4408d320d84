"""The silos' answers without noise, at many arguments at once: a file for each question that is worth one.

Any other question, and any about persons, is computed silo by silo as the silos do.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Question
from ringfence.silo.questions import compute
from ringfence.silo.records import Records


class Rows:
    """All silos' rows in one matrix, and what each counts for in the server's average."""

    def __init__(self, features: FloatArray, targets: FloatArray, shares: FloatArray) -> None:
        self.features, self.targets, self.shares = features, targets, shares
        self._lengths: dict[bytes, FloatArray] = {}

    def lengths(self, axes: Sequence[Axes]) -> FloatArray:
        """Return how long every row's features are along each set of axes; what was asked last is remembered."""
        known, keys = self._lengths, [own.packed().tobytes() for own in axes]
        self._lengths = {
            key: known[key] if key in known else np.linalg.norm(own.along(self.features, np.matmul), axis=1)
            for key, own in dict(zip(keys, axes, strict=True)).items()
        }
        return np.stack([self._lengths[key] for key in keys], axis=1)


class SimulatedQuestion(Protocol):
    """What a question's file offers here."""

    def means(self, question: Any, plan: Plan, arguments: Sequence[FloatArray], rows: Rows) -> Sequence[FloatArray]:
        """Return, for each argument, the average of what the silos compute, with sums in floating point."""


class Federated:
    """Silos that answer for all their records, and the server's average of that."""

    def __init__(self, plan: Plan, silos: Sequence[tuple[FloatArray, FloatArray] | Records]) -> None:
        self.plan = plan
        self.silos = [own if isinstance(own, Records) else Records(plan.data, *own) for own in silos]
        weights = [terms.weight for terms in plan.silos]
        self._all = Rows(
            np.concatenate([own.features for own in self.silos]),
            np.concatenate([own.targets for own in self.silos]),
            np.concatenate([np.full(own.rows, p / own.rows) for p, own in zip(weights, self.silos, strict=True)]),
        )
        self._parts = [Rows(own.features, own.targets, np.full(own.rows, 1 / own.rows)) for own in self.silos]
        self._weights = weights

    def means(self, question: Question, arguments: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the silos' averaged answers to each argument; equal ones are computed once."""
        if _is_simulated(question, self.silos):
            return _once(arguments, lambda own: _simulated(question).means(question, self.plan, own, self._all))
        return [np.tensordot(self._weights, each, axes=1) for each in self.each(question, arguments)]

    def each(self, question: Question, arguments: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the silos' answers to each argument, a row each."""
        return _once(arguments, lambda own: [self._answers(question, argument) for argument in own])

    def _answers(self, question: Question, argument: FloatArray) -> FloatArray:
        if _is_simulated(question, self.silos):
            means = _simulated(question).means
            return np.stack([means(question, self.plan, [argument], rows)[0] for rows in self._parts])
        return np.stack(
            [compute(question, self.plan, argument, own, np.ones(len(own)), len(own)) for own in self.silos]
        )


def _module(question: Question) -> str:
    return f"{__name__}.{question.name.replace('-', '_')}"


def _is_simulated(question: Question, silos: Sequence[Records]) -> bool:
    return find_spec(_module(question)) is not None and all(own.persons is None for own in silos)


def _simulated(question: Question) -> SimulatedQuestion:
    return cast(SimulatedQuestion, import_module(_module(question)))


def _once(
    arguments: Sequence[FloatArray], answer: Callable[[list[FloatArray]], Sequence[FloatArray]]
) -> list[FloatArray]:
    """Return what is computed of each argument; of equal ones, once."""
    places = {argument.tobytes(): argument for argument in arguments}
    found = dict(zip(places, answer(list(places.values())), strict=True))
    return [found[argument.tobytes()] for argument in arguments]
