"""What the server does with the averaged gradients, as data in the plan.

It affects no privacy: which records a stage uses, and with what noise, the plan's stages say.
"""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field

from ringfence.protocol.axes import AxesForm
from ringfence.protocol.public import Public
from ringfence.protocol.questions import (
    Curvature,
    FeatureMeans,
    FeatureMoments,
    Gradient,
    PreconditionedGradient,
    Question,
)
from ringfence.protocol.sampling import Phased, Sampling, SamplingName, sampling_named

if TYPE_CHECKING:
    from ringfence.protocol.plan import Plan

Average: TypeAlias = Literal["weighted", "last", "tail"]
"""Which of the points becomes the model: the theorem's weighted average, the last point, or the mean of the points
of the last quarter of the rounds. All three are functions of messages already sent, so the choice is free."""


def tail_begins(rounds: int) -> int:
    """Return the number, from 0, of the first round in the last quarter of that many rounds."""
    return 3 * rounds // 4


class _Algorithm(Public):
    """What plan and planner need to know about every algorithm. `default_sampling` is taken where none is asked for."""

    default_sampling: ClassVar[SamplingName] = "full"
    takes_kinks: ClassVar[bool] = False
    """Whether it may be given a loss with kinks as it is."""
    finds_clip: ClassVar[bool] = False
    """Whether a survey decides where gradients are cut."""

    @property
    def resolved(self) -> str:
        """What a survey of the features tells from its noise."""
        return "directions"

    def training_stages(self, sampling: SamplingName, rounds: int) -> list[tuple[int, Sampling]]:
        """Return the rounds and the sampling rule of every training stage."""
        return [(rounds, sampling_named(sampling))]

    def question(self, clip: float) -> Question:
        """Return what its training stages ask, of records whose gradients are cut to norm `clip`."""
        return Gradient(clip=clip)

    def survey(self) -> tuple[Question, int]:
        """Return what is asked before training, where something is, and in how many rounds."""
        return Curvature(), 1

    def noise(self, records: int, stage: int) -> float:
        """Return a training stage's noise in units of the first one's, at a silo with that many records."""
        return 1.0

    def check(self, plan: "Plan") -> None:
        """Raise ValueError if the plan's training stages do not suit the algorithm; by default, any do."""

    @abstractmethod
    def averaged(self, average: Average, rounds: int) -> Self:
        """Return the algorithm with another rule for which points, of that many rounds, become the model."""

    @property
    @abstractmethod
    def keeps_theorem_average(self) -> bool:
        """Whether the model is the average that loss bounds are proved for."""

    @property
    def own_rounds(self) -> int | None:
        """How many rounds the algorithm itself prescribes; None if it takes any number."""
        return None

    def takes_survey(self) -> bool:
        """Tell whether a survey of the curvature can improve its steps."""
        return True

    @abstractmethod
    def words(self, plan: "Plan") -> str:
        """Say in a few words which steps it takes."""


class MinibatchSGD(_Algorithm):
    """Noisy minibatch SGD: the paper's Algorithm 2.

    w ← Proj(w + v), v ← momentum·v − step·g. The model is the average of the round's query points, the
    r-th with weight growth^r, leaving out the first `skip` of them.
    """

    takes_kinks: ClassVar[bool] = True
    name: Literal["minibatch-sgd"] = "minibatch-sgd"
    step: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    skip: int = Field(default=0, ge=0)
    growth: float = Field(default=1.0, ge=1)

    def check(self, plan: "Plan") -> None:
        """Require at least one round to average."""
        if plan.steps and self.skip >= plan.steps:
            raise ValueError("the average needs at least one round: lower `skip`")

    def averaged(self, average: Average, rounds: int) -> Self:
        """Leave out nothing, all rounds but the last, or all but the last quarter."""
        skip = {"weighted": 0, "last": rounds - 1, "tail": tail_begins(rounds)}[average]
        return self.model_copy(update={"skip": skip})

    @property
    def keeps_theorem_average(self) -> bool:
        """Whether no round is left out."""
        return self.skip == 0

    def takes_survey(self) -> bool:
        """Say no: the step is given."""
        return False

    def words(self, plan: "Plan") -> str:
        """Name step and momentum."""
        momentum = f", momentum {self.momentum:.3g}" if self.momentum else ""
        return f"step {self.step:.4g}{momentum}"


