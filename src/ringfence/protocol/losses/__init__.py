"""The losses that a plan may name: this table. A new loss is a file beside it and a line in it (`docs/extending.md`).

`base` defines a loss and its constants.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from ringfence.protocol.losses.custom import Custom
from ringfence.protocol.losses.log_link import Gamma, NegativeBinomial, PoissonLoss
from ringfence.protocol.losses.nonsmooth import Absolute, EpsilonInsensitive, Hinge, Pinball
from ringfence.protocol.losses.shared_slopes import Ordinal, Survival
from ringfence.protocol.losses.smooth import Huber, Logistic, MultiSquared, Softmax, Squared

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
