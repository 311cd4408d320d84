"""Training algorithms, as data in the plan: what the server does with averaged gradients.

They do not affect privacy. The plan's stages say which records are used, and with what noise.
"""

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field

from ringfence.protocol.axes import AxesForm
from ringfence.protocol.plan.sampling import Phased, Sampling, SamplingName, sampling_named
from ringfence.protocol.public import Public
from ringfence.protocol.queries import Curvature, FeatureMeans, FeatureMoments, Gradient, PreconditionedGradient, Query

if TYPE_CHECKING:
    from ringfence.protocol.plan.plan import Plan

Average: TypeAlias = Literal["weighted", "last", "tail"]
"""Which iterates become the model: the theorem's weighted average, the last iterate, or the mean over the last quarter
of the rounds. All three are functions of messages already sent, so the choice costs no privacy."""


def tail_begins(rounds: int) -> int:
    """Return the number, from 0, of the first round in the last quarter, over which an algorithm may average."""
    return 3 * rounds // 4


class _Algorithm(Public):
    """What plan and planner need to know about every algorithm. `default_sampling` is taken where none is asked for."""

    default_sampling: ClassVar[SamplingName] = "full"
    takes_kinks: ClassVar[bool] = False
    """Whether it takes a loss with kinks unsmoothed."""
    finds_clip: ClassVar[bool] = False
    """Whether a survey decides the clipping norm."""
    takes_survey: ClassVar[bool] = True
    """Whether a survey of the curvature can improve its steps."""

    @property
    def resolved(self) -> str:
        """What a survey before an algorithm's training can estimate of the features despite its noise."""
        return "directions"

    def training_stages(self, sampling: SamplingName, rounds: int) -> list[tuple[int, Sampling]]:
        """Return the rounds and the sampling rule of every training stage of an algorithm."""
        return [(rounds, sampling_named(sampling))]

    def query(self, clip: float) -> Query:
        """Return the query of an algorithm's training stages, with gradients clipped to norm `clip`."""
        return Gradient(clip=clip)

    def survey(self) -> tuple[Query, int]:
        """Return the query of an algorithm's survey before training, and its number of rounds."""
        return Curvature(), 1

    def noise(self, records: int, stage: int) -> float:
        """Return a training stage's noise relative to the first stage's, by the algorithm, for that many records."""
        return 1.0

    def check(self, plan: "Plan") -> None:
        """Raise ValueError if the plan's training stages do not suit the algorithm; by default, any do."""

    @abstractmethod
    def averaged(self, average: Average, rounds: int) -> Self:
        """Return the algorithm with another rule for the iterates that become the model."""

    @property
    @abstractmethod
    def keeps_theorem_average(self) -> bool:
        """Whether an algorithm's model is the average that loss bounds are proved for."""

    @property
    def own_rounds(self) -> int | None:
        """How many rounds the training algorithm itself prescribes; None if it takes any number."""
        return None

    @abstractmethod
    def words(self, plan: "Plan") -> str:
        """Describe the steps of a training algorithm in a few words."""


