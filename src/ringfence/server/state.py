"""The server's state during a run: a frozen value, replaced after each round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from ringfence.protocol import FloatArray, Plan
from ringfence.server.algorithms import algorithm_of


@dataclass(frozen=True)
class Findings:
    """The answering silos' average of a statistic, and the standard deviation of the noise in each of its numbers.

    `weight` is that of the silos that answered, of 1 in all. `each` has the silos' own statistics, where the channel
    shows them.
    """

    statistic: FloatArray
    noise: float
    weight: float = 1.0
    each: Mapping[str, FloatArray] = field(default_factory=dict)

    is_plain: ClassVar[bool] = True
    """Whether the average itself is reported, and not only estimates from it."""


def as_data(findings: Mapping[str, Findings]) -> dict[str, Any]:
    """Return the statistics in the server's state as plain data, by the query's name."""
    return {
        name: {"statistic": found.statistic.tolist(), "noise": found.noise}
        for name, found in findings.items()
        if found.is_plain
    }


@dataclass(frozen=True)
class ServerState:
    """The algorithm's settings and state, if something is trained, and the findings, by the query's name.

    `candidates` are the weights of models to compare, and `chosen` is the number of the best of them, once it is known.
    `knots` are the places of the open curves' knots, which requests carry.
    """

    plan: Plan
    settings: Any
    state: Any
    findings: Mapping[str, Findings] = field(default_factory=dict)
    candidates: tuple[FloatArray, ...] = ()
    chosen: int | None = None
    knots: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def initial(cls, plan: Plan, candidates: Sequence[FloatArray] = ()) -> Self:
        """Return the server's state before the first round."""
        knots = plan.data.even_knots_together
        if plan.training is None:
            return cls(plan, None, None, candidates=tuple(candidates), knots=knots)
        algorithm = algorithm_of(plan)
        start = algorithm.init(np.zeros(plan.dimension))
        return cls(plan, algorithm.settings(plan), start, candidates=tuple(candidates), knots=knots)

    def with_finding(self, name: str, finding: Findings, **changes: Any) -> Self:
        """Return the server's state with the finding of the query of that name, and other changes."""
        return replace(self, findings={**self.findings, name: finding}, **changes)

    def model(self) -> FloatArray:
        """Return the model's weights: the chosen candidate's, if one was chosen; 0 where nothing is trained."""
        if self.chosen is not None:
            return self.candidates[self.chosen]
        if self.plan.training is None:
            return np.zeros(self.plan.dimension)
        return algorithm_of(self.plan).output(self.settings, self.state)


@dataclass(frozen=True)
class RoundAnswers:
    """One round's answers: the stage's number, the round of the plan, who answered, and their mean answer.

    `each` has the silos' own answers, where the channel shows them.
    """

    stage: int
    round: int
    silos: Sequence[str]
    mean: FloatArray
    each: Mapping[str, FloatArray] = field(default_factory=dict)
