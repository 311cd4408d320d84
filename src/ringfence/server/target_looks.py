"""How the target is spread, look by look: each look at a number is closer than the one before."""

from typing import NamedTuple, Self

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions.feature_moments import WEIGHT, target_parts
from ringfence.server import survey

REACH = 2.5
"""A window reaches this many standard deviations to either side of the centre, and as far as noise may move that."""


class TargetLooks(NamedTuple):
    """The window of the next look at a number, and what classes' shares add up to over the looks so far."""

    lower: float
    upper: float
    shares: FloatArray
    looks: int = 0

    @classmethod
    def none(cls, plan: Plan) -> Self:
        """Begin with all that the bounds allow."""
        return cls(-plan.data.target_bound, plan.data.target_bound, np.zeros(target_parts(plan)))

    def seen(self, plan: Plan, told: FloatArray, noise: float) -> tuple[survey.Target, "TargetLooks"]:
        """Return what a look tells, of which numbers have that noise, and how the next one looks."""
        shares, noise, looks = told / WEIGHT, noise / WEIGHT, self.looks + 1
        if plan.loss.target_kind == "number":
            target = survey.of_number(shares, np.linspace(self.lower, self.upper, len(shares) + 1), noise)
            return target, TargetLooks(*_window(plan, target), shares, looks)
        shares = self.shares + shares
        target = survey.of_labels(shares / looks, noise / looks**0.5)
        return target, TargetLooks(-1.0, 1.0, shares, looks)


def _window(plan: Plan, target: survey.Target) -> tuple[float, float]:
    """Return where to look at the target next, within its public bounds."""
    bound, centre = plan.data.target_bound, float(target.centre[0])
    reach = REACH * target.spread + target.uncertainty**0.5
    return max(-bound, centre - reach), min(bound, centre + reach)