class Recursion(NamedTuple):
    """Some rounds of the accelerated recursion with one pace υ and one penalty.

    `recentres`: the penalty pulls towards where these rounds began, not to where all began.
    """

    rounds: int
    pace: float
    penalty: float
    recentres: bool


class Restart(Public):
    """Some rounds of the accelerated recursion from where the last ones ended, with υ at least `pace`."""

    rounds: int = Field(ge=1)
    pace: float = Field(ge=0)


class Phase(Public):
    """Some rounds on records of their own, with the penalty (λ/2)·‖w − where the phase began‖²."""

    rounds: int = Field(ge=1)
    penalty: float = Field(gt=0)


class _AcceleratedFamily(_Algorithm):
    """What the forms of the accelerated recursion share. `smoothness` bounds β; a survey may find a smaller one."""

    smoothness: float = Field(gt=0)
    average: Average = "weighted"

    def averaged(self, average: Average, rounds: int) -> Self:
        """Take another average."""
        return self.model_copy(update={"average": average})

    @property
    def keeps_theorem_average(self) -> bool:
        """Whether it is the weighted one."""
        return self.average == "weighted"

    @abstractmethod
    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return what the server runs, one after the other, where β is at most `smoothness`."""


def _pace(least: float, factor: float, smoothness: float, convexity: float) -> float:
    """Return υ: what the noise asks for, but no less than `factor` times β of the whole objective."""
    return max(least, factor * (smoothness + convexity))


class Accelerated(_AcceleratedFamily):
    """Accelerated noisy minibatch SGD in one run: the paper's Algorithm 1 (AC-SA).

    `smoothness` bounds β of the averaged loss; a survey may find a smaller one. `pace` is the least υ, the
    steps' inverse scale: larger noise needs a larger one. `penalty` adds (λ/2)·‖w − w₀‖² to make a convex
    problem strongly convex, as in the paper's regularised version.
    """

    name: Literal["accelerated"] = "accelerated"
    pace: float = Field(default=0.0, ge=0)
    penalty: float = Field(default=0.0, ge=0)

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return one: υ ≥ 2β without strong convexity, υ ≥ β with some (the loss bounds' conditions)."""
        convexity = ridge + self.penalty
        pace = _pace(self.pace, 1.0 if convexity else 2.0, smoothness, convexity)
        return [Recursion(rounds, pace, self.penalty, False)]

    def words(self, plan: "Plan") -> str:
        """Name pace and penalty."""
        penalty = f", penalty {self.penalty:.3g}" if self.penalty else ""
        (run,) = self.recursions(plan.steps, plan.ridge, self.smoothness)
        surveyed = plan.training_numbers[0] > 0
        return f"pace {'at most ' if surveyed else ''}{run.pace:.4g}{penalty}"


class MultiStage(_AcceleratedFamily):
    """Accelerated noisy minibatch SGD with restarts: the paper's multi-stage implementation."""

    name: Literal["multi-stage"] = "multi-stage"
    stages: tuple[Restart, ...] = Field(min_length=1, max_length=10_000)
    penalty: float = Field(default=0.0, ge=0)

    @property
    def own_rounds(self) -> int:
        """The rounds of all restarts."""
        return sum(stage.rounds for stage in self.stages)

    def check(self, plan: "Plan") -> None:
        """Require the rounds of all restarts, and strong convexity."""
        if self.own_rounds != plan.steps:
            raise ValueError("the stages' rounds must add up to the plan's rounds")
        if plan.ridge + self.penalty == 0:
            raise ValueError("stages help only with a strongly convex problem: give a ridge or a penalty")

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return one for each restart: the paper's stages have υ ≥ 2β."""
        convexity = ridge + self.penalty
        return [
            Recursion(stage.rounds, _pace(stage.pace, 2.0, smoothness, convexity), self.penalty, False)
            for stage in self.stages
        ]

    def words(self, plan: "Plan") -> str:
        """Name the rounds of the restarts."""
        return "stages of " + ", ".join(str(stage.rounds) for stage in self.stages)


