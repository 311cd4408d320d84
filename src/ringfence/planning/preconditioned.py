"""Preconditioned descent in a plan: where it is the default, what it cannot do, and how its budget is divided."""

import math

from ringfence.errors import PlanError
from ringfence.planning import defaults
from ringfence.protocol.algorithms import AlgorithmSpec, Preconditioned
from ringfence.protocol.domain import Ball, Domain, WholeSpace
from ringfence.protocol.losses import LogLink, Loss
from ringfence.protocol.questions.feature_means import MOVED as MOVED_MEANS
from ringfence.protocol.questions.feature_moments import MOVED
from ringfence.protocol.schema import Schema

ROUNDS, SURVEY, SURVEY_OF_MEANS = 12, 0.2, 0.05
"""Rounds, and the survey's share of the budget, in squared shift. Along whitened axes descent needs no more rounds,
however the features are scaled; the share is a fifth, so that noise in training rises by an eighth, and a twentieth for
means, which are fewer numbers and so clearer, where noise rises by a fortieth."""

WIDEST_MATRIX = 1000
"""The most features of which a survey tells how they vary together: as many numbers as their pairs, and every request
carries as many axes, 8 MB for this width. Of more features it tells the means."""


def method_for(width: int) -> tuple[Preconditioned, float]:
    """Return the method for that many features, and its survey's share of the budget."""
    if width <= WIDEST_MATRIX:
        return Preconditioned(), SURVEY
    return Preconditioned(axes="rank-one"), SURVEY_OF_MEANS


def survey_edge(data: Schema, loss: Loss, noise: float) -> float | None:
    """Return the least second moment that the survey can tell from its noise, in units of the largest one possible.

    `noise` is that of the whole budget in the silos' average of a number which a record moves by 1/n. None: there is no
    rule for what is asked. Noise in the means of d features has d times the second moment of that in one, along the
    direction in which it lies.
    """
    if not _has_rule(loss):
        return None
    method, share = method_for(data.width)
    if method.axes is None:
        return math.sqrt(2.0 * data.width) * MOVED * noise / math.sqrt(share / 2)
    return data.width * (MOVED_MEANS * noise) ** 2 / share


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


def require_method(algorithm: AlgorithmSpec | str | None, loss: Loss, *, alone: bool) -> None:
    """Refuse a method that cannot do what is asked; `alone`: nothing is asked for that another one is about."""
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
    return loss.is_squared_error or loss.is_log_loss or isinstance(loss, LogLink)


def _is_preconditioned(algorithm: AlgorithmSpec | str | None) -> bool:
    return algorithm == "preconditioned" or isinstance(algorithm, Preconditioned)


def domain_of(algorithm: AlgorithmSpec | str | None, distance: float) -> Domain:
    """Return a ball around the weights that loss bounds speak of; the whole space for a method without bounds."""
    return WholeSpace() if _is_preconditioned(algorithm) else Ball(radius=defaults.DOMAIN_REACH * distance)
