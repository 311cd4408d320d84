"""What the width of public maps costs in noise, from public numbers alone, and what it takes to be worth it.

*The noise in scores.* Along axes in which features vary alike, with curvature 1, the d features of a record are about
√d long, and its gradient √d residuals, which is about what it is cut to. The noise's variance v in each number of the
gradient, in squares of the clip, is then d·v in squares of a residual; there is one for each of d·k weights (k is the
number of outputs), and each moves scores by its own noise. Altogether the scores' noise is d²·k·v of a residual's
square, and grows with the square of the width. The last point gathers more of it than the average over all rounds would
(`weighting.GATHERED`).

*What maps are worth.* With noise ν, a squared error s² becomes about s²·(1 + ν). Maps that bring s₀² down to s₁² pay if
s₁²·(1 + ν₁) < s₀²·(1 + ν₀): if they remove more than 1 − (1 + ν₀)/(1 + ν₁) of what the plain columns leave unexplained.
How much they do remove hangs on the records, and is not asked.
"""

from ringfence.planning.weighting import GATHERED
from ringfence.protocol.plan import Plan
from ringfence.protocol.prospects import noise_variance


def noise_in_scores(plan: Plan, width: int) -> float:
    """Return about how large the noise in scores is with so many features, in squares of a residual."""
    clip = plan.training_stages[0].question.largest(plan)
    return GATHERED * width**2 * plan.loss.outputs * noise_variance(plan) / clip**2


def maps_must_remove(plan: Plan) -> float:
    """Return which share of what the plain columns leave unexplained the maps must remove to be worth their noise."""
    if not plan.training_numbers or not plan.data.maps:
        return 0.0
    plain, noise = _plain_width(plan), noise_in_scores(plan, plan.data.width)
    return max(0.0, 1.0 - (1.0 + noise_in_scores(plan, plain)) / (1.0 + noise))


def too_wide(plan: Plan) -> str:
    """Say so where maps must remove half of what the plain columns leave unexplained, or more; else nothing."""
    share = maps_must_remove(plan)
    if share < 1 / 2:
        return ""
    return (
        f"The maps are wide for this budget: they make {plan.data.width} features of {_plain_width(plan)}, and unless "
        f"they remove more than {share:.0%} of what the plain columns leave unexplained, noise takes back what they "
        "gain. Take fewer knots, harmonics, interactions or Fourier features, or a larger epsilon."
    )


def _plain_width(plan: Plan) -> int:
    return plan.data.model_copy(update={"maps": None}).width
