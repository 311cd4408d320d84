"""Preconditioned descent in a plan: where it is the default, what it cannot do, and how its budget is divided."""

import math

from ringfence.errors import PlanError
from ringfence.planning import defaults
from ringfence.protocol.algorithms import AlgorithmSpec, Preconditioned
from ringfence.protocol.domain import Ball, Domain, WholeSpace
from ringfence.protocol.losses import LogLink, Loss
from ringfence.protocol.questions.feature_moments import MOVED
from ringfence.protocol.schema import Schema

ROUNDS, SURVEY = 12, 0.2
"""Rounds, and the survey's share of the budget, in squared shift. Along whitened axes descent needs no more rounds,
however the features are scaled; the share is a fifth, so that noise in training rises by an eighth."""

WIDEST_SURVEY = 1000
"""The most features of which a survey tells how they vary together: as many numbers as their pairs, and every request
carries as many axes, 8 MB for this width."""


def survey_edge(data: Schema, loss: Loss, noise: float) -> float | None:
    """Return the least second moment that the survey can tell from its noise, in units of the largest one possible.

    `noise` is that of the whole budget in the silos' average of a number which a record moves by 1/n. None: there is no
    rule for what is asked.
    """
    edge = math.sqrt(2.0 * data.width) * MOVED * noise / math.sqrt(SURVEY / 2)
    return edge if _has_rule(data, loss) else None


def default_method(edge: float | None, loss: Loss) -> str | None:
    """Return the method for whoever leaves it open, where one is better on public tables than what bounds favour.

    Where a survey would be too noisy to tell anything, the schema says what to expect. It does not for a log link: the
    mean of counts lies far below the middle of their bounds.
    """
    if edge is None or (isinstance(loss, LogLink) and not tells_apart(edge)):
        return None
    return "preconditioned"


def tells_apart(edge: float) -> bool:
    """Tell whether two directions can lie above the edge of the survey's noise (`server.metric`).

    Second moments add up to at most the largest possible one, so no more than 1/edge directions can. A survey that may
    find one at most has nothing to even out, and is not made unless somebody asks for it.
    """
    return edge < 1 / 2


def require_method(algorithm: AlgorithmSpec | str | None, data: Schema, loss: Loss, *, alone: bool) -> None:
    """Refuse a method that cannot do what is asked; `alone`: nothing is asked for that another one is about."""
    if not _is_preconditioned(algorithm):
        return
    if not _has_rule(data, loss):
        raise PlanError(
            "Preconditioned descent has a rule for the squared, logistic, softmax, poisson, negative-binomial and "
            f"gamma loss and at most {WIDEST_SURVEY} features, and here are the {loss.name} loss and {data.width} "
            "features: ask for accelerated."
        )
    if not alone:
        raise PlanError(
            "Preconditioned descent surveys all records of every silo and finds clip, steps and average by itself: "
            "leave these, distance, sampling, a lasso and a bound on the population's loss out, or ask for "
            "accelerated."
        )


def _has_rule(data: Schema, loss: Loss) -> bool:
    known = loss.is_squared_error or loss.is_log_loss or isinstance(loss, LogLink)
    return known and data.width <= WIDEST_SURVEY


def _is_preconditioned(algorithm: AlgorithmSpec | str | None) -> bool:
    return algorithm == "preconditioned" or isinstance(algorithm, Preconditioned)


def domain_of(algorithm: AlgorithmSpec | str | None, distance: float) -> Domain:
    """Return a ball around the weights that loss bounds speak of; the whole space for a method without bounds."""
    return WholeSpace() if _is_preconditioned(algorithm) else Ball(radius=defaults.DOMAIN_REACH * distance)
