"""What all runs of one compiled program share: its stages, their kinds, and where every round stands."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ringfence.errors import TrainingError
from ringfence.protocol.domain import Domain
from ringfence.protocol.plan import EVERYBODY, Participation, Plan
from ringfence.protocol.proximal import Proximal
from ringfence.protocol.questions import PersonRule
from ringfence.protocol.sampling import Full, Sampling
from ringfence.simulation.channels import SimulatedNoise, simulating
from ringfence.simulation.channels.own_noise import GaussianNoise
from ringfence.simulation.gradient import LinearLoss

_ALL_RECORDS, _INDEPENDENT = Full(), GaussianNoise()


@dataclass(frozen=True)
class SimulatedStage:
    """What all runs of one compiled program share of a training stage; how many take part in a round, runs may set."""

    rounds: int
    sampling: Sampling = _ALL_RECORDS
    participation: Participation = EVERYBODY
    noise: SimulatedNoise = _INDEPENDENT

    def __post_init__(self) -> None:
        self.noise.check(self.participation)

    @property
    def kind(self) -> tuple[type[Sampling], Participation, SimulatedNoise]:
        """What a program is compiled for: neighbouring stages of one kind are one loop."""
        return type(self.sampling), self.participation, self.noise

    @property
    def has_same_records_always(self) -> bool:
        """Whether every record of every silo takes part in every round."""
        return self.sampling.takes_all and self.participation == EVERYBODY


class SimulatedRound(NamedTuple):
    """Where a round stands: its number among all rounds, its stage's number, and its number within the stage."""

    step: Any
    stage: Any
    round: Any


@dataclass(frozen=True)
class Rules:
    """What all runs of one compiled program share."""

    loss: LinearLoss
    domain: Domain
    stages: tuple[SimulatedStage, ...]
    algorithm: str = "minibatch-sgd"
    person_rule: PersonRule | None = None
    lasso: float = 0.0
    constants: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Return the rules of a plan's training stages."""
        if plan.held_out is not None:
            raise TrainingError(
                "The simulator trains on all records that it is given: plan with a held-out share of 0."
            )
        trains = [stage.question.trains for stage in plan.stages]
        if not any(trains) or trains != sorted(trains):
            raise TrainingError("The simulator takes only plans in which the last stages, and no others, train.")
        stages = [
            SimulatedStage(stage.rounds, stage.sampling, stage.participation, simulating(stage.channel))
            for stage in plan.training_stages
        ]
        step = plan.proximal
        return cls(
            plan.loss, plan.domain, tuple(stages), plan.algorithm.name, plan.person_rule, step.lasso, step.constants
        )

    @property
    def proximal(self) -> Proximal:
        """What the server does after every step."""
        return Proximal(self.domain, self.lasso, self.constants)

    @property
    def places(self) -> list[SimulatedRound]:
        """Where every round stands."""
        rounds = [(stage, round) for stage, own in enumerate(self.stages) for round in range(own.rounds)]
        return [SimulatedRound(step, *place) for step, place in enumerate(rounds)]