class Localized(_AcceleratedFamily):
    """Localization: each phase solves a regularised problem on fresh records, in a smaller neighbourhood.

    Each phase is a training stage of the plan with the records of that phase (`sampling.Phased`).
    """

    default_sampling: ClassVar[SamplingName] = "phased"
    name: Literal["localized"] = "localized"
    phases: tuple[Phase, ...] = Field(min_length=1, max_length=60)

    @property
    def own_rounds(self) -> int:
        """The rounds of all phases."""
        return sum(phase.rounds for phase in self.phases)

    def check(self, plan: "Plan") -> None:
        """Require one training stage per phase, with that phase's rounds and records."""
        planned = [(stage.rounds, stage.sampling) for stage in plan.training_stages]
        if planned != self.training_stages(self.default_sampling, plan.steps):
            raise ValueError("the localized algorithm needs one stage per phase, with that phase's rounds and records")

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return one for each phase: its penalty makes it strongly convex, so υ ≥ β."""
        return [
            Recursion(phase.rounds, _pace(0.0, 1.0, smoothness, ridge + phase.penalty), phase.penalty, True)
            for phase in self.phases
        ]

    def training_stages(self, sampling: SamplingName, rounds: int) -> list[tuple[int, Sampling]]:
        """Return one stage for each phase."""
        return [(phase.rounds, Phased(phase=number)) for number, phase in enumerate(self.phases)]

    def noise(self, records: int, stage: int) -> float:
        """Return the noise with which a phase costs what the first does, in units of the first's.

        R rounds over m records have the shift 2L√R/(mσ); σ ∝ √R/m gives every phase the same guarantee. The last
        factor keeps rounding from making a later phase cost a hair more than the first.
        """
        rounds = self.phases[stage].rounds / self.phases[0].rounds
        size = (records >> (stage + 1)) / (records >> 1)
        return 1.0 if stage == 0 else math.sqrt(rounds) / size * (1 + 1e-6)

    def words(self, plan: "Plan") -> str:
        """Name the rounds of the phases."""
        return "phases of " + ", ".join(str(phase.rounds) for phase in self.phases)


class Preconditioned(_Algorithm):
    """Heavy-ball descent along axes in which features vary alike (`server.algorithms.preconditioned`).

    A first stage may survey how features vary together and how the target is spread. The server then chooses axes, clip
    and step by rules that use only noisy answers, or the schema. The model is the mean of the last points. With `axes`
    of a form that few numbers describe, it does so for any number of features.
    """

    finds_clip: ClassVar[bool] = True
    later_fields: ClassVar[frozenset[str]] = frozenset({"axes"})
    name: Literal["preconditioned"] = "preconditioned"
    momentum: float = Field(default=0.5, ge=0, lt=1)
    axes: AxesForm | None = None

    def question(self, clip: float) -> Question:
        """Ask along axes, whose scale decides what is cut."""
        del clip
        return PreconditionedGradient(axes=self.axes)

    def survey(self) -> tuple[Question, int]:
        """Survey the features once as they are and once along the axes found; or twice their means, of many."""
        return (FeatureMoments() if self.axes is None else FeatureMeans()), 2

    @property
    def resolved(self) -> str:
        """All directions, or the one of the features' mean."""
        return "directions" if self.axes is None else "the direction of the features' mean"

    def check(self, plan: "Plan") -> None:
        """Require gradients along axes, and no lasso: in another metric, its proximal step is not a threshold."""
        if plan.lasso:
            raise ValueError(
                "the preconditioned algorithm does not support a lasso: ask for accelerated, or leave the lasso out"
            )
        if any(stage.question != self.question(1.0) for stage in plan.training_stages):
            raise ValueError("the preconditioned algorithm needs stages that ask for preconditioned gradients")

    def averaged(self, average: Average, rounds: int) -> Self:
        """Keep the mean of the last points: the choice of steps assumes it."""
        del average, rounds
        return self

    @property
    def keeps_theorem_average(self) -> bool:
        """Whether loss bounds are proved for its average: none are."""
        return False

    def words(self, plan: "Plan") -> str:
        """Say what decides the steps."""
        told = "the survey" if plan.training_numbers[0] else "the schema"
        return f"axes, clip and step by {told}, momentum {self.momentum:.3g}"


AlgorithmSpec: TypeAlias = Annotated[
    MinibatchSGD | Accelerated | MultiStage | Localized | Preconditioned, Field(discriminator="name")
]
