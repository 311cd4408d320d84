"""Gradients along axes, of all arguments at once: two products with the rows, and one more for each new set of axes."""

from collections.abc import Sequence

import numpy as np

from ringfence.protocol.arrays import TINY, FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import PreconditionedGradient
from ringfence.silo.questions.gradient import clipped_mean
from ringfence.simulation.questions import Rows


def means(
    question: PreconditionedGradient, plan: Plan, arguments: Sequence[FloatArray], rows: Rows
) -> Sequence[FloatArray]:
    """Return the clipped mean gradients.

    Cutting outer(Ax, residual) to norm 1 is cutting the residual to 1/‖Ax‖; and the sum of what is left of outer(x,
    residual) is turned to the axes at the end.
    """
    asked = [question.asked(plan, argument) for argument in arguments]
    weights = np.stack([own.reshape(plan.data.width, -1) for own, _ in asked], axis=1)
    total = clipped_mean(
        plan.loss,
        1 / np.maximum(rows.lengths([axes for _, axes in asked]), TINY),
        weights=weights,
        features=rows.features,
        norms=np.ones(len(rows.targets)),
        targets=rows.targets,
        shares=rows.shares,
    )
    return [axes.turned(total[:, place]).reshape(-1) for place, (_, axes) in enumerate(asked)]
