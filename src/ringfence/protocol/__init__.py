"""Public documents: plans and their parts, schemas, losses and messages.

This is the one namespace for what plans are made of. Every query, loss, channel, sampling rule, algorithm, column type
and feature map can be imported from here:

    >>> from ringfence.protocol import Ball, FixedSize, Logistic, parse_schema
    >>> age, cost = ({"type": "numeric", "lower": 0, "upper": most} for most in (100, 5000))
    >>> schema = parse_schema({"columns": {"age": age, "cost": cost}}, target="cost")
    >>> list(schema.features)
    ['age']

Nothing here opens a record's file.
"""

from types import ModuleType as _ModuleType

from ringfence.protocol.arrays import FloatArray as FloatArray
from ringfence.protocol.axes import Axes as Axes
from ringfence.protocol.axes import MatrixAxes as MatrixAxes
from ringfence.protocol.axes import RankOneAxes as RankOneAxes
from ringfence.protocol.channels import Channel as Channel
from ringfence.protocol.channels.base import BaseChannel as BaseChannel
from ringfence.protocol.channels.own_noise import OwnNoise as OwnNoise
from ringfence.protocol.channels.shuffler import ShufflerChannel as ShufflerChannel
from ringfence.protocol.documents.custody import DataChange as DataChange
from ringfence.protocol.documents.custody import FormerLedger as FormerLedger
from ringfence.protocol.documents.custody import NewBeginning as NewBeginning
from ringfence.protocol.documents.custody import Registration as Registration
from ringfence.protocol.documents.custody import Remark as Remark
from ringfence.protocol.documents.keys import PublicKeys as PublicKeys
from ringfence.protocol.documents.keys import load_keys as load_keys
from ringfence.protocol.documents.messages import Answer as Answer
from ringfence.protocol.documents.messages import Batch as Batch
from ringfence.protocol.documents.messages import Head as Head
from ringfence.protocol.documents.messages import NoisyUpdate as NoisyUpdate
from ringfence.protocol.documents.messages import Refusal as Refusal
from ringfence.protocol.documents.messages import RefusalReason as RefusalReason
from ringfence.protocol.documents.messages import RoundRequest as RoundRequest
from ringfence.protocol.documents.messages import SealedUpdate as SealedUpdate
from ringfence.protocol.documents.messages import Signature as Signature
from ringfence.protocol.documents.messages import SignedHead as SignedHead
from ringfence.protocol.documents.messages import pack as pack
from ringfence.protocol.documents.messages import parse_answer as parse_answer
from ringfence.protocol.documents.messages import unpack as unpack
from ringfence.protocol.losses import Loss as Loss
from ringfence.protocol.losses.base import BaseLoss as BaseLoss
from ringfence.protocol.losses.custom import Custom as Custom
from ringfence.protocol.losses.log_link import Gamma as Gamma
from ringfence.protocol.losses.log_link import LogLink as LogLink
from ringfence.protocol.losses.log_link import NegativeBinomial as NegativeBinomial
from ringfence.protocol.losses.log_link import PoissonLoss as PoissonLoss
from ringfence.protocol.losses.nonsmooth import Absolute as Absolute
from ringfence.protocol.losses.nonsmooth import EpsilonInsensitive as EpsilonInsensitive
from ringfence.protocol.losses.nonsmooth import Hinge as Hinge
from ringfence.protocol.losses.nonsmooth import NonSmooth as NonSmooth
from ringfence.protocol.losses.nonsmooth import Pinball as Pinball
from ringfence.protocol.losses.shared_slopes import Ordinal as Ordinal
from ringfence.protocol.losses.shared_slopes import Survival as Survival
from ringfence.protocol.losses.smooth import Huber as Huber
from ringfence.protocol.losses.smooth import Logistic as Logistic
from ringfence.protocol.losses.smooth import MultiSquared as MultiSquared
from ringfence.protocol.losses.smooth import Softmax as Softmax
from ringfence.protocol.losses.smooth import Squared as Squared
from ringfence.protocol.plan.algorithms import Accelerated as Accelerated
from ringfence.protocol.plan.algorithms import AlgorithmSpec as AlgorithmSpec
from ringfence.protocol.plan.algorithms import Average as Average
from ringfence.protocol.plan.algorithms import Localized as Localized
from ringfence.protocol.plan.algorithms import MinibatchSGD as MinibatchSGD
from ringfence.protocol.plan.algorithms import MultiStage as MultiStage
from ringfence.protocol.plan.algorithms import Phase as Phase
from ringfence.protocol.plan.algorithms import Preconditioned as Preconditioned
from ringfence.protocol.plan.algorithms import Restart as Restart
from ringfence.protocol.plan.domain import Ball as Ball
from ringfence.protocol.plan.domain import Box as Box
from ringfence.protocol.plan.domain import Domain as Domain
from ringfence.protocol.plan.domain import Proximal as Proximal
from ringfence.protocol.plan.domain import WholeSpace as WholeSpace
from ringfence.protocol.plan.effort import Effort as Effort
from ringfence.protocol.plan.guarantee import Guarantee as Guarantee
from ringfence.protocol.plan.guarantee import Observer as Observer
from ringfence.protocol.plan.guarantee import against_words as against_words
from ringfence.protocol.plan.guarantee import claimed_against as claimed_against
from ringfence.protocol.plan.guarantee import observers_of as observers_of
from ringfence.protocol.plan.plan import EmbeddedPlan as EmbeddedPlan
from ringfence.protocol.plan.plan import Participation as Participation
from ringfence.protocol.plan.plan import Plan as Plan
from ringfence.protocol.plan.plan import SiloTerms as SiloTerms
from ringfence.protocol.plan.plan import Stage as Stage
from ringfence.protocol.plan.plan import StageTerms as StageTerms
from ringfence.protocol.plan.plan import Task as Task
from ringfence.protocol.plan.plan import Training as Training
from ringfence.protocol.plan.plan import load_plan as load_plan
from ringfence.protocol.plan.plan import rounds_words as rounds_words
from ringfence.protocol.plan.sampling import FixedSize as FixedSize
from ringfence.protocol.plan.sampling import Full as Full
from ringfence.protocol.plan.sampling import OnePass as OnePass
from ringfence.protocol.plan.sampling import Phased as Phased
from ringfence.protocol.plan.sampling import Poisson as Poisson
from ringfence.protocol.plan.sampling import Sampling as Sampling
from ringfence.protocol.plan.sampling import SamplingName as SamplingName
from ringfence.protocol.plan.sampling import sampling_named as sampling_named
from ringfence.protocol.plan.sections import Section as Section
from ringfence.protocol.public import Digest as Digest
from ringfence.protocol.public import Document as Document
from ringfence.protocol.public import Public as Public
from ringfence.protocol.public import SiloName as SiloName
from ringfence.protocol.public import explain as explain
from ringfence.protocol.queries import Query as Query
from ringfence.protocol.queries.base import BaseQuery as BaseQuery
from ringfence.protocol.queries.base import Facts as Facts
from ringfence.protocol.queries.base import MeanQuery as MeanQuery
from ringfence.protocol.queries.base import PersonRule as PersonRule
from ringfence.protocol.queries.base import Unit as Unit
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
from ringfence.protocol.schema.columns import Column as Column
from ringfence.protocol.schema.columns.base import Identifier as Identifier
from ringfence.protocol.schema.columns.base import Ignored as Ignored
from ringfence.protocol.schema.columns.categorical import Boolean as Boolean
from ringfence.protocol.schema.columns.categorical import Categorical as Categorical
from ringfence.protocol.schema.columns.categorical import Code as Code
from ringfence.protocol.schema.columns.date import Date as Date
from ringfence.protocol.schema.columns.numeric import Numeric as Numeric
from ringfence.protocol.schema.columns.vector import Text as Text
from ringfence.protocol.schema.columns.vector import Vector as Vector
from ringfence.protocol.schema.maps import FeatureMap as FeatureMap
from ringfence.protocol.schema.maps.curves import Cyclic as Cyclic
from ringfence.protocol.schema.maps.curves import Spline as Spline
from ringfence.protocol.schema.maps.joint import Fourier as Fourier
from ringfence.protocol.schema.maps.joint import Interaction as Interaction
from ringfence.protocol.schema.schema import Schema as Schema
from ringfence.protocol.schema.schema import load_columns as load_columns
from ringfence.protocol.schema.schema import load_schema as load_schema
from ringfence.protocol.schema.schema import parse_schema as parse_schema

__all__ = [name for name, thing in globals().items() if name[0] != "_" and not isinstance(thing, _ModuleType)]
