"""The questions that a plan's stages may ask: this table, and three files of each one's name.

`protocol.questions` has what is public of a question, `silo.questions` what is computed from records, and
`server.questions` what is made of the answers. A new question is a line here and those files; `docs/extending.md` adds
one.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.questions.base import BaseQuestion, PersonRule, Unit
from ringfence.protocol.questions.comparison import Comparison
from ringfence.protocol.questions.curvature import Curvature
from ringfence.protocol.questions.evaluation import Evaluation
from ringfence.protocol.questions.feature_means import FeatureMeans
from ringfence.protocol.questions.feature_moments import FeatureMoments
from ringfence.protocol.questions.gradient import Gradient
from ringfence.protocol.questions.moments import Moments
from ringfence.protocol.questions.preconditioned_gradient import PreconditionedGradient
from ringfence.protocol.questions.second_moments import SecondMoments
from ringfence.protocol.questions.statistics import Statistics
from ringfence.protocol.questions.survival_curve import SurvivalCurve

__all__ = [
    "BaseQuestion",
    "Comparison",
    "Curvature",
    "Evaluation",
    "FeatureMeans",
    "FeatureMoments",
    "Gradient",
    "Moments",
    "PersonRule",
    "PreconditionedGradient",
    "Question",
    "SecondMoments",
    "Statistics",
    "SurvivalCurve",
    "Unit",
]

Question: TypeAlias = Annotated[
    Gradient
    | PreconditionedGradient
    | Curvature
    | FeatureMoments
    | FeatureMeans
    | Moments
    | Evaluation
    | Comparison
    | SecondMoments
    | Statistics
    | SurvivalCurve,
    Field(discriminator="name"),
]
