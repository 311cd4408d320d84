"""What is filled in where nobody says otherwise: rules that look at public numbers only."""

from ringfence.errors import PlanError
from ringfence.protocol.losses import LOSSES, Logistic, Loss, Softmax, Squared
from ringfence.protocol.schema import Categorical, Schema

ROUNDS = 100
"""The most rounds that the planner takes if no limit is given."""

DOMAIN_REACH = 3.0
"""The weights are kept within this many times the distance that is planned for."""


def delta(records: int) -> float:
    """Return 1/n², as in the paper, but never more than 10⁻⁵: a larger δ would promise small silos nothing."""
    return min(1e-5, 1.0 / records**2)


def loss(data: Schema) -> Loss:
    """Return logistic for two categories, softmax for more, squared for a number."""
    column = data.target_column
    if not isinstance(column, Categorical):
        return Squared()
    return Logistic() if len(column.categories) == 2 else Softmax(classes=len(column.categories))


def loss_named(name: str, schema: Schema, *, quantile: float = 0.5, margin: float | None = None) -> Loss:
    """Return the loss of that name, with parameters that suit the schema's target."""
    column = schema.target_column
    classes = len(column.categories) if isinstance(column, Categorical) else 2
    tolerated = 0.1 * schema.target_bound if margin is None else margin
    if name not in LOSSES:
        raise PlanError(f"There is no loss '{name}'; choose one of {', '.join(LOSSES)}.")
    return LOSSES[name].chosen(classes=classes, quantile=quantile, margin=tolerated)


def clip(data: Schema, loss: Loss) -> float:
    """Return where to cut a record's gradient: about its typical norm, well below its largest.

    For a linear model with one output this is still the gradient of a convex loss (a squared loss becomes a Huber
    loss), and noise shrinks in proportion.
    """
    return loss.typical_gradient(data.feature_norm, data.target_bound)


def distance(data: Schema, loss: Loss) -> float:
    """Return how large the weights are expected to get: D₀ of the loss bounds.

    Labels: scores of up to 20, times the number of outputs. Numbers: twice what would carry the longest record to the
    largest target. A loss bound compares with the best weights of at most this norm, so it holds whatever the best
    weights of all may be. The factors were chosen once, on public data.
    """
    X, Y = data.feature_norm, data.target_bound
    if loss.target_kind == "number":
        return 2.0 * Y / X
    return 20.0 * loss.outputs / X
