"""What the server does with the averaged gradients, as data in the plan.

It affects privacy in one place only: phases say which records a round uses and how the noise is shared out.
"""

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from ringfence.protocol.public import Public

Average: TypeAlias = Literal["weighted", "last", "tail"]
"""Which of the points becomes the model: the theorem's weighted average, the last point, or the mean of the points
of the last quarter of the rounds. All three are functions of messages already sent, so the choice is free."""


class MinibatchSGD(Public):
    """Noisy minibatch SGD: the paper's Algorithm 2.

    w ← Proj(w + v), v ← momentum·v − step·g. The model is the average of the round's query points, the
    r-th with weight growth^r, leaving out the first `skip` of them.
    """

    name: Literal["minibatch-sgd"] = "minibatch-sgd"
    step: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    skip: int = Field(default=0, ge=0)
    growth: float = Field(default=1.0, ge=1)


class Stage(Public):
    """Some rounds of the accelerated recursion from where the last stage ended, with υ at least `pace`."""

    rounds: int = Field(ge=1)
    pace: float = Field(ge=0)


class Phase(Public):
    """Some rounds on records of their own, with the penalty (λ/2)·‖w − where the phase began‖²."""

    rounds: int = Field(ge=1)
    penalty: float = Field(gt=0)


class Accelerated(Public):
    """Accelerated noisy minibatch SGD in one run: the paper's Algorithm 1 (AC-SA).

    `smoothness` bounds β of the averaged loss; a survey may find a smaller one. `pace` is the least υ, the
    steps' inverse scale: larger noise needs a larger one. `penalty` adds (λ/2)·‖w − w₀‖² to make a convex
    problem strongly convex, as in the paper's regularised version.
    """

    name: Literal["accelerated"] = "accelerated"
    smoothness: float = Field(gt=0)
    pace: float = Field(default=0.0, ge=0)
    penalty: float = Field(default=0.0, ge=0)
    average: Average = "weighted"


class MultiStage(Public):
    """Accelerated noisy minibatch SGD, restarted stage by stage: the paper's multi-stage implementation."""

    name: Literal["multi-stage"] = "multi-stage"
    smoothness: float = Field(gt=0)
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=10_000)
    penalty: float = Field(default=0.0, ge=0)
    average: Average = "weighted"


class Localized(Public):
    """Ever smaller neighbourhoods: each phase solves a regularised problem on fresh records, by acceleration.

    Phase i = 1, 2, … of a silo with n records uses ⌊n/2^i⌋ of them, in all of its rounds, and no other phase
    uses those.
    """

    name: Literal["localized"] = "localized"
    smoothness: float = Field(gt=0)
    phases: tuple[Phase, ...] = Field(min_length=1, max_length=60)
    average: Average = "weighted"

    def noise(self, records: int, phase: int) -> float:
        """Return a phase's noise in units of the first phase's, at a silo with so many records.

        R rounds over m records have the shift 2L√R/(mσ); σ ∝ √R/m gives every phase the same guarantee. The last
        factor keeps rounding from making a later phase cost a hair more than the first.
        """
        rounds = self.phases[phase].rounds / self.phases[0].rounds
        size = (records >> (phase + 1)) / (records >> 1)
        return 1.0 if phase == 0 else math.sqrt(rounds) / size * (1 + 1e-6)


AlgorithmSpec: TypeAlias = Annotated[MinibatchSGD | Accelerated | MultiStage | Localized, Field(discriminator="name")]
