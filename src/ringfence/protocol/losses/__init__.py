"""The losses that a plan may name: this table. A new loss is a file beside it and a line in it (`docs/extending.md`).

`base` says what every loss is, and what its constants mean.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from ringfence.protocol.losses.base import BaseLoss, Choices, Constants, NonSmooth, TargetKind
from ringfence.protocol.losses.counts import Gamma, LogLink, NegativeBinomial, PoissonLoss
from ringfence.protocol.losses.custom import Custom
from ringfence.protocol.losses.kinked import Absolute, EpsilonInsensitive, Hinge, Pinball
from ringfence.protocol.losses.several import MultiSquared
from ringfence.protocol.losses.shared import Ordinal, Survival
from ringfence.protocol.losses.smooth import Huber, Logistic, Softmax, Squared

__all__ = [
    "LOSSES",
    "Absolute",
    "BaseLoss",
    "Choices",
    "Constants",
    "Custom",
    "EpsilonInsensitive",
    "Gamma",
    "Hinge",
    "Huber",
    "LogLink",
    "Logistic",
    "Loss",
    "MultiSquared",
    "NegativeBinomial",
    "NonSmooth",
    "Ordinal",
    "Pinball",
    "PoissonLoss",
    "Softmax",
    "Squared",
    "Survival",
    "TargetKind",
]

Loss: TypeAlias = Annotated[
    Logistic
    | Softmax
    | Squared
    | Huber
    | Hinge
    | Absolute
    | Pinball
    | EpsilonInsensitive
    | PoissonLoss
    | Gamma
    | NegativeBinomial
    | Survival
    | Ordinal
    | MultiSquared
    | Custom,
    Field(discriminator="name"),
]

LOSSES: dict[str, type[Loss]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(Loss)[0]) if kind is not Custom
}
"""Every loss that can be asked for by its name."""
