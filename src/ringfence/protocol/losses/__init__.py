"""The losses that a plan may name: this table. A new loss is a file beside it and a line in it (`docs/extending.md`).

`base` says what every loss is, and what its constants mean.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from ringfence.protocol.losses.base import BaseLoss, Constants, NonSmooth, TargetKind
from ringfence.protocol.losses.kinked import Absolute, EpsilonInsensitive, Hinge, Pinball
from ringfence.protocol.losses.smooth import Huber, Logistic, Softmax, Squared

__all__ = [
    "LOSSES",
    "Absolute",
    "BaseLoss",
    "Constants",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "NonSmooth",
    "Pinball",
    "Softmax",
    "Squared",
    "TargetKind",
]

Loss: TypeAlias = Annotated[
    Logistic | Softmax | Squared | Huber | Hinge | Absolute | Pinball | EpsilonInsensitive, Field(discriminator="name")
]

LOSSES: dict[str, type[Loss]] = {kind.model_fields["name"].default: kind for kind in get_args(get_args(Loss)[0])}
"""Every loss by its name."""
