"""A survival curve from the shares of records that end in each part of the time, with intervals.

Of those at risk when a part begins, a share has an event in it. Whoever leaves without one in that part is counted as
at risk for half of it, as in a life table: between cuts nobody knows when. The curve is the product of what is left, as
Kaplan and Meier's is, which it equals where nobody leaves between an event and the next cut.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import SurvivalCurve
from ringfence.server.learned import Findings
from ringfence.server.questions.findings import argument, receive
from ringfence.server.survey import on_simplex

__all__ = ["Point", "argument", "curve", "receive"]

_DEVIATIONS = 1.959963984540054
"""To either side of an estimate, for 95 %."""
_LEAST = 1e-9


class Point(NamedTuple):
    """The share without an event up to a time, and a 95 % interval that covers sampling and noise."""

    time: float
    share: float
    low: float
    high: float


def curve(plan: Plan, findings: Mapping[str, Findings]) -> list[Point] | None:
    """Return the curve of the records of all silos that answered; None if the plan asks for none."""
    for stage in plan.stages:
        if isinstance(stage.question, SurvivalCurve) and stage.question.name in findings:
            found = findings[stage.question.name]
            records = sum(terms.records for terms in plan.silos if terms.name in found.each)
            return points(stage.question.cuts, found.statistic, found.noise, records)
    return None


def points(cuts: tuple[float, ...], shares: FloatArray, noise: float, records: int) -> list[Point]:
    """Return the curve of noisy shares of that many records: by the delta method, of the curve's logarithm.

    Noise of the same deviation is in every share, and the records are a sample, whose shares vary as a multinomial's.
    """
    likely = on_simplex(shares)
    spread = noise**2 * np.eye(len(likely)) + (np.diag(likely) - np.outer(likely, likely)) / records
    found = []
    for place, time in enumerate(cuts):
        value = _log_share(likely, place)
        steps = 1e-6 * np.eye(len(likely))
        slope = np.array([(_log_share(likely + step, place) - value) / 1e-6 for step in steps])
        reach = _DEVIATIONS * math.sqrt(float(slope @ spread @ slope))
        low, share, high = (min(math.exp(end), 1.0) for end in (value - reach, value, value + reach))
        found.append(Point(time, share, low, high))
    return found


def _log_share(shares: FloatArray, place: int) -> float:
    left, ended = shares.reshape(-1, 2).T
    before = np.concatenate([[0.0], np.cumsum(left + ended)[:-1]])
    at_risk = np.maximum(shares.sum() - before - left / 2, _LEAST)
    return float(np.sum(np.log(np.maximum(1.0 - (ended / at_risk)[: place + 1], _LEAST))))