class MinibatchSGD(_Algorithm):
    """Noisy minibatch SGD: the paper's Algorithm 2.

    w ← Proj(w + v), v ← momentum·v − step·g. The model is the average of the iterates at which rounds ask, the r-th
    with weight growth^r, without the first `skip`."""

    takes_kinks: ClassVar[bool] = True
    takes_survey: ClassVar[bool] = False
    name: Literal["minibatch-sgd"] = "minibatch-sgd"
    step: float = Field(gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    skip: int = Field(default=0, ge=0)
    growth: float = Field(default=1.0, ge=1)

    def check(self, plan: "Plan") -> None:
        """Require at least one round for SGD's average."""
        if plan.steps and self.skip >= plan.steps:
            raise ValueError("the average needs at least one round: lower `skip`")

    def averaged(self, average: Average, rounds: int) -> Self:
        """Let SGD's average skip no round, all but the last, or all but the last quarter."""
        skip = {"weighted": 0, "last": rounds - 1, "tail": tail_begins(rounds)}[average]
        return self.model_copy(update={"skip": skip})

    @property
    def keeps_theorem_average(self) -> bool:
        """Whether minibatch SGD skips no round in its average."""
        return self.skip == 0

    def words(self, plan: "Plan") -> str:
        """Name SGD's step size and momentum."""
        momentum = f", momentum {self.momentum:.3g}" if self.momentum else ""
        return f"step {self.step:.4g}{momentum}"


class Recursion(NamedTuple):
    """Some rounds of the accelerated recursion with one υ and one penalty.

    `recentres`: the penalty pulls towards where these rounds began, not to where all began.
    """

    rounds: int
    upsilon: float
    penalty: float
    recentres: bool


class Restart(Public):
    """Some rounds of the accelerated recursion from where the last ones ended, with υ at least `upsilon`."""

    rounds: int = Field(ge=1)
    upsilon: float = Field(ge=0)


class Phase(Public):
    """Some rounds on records of their own, with the penalty (λ/2)·‖w − where the phase began‖²."""

    rounds: int = Field(ge=1)
    penalty: float = Field(gt=0)


class _AcceleratedFamily(_Algorithm):
    """What the forms of the accelerated recursion share. `smoothness` bounds β; a survey may find a smaller one."""

    smoothness: float = Field(gt=0)
    average: Average = "weighted"

    def averaged(self, average: Average, rounds: int) -> Self:
        """Return the accelerated algorithm with another average."""
        return self.model_copy(update={"average": average})

    @property
    def keeps_theorem_average(self) -> bool:
        """Whether the accelerated algorithm keeps its weighted average."""
        return self.average == "weighted"

    @abstractmethod
    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return the accelerated runs that the server makes, in order, where β is at most `smoothness`."""


def _upsilon(least: float, factor: float, smoothness: float, convexity: float) -> float:
    """Return υ of an accelerated algorithm: what the noise asks for, but at least `factor` times β of the objective."""
    return max(least, factor * (smoothness + convexity))


class Accelerated(_AcceleratedFamily):
    """Accelerated noisy minibatch SGD in one run: the paper's Algorithm 1 (AC-SA).

    `smoothness` bounds β of the averaged loss; a survey may find a smaller one. `upsilon` is the least υ, the
    steps' inverse scale: larger noise needs a larger one. `penalty` adds (λ/2)·‖w − w₀‖² to make a convex
    problem strongly convex, as in the paper's regularised version.
    """

    name: Literal["accelerated"] = "accelerated"
    upsilon: float = Field(default=0.0, ge=0)
    penalty: float = Field(default=0.0, ge=0)

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return one accelerated run: υ ≥ 2β without strong convexity, υ ≥ β with some (the bounds' conditions)."""
        convexity = ridge + self.penalty
        upsilon = _upsilon(self.upsilon, 1.0 if convexity else 2.0, smoothness, convexity)
        return [Recursion(rounds, upsilon, self.penalty, False)]

    def words(self, plan: "Plan") -> str:
        """Name the accelerated run's υ and penalty."""
        penalty = f", penalty {self.penalty:.3g}" if self.penalty else ""
        (run,) = self.recursions(plan.steps, plan.ridge, self.smoothness)
        surveyed = plan.training_numbers[0] > 0
        return f"upsilon {'at most ' if surveyed else ''}{run.upsilon:.4g}{penalty}"


class MultiStage(_AcceleratedFamily):
    """Accelerated noisy minibatch SGD with restarts: the paper's multi-stage implementation."""

    name: Literal["multi-stage"] = "multi-stage"
    stages: tuple[Restart, ...] = Field(min_length=1, max_length=10_000)
    penalty: float = Field(default=0.0, ge=0)

    @property
    def own_rounds(self) -> int:
        """The rounds of all restarts of the multi-stage algorithm."""
        return sum(stage.rounds for stage in self.stages)

    def check(self, plan: "Plan") -> None:
        """Require the rounds of all restarts of the multi-stage algorithm, and strong convexity."""
        if self.own_rounds != plan.steps:
            raise ValueError("the stages' rounds must add up to the plan's rounds")
        if plan.ridge + self.penalty == 0:
            raise ValueError("stages help only with a strongly convex problem: give a ridge or a penalty")

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return an accelerated run for each restart: the paper's stages have υ ≥ 2β."""
        convexity = ridge + self.penalty
        return [
            Recursion(stage.rounds, _upsilon(stage.upsilon, 2.0, smoothness, convexity), self.penalty, False)
            for stage in self.stages
        ]

    def words(self, plan: "Plan") -> str:
        """Name the rounds of the multi-stage algorithm's restarts."""
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
        """The rounds of all phases of the localized algorithm."""
        return sum(phase.rounds for phase in self.phases)

    def check(self, plan: "Plan") -> None:
        """Require one training stage per phase of the localized algorithm, with its rounds and records."""
        planned = [(stage.rounds, stage.sampling) for stage in plan.training_stages]
        if planned != self.training_stages(self.default_sampling, plan.steps):
            raise ValueError("the localized algorithm needs one stage per phase, with that phase's rounds and records")

    def recursions(self, rounds: int, ridge: float, smoothness: float) -> list[Recursion]:
        """Return one for each phase: its penalty makes it strongly convex, so υ ≥ β."""
        return [
            Recursion(phase.rounds, _upsilon(0.0, 1.0, smoothness, ridge + phase.penalty), phase.penalty, True)
            for phase in self.phases
        ]

    def training_stages(self, sampling: SamplingName, rounds: int) -> list[tuple[int, Sampling]]:
        """Return one training stage for each phase of the localized algorithm."""
        return [(phase.rounds, Phased(phase=number)) for number, phase in enumerate(self.phases)]

    def noise(self, records: int, stage: int) -> float:
        """Return the noise with which a phase of the localized algorithm costs what the first does, relative to it.

        R rounds over m records have the shift 2L√R/(mσ); σ ∝ √R/m gives every phase the same guarantee. The last
        factor keeps rounding from making a later phase cost a hair more than the first.
        """
        rounds = self.phases[stage].rounds / self.phases[0].rounds
        size = (records >> (stage + 1)) / (records >> 1)
        return 1.0 if stage == 0 else math.sqrt(rounds) / size * (1 + 1e-6)

    def words(self, plan: "Plan") -> str:
        """Name the rounds of the localized algorithm's phases."""
        return "phases of " + ", ".join(str(phase.rounds) for phase in self.phases)


class Preconditioned(_Algorithm):
    """Heavy-ball descent along whitening axes (`server.algorithms.preconditioned`).

    A first stage may survey the features' second moments and the target's distribution. The server then chooses axes,
    clipping norm and step size from the noisy answers, or from the schema. The model is the mean of the last iterates.
    `axes` of rank one are for many features.
    """

    finds_clip: ClassVar[bool] = True
    keeps_theorem_average: ClassVar[bool] = False
    name: Literal["preconditioned"] = "preconditioned"
    momentum: float = Field(default=0.5, ge=0, lt=1)
    axes: AxesForm | None = None

    def query(self, clip: float) -> Query:
        """Ask for preconditioned gradients along axes, whose scale decides the clipping."""
        return PreconditionedGradient(axes=self.axes)

    def survey(self) -> tuple[Query, int]:
        """Survey second moments as they are, then along whitening axes; with rank-one axes, means twice."""
        return (FeatureMoments() if self.axes is None else FeatureMeans()), 2

    @property
    def resolved(self) -> str:
        """What the survey of the preconditioned algorithm can estimate: directions, or the direction of the mean."""
        return "directions" if self.axes is None else "the direction of the features' mean"

    def check(self, plan: "Plan") -> None:
        """Require gradients along axes, and no lasso: in another metric, its proximal step is not a threshold."""
        if plan.lasso:
            raise ValueError(
                "the preconditioned algorithm does not support a lasso: ask for accelerated, or leave the lasso out"
            )
        if any(stage.query != self.query(1.0) for stage in plan.training_stages):
            raise ValueError("the preconditioned algorithm needs stages that ask for preconditioned gradients")

    def averaged(self, average: Average, rounds: int) -> Self:
        """Keep the mean of the last preconditioned iterates: the choice of step sizes assumes it."""
        return self

    def words(self, plan: "Plan") -> str:
        """Name what decides the preconditioned steps: the survey or the schema."""
        source = "the survey" if plan.training_numbers[0] else "the schema"
        return f"axes, clip and step by {source}, momentum {self.momentum:.3g}"


AlgorithmSpec: TypeAlias = Annotated[
    MinibatchSGD | Accelerated | MultiStage | Localized | Preconditioned, Field(discriminator="name")
]
