"""What the server has made of the answers so far: a frozen value that each question's answers replace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.server.algorithms import algorithm_of


@dataclass(frozen=True)
class Findings:
    """A statistic that was asked for: the answering silos' average of it, the standard deviation of the noise in each
    of its numbers, and the weight of the silos that answered, of 1 in all. `each` has the silos' own, where the channel
    shows them."""

    statistic: FloatArray
    noise: float
    weight: float = 1.0
    each: Mapping[str, FloatArray] = field(default_factory=dict)

    is_plain: ClassVar[bool] = True
    """Whether the average itself is worth telling, and not only what is made of it."""


def as_data(findings: Mapping[str, Findings]) -> dict[str, Any]:
    """Return statistics as plain data, by the question's name."""
    return {
        name: {"statistic": found.statistic.tolist(), "noise": found.noise}
        for name, found in findings.items()
        if found.is_plain
    }


@dataclass(frozen=True)
class Learned:
    """The algorithm's settings and state, if something is trained, and the statistics found, by the question's name.

    `candidates` are the weights of models that came from elsewhere, to be compared, and `chosen` is the number of the
    best of them, once it is known.
    """

    plan: Plan
    settings: Any
    state: Any
    findings: Mapping[str, Findings] = field(default_factory=dict)
    candidates: tuple[FloatArray, ...] = ()
    chosen: int | None = None

    @classmethod
    def nothing(cls, plan: Plan, candidates: Sequence[FloatArray] = ()) -> Self:
        """Return what is known before the first round."""
        if plan.training is None:
            return cls(plan, None, None, candidates=tuple(candidates))
        algorithm = algorithm_of(plan)
        start = algorithm.init(np.zeros(plan.dimension))
        return cls(plan, algorithm.settings(plan), start, candidates=tuple(candidates))

    def choosing(self, number: int) -> Self:
        """Return what is known, with that candidate as the model."""
        return replace(self, chosen=number)

    def model(self) -> FloatArray:
        """Return the model's weights: the chosen candidate's, if one was chosen; 0 where nothing is trained."""
        if self.chosen is not None:
            return self.candidates[self.chosen]
        if self.plan.training is None:
            return np.zeros(self.plan.dimension)
        return algorithm_of(self.plan).output(self.settings, self.state)


@dataclass(frozen=True)
class Answers:
    """What came of one round: the stage's number, the round within the stage, who answered, and their mean answer.

    `step` counts the rounds of all training stages before this one. `each` has the silos' own answers, where the
    channel shows them.
    """

    stage: int
    round: int
    step: int
    silos: Sequence[str]
    mean: FloatArray
    each: Mapping[str, FloatArray] = field(default_factory=dict)
