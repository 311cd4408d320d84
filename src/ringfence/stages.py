"""What a plan is made of: stages, each of which asks one question over one channel, and the guarantees in return."""

from ringfence.protocol.channels import BaseChannel, Channel, OwnNoise, ShufflerChannel
from ringfence.protocol.guarantee import Guarantee, Observer
from ringfence.protocol.plan import Participation, Plan, SiloTerms, Stage, StageTerms, Training
from ringfence.protocol.questions import (
    BaseQuestion,
    Curvature,
    Evaluation,
    Gradient,
    Moments,
    Question,
    SecondMoments,
    Statistics,
    SurvivalCurve,
)

__all__ = [
    "BaseChannel",
    "BaseQuestion",
    "Channel",
    "Curvature",
    "Evaluation",
    "Gradient",
    "Guarantee",
    "Moments",
    "Observer",
    "OwnNoise",
    "Participation",
    "Plan",
    "Question",
    "SecondMoments",
    "ShufflerChannel",
    "SiloTerms",
    "Stage",
    "StageTerms",
    "Statistics",
    "SurvivalCurve",
    "Training",
]


def __dir__() -> list[str]:
    return sorted(__all__)
