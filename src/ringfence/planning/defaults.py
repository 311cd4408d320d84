"""Defaults of a plan, from public numbers only: loss, clip, distance, delta, and the default algorithm.

The default is preconditioned descent where its survey can resolve anything; elsewhere loss bounds decide
(`planning.algorithm_choice`).
"""

import math

from ringfence.errors import PlanError
from ringfence.planning.request import PlanRequest
from ringfence.protocol import (
    AlgorithmSpec,
    Ball,
    Domain,
    Logistic,
    LogLink,
    Loss,
    MultiSquared,
    Preconditioned,
    Schema,
    Softmax,
    Squared,
    WholeSpace,
)
from ringfence.protocol.losses import LOSSES
from ringfence.protocol.queries.feature_means import DIAMETER as MEANS_DIAMETER
from ringfence.protocol.queries.feature_moments import DIAMETER
from ringfence.protocol.schema.columns.numeric import Scaled

MOST_ROUNDS = 100
"""Most rounds of a plan unless the request gives a limit."""

DOMAIN_REACH = 3.0
"""Radius of the domain, in units of the planned distance."""


def default_delta(records: int) -> float:
    """Return 1/n², as in the paper, but at most 10⁻⁵: a larger δ would not protect small silos."""
    return min(1e-5, 1.0 / records**2)


def default_loss(data: Schema) -> Loss:
    """Return logistic for two categories, softmax for more, squared for a number, multi-squared for several."""
    column = data.target_column
    if data.more_targets is not None:
        return MultiSquared(targets=len(data.targets))
    if column.is_number:
        return Squared()
    return Logistic() if len(column.classes) == 2 else Softmax(classes=len(column.classes))


_INTERVALS = 5
"""How many equal intervals the survival time up to its bound has by default."""


def loss_named(name: str, schema: Schema, request: PlanRequest) -> Loss:
    """Return the loss of that name, with the request's parameters or those that fit the schema's target."""
    column, (unit, offset) = schema.target_column, schema.target_scaling
    if name not in LOSSES:
        raise PlanError(f"There is no loss '{name}'; choose one of {', '.join(LOSSES)}.")
    upper = column.high if isinstance(column, Scaled) else 1.0
    cuts = [upper * k / _INTERVALS for k in range(1, _INTERVALS)] if request.cuts is None else request.cuts
    margin = 0.1 * schema.target_bound if request.margin is None else request.margin
    fields = {
        "classes": len(column.classes) or 2,
        "targets": len(schema.targets),
        "quantile": request.quantile,
        "margin": margin,
        "threshold": margin,
        "zero": -offset / unit,
        "dispersion": request.dispersion * unit,
        "cuts": tuple(cut / unit for cut in cuts),
    }
    kind = LOSSES[name]
    return kind.model_validate({field: value for field, value in fields.items() if field in kind.model_fields})


def default_clip(data: Schema, loss: Loss) -> float:
    """Return the default clipping norm: about the typical norm of a record's gradient, well below the largest.

    For a linear model with one output this is still the gradient of a convex loss (a squared loss becomes a Huber
    loss), and noise shrinks in proportion.
    """
    return data.weight_bound * loss.typical_gradient(data.feature_norm, data.target_bound)


def default_distance(data: Schema, loss: Loss) -> float:
    """Return the expected norm of the best weights: D₀ of the loss bounds.

    A loss bound compares with the best weights of at most this norm, so it holds even if larger weights are better.
    """
    return loss.reach(data.feature_norm, data.target_bound)


PRECONDITIONED_ROUNDS = 12
"""Rounds of preconditioned descent: along whitened axes it needs no more, however the features are scaled."""

SURVEY_SHARE, MEANS_SURVEY_SHARE = 0.2, 0.05
"""Share of the budget (in μ²) of a survey of second moments, which raises the noise of training by an eighth, and of a
survey of means, which are fewer numbers and raise it by a fortieth."""

WIDEST_MATRIX = 1000
"""Most features whose second moments are surveyed: each request then carries a matrix of axes, 8 MB at this width. With
more features the survey asks for means."""


def preconditioned_for_width(width: int) -> tuple[Preconditioned, float]:
    """Return preconditioned descent for that many features, and its survey's share of the budget."""
    if width <= WIDEST_MATRIX:
        return Preconditioned(), SURVEY_SHARE
    return Preconditioned(axes="rank-one"), MEANS_SURVEY_SHARE


def survey_resolution(data: Schema, loss: Loss, noise: float) -> float | None:
    """Return the least second moment that a survey can tell from its noise, relative to the largest possible one.

    `noise` is the noise in the silos' average of a number of sensitivity 1/n, for the whole budget. None means that
    preconditioned descent has no rule for the loss. Noise in the means of d features has d times the second moment of
    noise in one of them, along its own direction.
    """
    if not _has_rule(loss):
        return None
    method, share = preconditioned_for_width(data.width)
    if method.axes is None:
        return math.sqrt(2.0 * data.width) * DIAMETER * noise / math.sqrt(share / 2)
    return data.width * (MEANS_DIAMETER * noise) ** 2 / share


def default_algorithm(resolution: float | None, loss: Loss) -> str | None:
    """Return the default algorithm; None where loss bounds choose it.

    Preconditioned descent had smaller errors on public tables than the choice by bounds. If its survey would be too
    noisy, the schema's bounds take its place. They cannot for a log link: the mean of counts lies far below the middle
    of their bounds.
    """
    if resolution is None or (isinstance(loss, LogLink) and not survey_resolves(resolution)):
        return None
    return "preconditioned"


def survey_resolves(resolution: float | None) -> bool:
    """Return whether a survey can resolve two directions (`server.algorithms.whitening`).

    Second moments sum to at most the largest possible one, so at most 1/resolution directions are resolved. A survey
    that resolves one has nothing to whiten, and is made only if the request asks for it. With None, for a survey that
    was not considered, nothing speaks against one.
    """
    return resolution is None or resolution < 1 / 2


def require_preconditioned_fits(algorithm: AlgorithmSpec | str | None, loss: Loss, *, alone: bool) -> None:
    """Refuse preconditioned descent for a loss without a rule, or if an option of another algorithm is set."""
    if not _is_preconditioned(algorithm):
        return
    if not _has_rule(loss):
        raise PlanError(
            "Preconditioned descent has a rule for the squared, logistic, softmax, poisson, negative-binomial and "
            f"gamma loss, not for the {loss.name} loss: ask for accelerated."
        )
    if not alone:
        raise PlanError(
            "Preconditioned descent surveys all records of every silo and finds clip, steps and average by itself: "
            "leave these, distance, sampling, a lasso and a bound on the population's loss out, or ask for "
            "accelerated."
        )


def _has_rule(loss: Loss) -> bool:
    """Return whether preconditioned descent has a rule for the loss."""
    return loss.is_squared_error or loss.is_log_loss or isinstance(loss, LogLink)


def _is_preconditioned(algorithm: AlgorithmSpec | str | None) -> bool:
    """Return whether the requested algorithm is preconditioned descent, by name or as a specification."""
    return algorithm == "preconditioned" or isinstance(algorithm, Preconditioned)


def default_domain(algorithm: AlgorithmSpec | str | None, distance: float) -> Domain:
    """Return a ball around the weights that loss bounds cover; the whole space for an algorithm without bounds."""
    return WholeSpace() if _is_preconditioned(algorithm) else Ball(radius=DOMAIN_REACH * distance)
