"""What is filled in where nobody says otherwise: rules that look at public numbers only."""

from ringfence.errors import PlanError
from ringfence.protocol.columns import Scaled
from ringfence.protocol.losses import LOSSES, Choices, Logistic, Loss, MultiSquared, Softmax, Squared
from ringfence.protocol.schema import Schema

ROUNDS = 100
"""The most rounds that the planner takes if no limit is given."""

DOMAIN_REACH = 3.0
"""The weights are kept within this many times the distance that is planned for."""


def delta(records: int) -> float:
    """Return 1/n², as in the paper, but never more than 10⁻⁵: a larger δ would promise small silos nothing."""
    return min(1e-5, 1.0 / records**2)


def loss(data: Schema) -> Loss:
    """Return logistic for two categories, softmax for more, squared for a number, multi-squared for several."""
    column = data.target_column
    if data.more_targets is not None:
        return MultiSquared(targets=len(data.targets))
    if column.is_number:
        return Squared()
    return Logistic() if len(column.classes) == 2 else Softmax(classes=len(column.classes))


def loss_named(
    name: str,
    schema: Schema,
    *,
    quantile: float = 0.5,
    margin: float | None = None,
    dispersion: float = 1.0,
    cuts: tuple[float, ...] | None = None,
) -> Loss:
    """Return the loss of that name, with parameters that suit the schema's target."""
    column, (unit, offset) = schema.target_column, schema.target_scaling
    choices = Choices(
        classes=len(column.classes) or 2,
        targets=len(schema.targets),
        quantile=quantile,
        margin=0.1 * schema.target_bound if margin is None else margin,
        dispersion=dispersion,
        cuts=cuts,
        unit=unit,
        offset=offset,
        upper=column.high if isinstance(column, Scaled) else 1.0,
    )
    if name not in LOSSES:
        raise PlanError(f"There is no loss '{name}'; choose one of {', '.join(LOSSES)}.")
    return LOSSES[name].chosen(choices)


def clip(data: Schema, loss: Loss) -> float:
    """Return where to cut a record's gradient: about its typical norm, well below its largest.

    For a linear model with one output this is still the gradient of a convex loss (a squared loss becomes a Huber
    loss), and noise shrinks in proportion.
    """
    return data.weight_bound * loss.typical_gradient(data.feature_norm, data.target_bound)


def distance(data: Schema, loss: Loss) -> float:
    """Return how large the weights are expected to get: D₀ of the loss bounds.

    A loss bound compares with the best weights of at most this norm, so it holds whatever the best weights of all may
    be.
    """
    return loss.reach(data.feature_norm, data.target_bound)
