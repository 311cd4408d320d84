"""Public documents: plans and their parts, schemas, losses, messages and certificates.

This is the one namespace for what plans are made of. Every query, loss, channel, sampling rule, algorithm, column type
and feature map can be imported from here:

    >>> from ringfence.protocol import Ball, FixedSize, Logistic, parse_schema
    >>> age, cost = ({"type": "numeric", "lower": 0, "upper": most} for most in (100, 5000))
    >>> schema = parse_schema({"columns": {"age": age, "cost": cost}}, target="cost")
    >>> list(schema.features)
    ['age']

Nothing here opens a record's file.
"""

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.axes import Axes, MatrixAxes, RankOneAxes
from ringfence.protocol.channels import Channel
from ringfence.protocol.channels.base import BaseChannel
from ringfence.protocol.channels.own_noise import OwnNoise
from ringfence.protocol.channels.shuffler import ShufflerChannel
from ringfence.protocol.documents.certificate import Certificate, CertifiedEntry, SignedCertificate, read_certificate
from ringfence.protocol.documents.custody import DataChange, FormerLedger, NewBeginning, Registration, Remark
from ringfence.protocol.documents.keys import PublicKeys, load_keys
from ringfence.protocol.documents.messages import (
    Answer,
    Batch,
    Head,
    NoisyUpdate,
    Refusal,
    RefusalReason,
    RoundRequest,
    SealedUpdate,
    Signature,
    SignedHead,
    pack,
    parse_answer,
    unpack,
)
from ringfence.protocol.losses import Loss
from ringfence.protocol.losses.base import BaseLoss, Constants, TargetKind
from ringfence.protocol.losses.custom import Custom
from ringfence.protocol.losses.log_link import Gamma, LogLink, NegativeBinomial, PoissonLoss
from ringfence.protocol.losses.nonsmooth import Absolute, EpsilonInsensitive, Hinge, NonSmooth, Pinball
from ringfence.protocol.losses.shared_slopes import Ordinal, Survival
from ringfence.protocol.losses.smooth import Huber, Logistic, MultiSquared, Softmax, Squared
from ringfence.protocol.plan.algorithms import (
    Accelerated,
    AlgorithmSpec,
    Average,
    Localized,
    MinibatchSGD,
    MultiStage,
    Phase,
    Preconditioned,
    Restart,
)
from ringfence.protocol.plan.domain import Ball, Box, Domain, Proximal, WholeSpace
from ringfence.protocol.plan.effort import Effort
from ringfence.protocol.plan.guarantee import Guarantee, Observer, against_words, claimed_against, observers_of
from ringfence.protocol.plan.plan import (
    EmbeddedPlan,
    Participation,
    Plan,
    SiloTerms,
    Stage,
    StageTerms,
    Task,
    Training,
    load_plan,
)
from ringfence.protocol.plan.sampling import (
    FixedSize,
    Full,
    OnePass,
    Phased,
    Poisson,
    Sampling,
    SamplingName,
    sampling_named,
)
from ringfence.protocol.plan.sections import Section
from ringfence.protocol.public import Digest, Document, Public, SiloName, explain
from ringfence.protocol.queries import Query
from ringfence.protocol.queries.base import BaseQuery, Facts, MeanQuery, PersonRule, Unit
from ringfence.protocol.queries.comparison import Comparison
from ringfence.protocol.queries.curvature import Curvature
from ringfence.protocol.queries.evaluation import Evaluation
from ringfence.protocol.queries.feature_means import FeatureMeans
from ringfence.protocol.queries.feature_moments import FeatureMoments
from ringfence.protocol.queries.gradient import Gradient
from ringfence.protocol.queries.preconditioned_gradient import PreconditionedGradient
from ringfence.protocol.queries.second_moments import SecondMoments
from ringfence.protocol.queries.statistics import Statistics
from ringfence.protocol.queries.survival_curve import SurvivalCurve
from ringfence.protocol.schema.columns import Column
from ringfence.protocol.schema.columns.base import BaseColumn, Identifier, Ignored
from ringfence.protocol.schema.columns.categorical import Boolean, Categorical, Code
from ringfence.protocol.schema.columns.date import Date
from ringfence.protocol.schema.columns.numeric import Numeric
from ringfence.protocol.schema.columns.text import Text
from ringfence.protocol.schema.columns.vector import Vector
from ringfence.protocol.schema.maps import FeatureMap
from ringfence.protocol.schema.maps.curves import Cyclic, Spline
from ringfence.protocol.schema.maps.joint import Fourier, Interaction
from ringfence.protocol.schema.schema import Geometry, Schema, load_columns, load_schema, parse_schema

__all__ = [
    "Absolute",
    "Accelerated",
    "AlgorithmSpec",
    "Answer",
    "Average",
    "Axes",
    "Ball",
    "BaseChannel",
    "BaseColumn",
    "BaseLoss",
    "BaseQuery",
    "Batch",
    "Boolean",
    "Box",
    "Categorical",
    "Certificate",
    "CertifiedEntry",
    "Channel",
    "Code",
    "Column",
    "Comparison",
    "Constants",
    "Curvature",
    "Custom",
    "Cyclic",
    "DataChange",
    "Date",
    "Digest",
    "Document",
    "Domain",
    "Effort",
    "EmbeddedPlan",
    "EpsilonInsensitive",
    "Evaluation",
    "Facts",
    "FeatureMap",
    "FeatureMeans",
    "FeatureMoments",
    "FixedSize",
    "FloatArray",
    "FormerLedger",
    "Fourier",
    "Full",
    "Gamma",
    "Geometry",
    "Gradient",
    "Guarantee",
    "Head",
    "Hinge",
    "Huber",
    "Identifier",
    "Ignored",
    "Interaction",
    "Localized",
    "LogLink",
    "Logistic",
    "Loss",
    "MatrixAxes",
    "MeanQuery",
    "MinibatchSGD",
    "MultiSquared",
    "MultiStage",
    "NegativeBinomial",
    "NewBeginning",
    "NoisyUpdate",
    "NonSmooth",
    "Numeric",
    "Observer",
    "OnePass",
    "Ordinal",
    "OwnNoise",
    "Participation",
    "PersonRule",
    "Phase",
    "Phased",
    "Pinball",
    "Plan",
    "Poisson",
    "PoissonLoss",
    "Preconditioned",
    "PreconditionedGradient",
    "Proximal",
    "Public",
    "PublicKeys",
    "Query",
    "RankOneAxes",
    "Refusal",
    "RefusalReason",
    "Registration",
    "Remark",
    "Restart",
    "RoundRequest",
    "Sampling",
    "SamplingName",
    "Schema",
    "SealedUpdate",
    "SecondMoments",
    "Section",
    "ShufflerChannel",
    "Signature",
    "SignedCertificate",
    "SignedHead",
    "SiloName",
    "SiloTerms",
    "Softmax",
    "Spline",
    "Squared",
    "Stage",
    "StageTerms",
    "Statistics",
    "Survival",
    "SurvivalCurve",
    "TargetKind",
    "Task",
    "Text",
    "Training",
    "Unit",
    "Vector",
    "WholeSpace",
    "against_words",
    "claimed_against",
    "explain",
    "load_columns",
    "load_keys",
    "load_plan",
    "load_schema",
    "observers_of",
    "pack",
    "parse_answer",
    "parse_schema",
    "read_certificate",
    "sampling_named",
    "unpack",
]
