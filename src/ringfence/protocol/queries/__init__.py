"""The queries that a plan's stages may ask, in one union.

`protocol.queries` has what is public of a query, `silo.queries` computes it from records, and `server.queries` uses the
answers. `docs/extending.md` adds one.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from ringfence.protocol.queries.column_distributions import ColumnDistributions as ColumnDistributions
from ringfence.protocol.queries.comparison import Comparison as Comparison
from ringfence.protocol.queries.curvature import Curvature as Curvature
from ringfence.protocol.queries.evaluation import Evaluation as Evaluation
from ringfence.protocol.queries.feature_means import FeatureMeans as FeatureMeans
from ringfence.protocol.queries.feature_moments import FeatureMoments as FeatureMoments
from ringfence.protocol.queries.gradient import Gradient as Gradient
from ringfence.protocol.queries.preconditioned_gradient import PreconditionedGradient as PreconditionedGradient
from ringfence.protocol.queries.second_moments import SecondMoments as SecondMoments
from ringfence.protocol.queries.statistics import Statistics as Statistics
from ringfence.protocol.queries.survival_curve import SurvivalCurve as SurvivalCurve

Query: TypeAlias = Annotated[
    Gradient
    | PreconditionedGradient
    | Curvature
    | FeatureMoments
    | FeatureMeans
    | ColumnDistributions
    | Evaluation
    | Comparison
    | SecondMoments
    | Statistics
    | SurvivalCurve,
    Field(discriminator="name"),
]
