"""What width costs in noise, from public numbers alone, and what features and maps must explain to be worth it.

*The noise in scores.* Along axes in which features vary alike, with curvature 1, the d features of a record are about
√d long, and its gradient √d residuals, which is about what it is cut to. The noise's variance v in each number of the
gradient, in squares of the clip, is then d·v in squares of a residual; there is one for each of d·k weights (k is the
number of outputs), and each moves scores by its own noise. Altogether the scores' noise is d²·k·v of a residual's
square, and grows with the square of the width. The last point gathers more of it than the average over all rounds would
(`weighting.GATHERED`).

*What maps are worth.* With noise ν, a squared error s² becomes about s²·(1 + ν). Maps that bring s₀² down to s₁² pay if
s₁²·(1 + ν₁) < s₀²·(1 + ν₀): if they remove more than 1 − (1 + ν₀)/(1 + ν₁) of what the plain columns leave unexplained.
How much they do remove hangs on the records, and is not asked.

*What features are worth.* The best constant has the target's variance s₀² as its squared error, and features that
explain the share R² of it leave s₁² = (1 − R²)·s₀². So they pay if R² > ν/(1 + ν). Features that vary together do
better than that: noise along directions in which nothing varies moves no score.
"""

from ringfence.planning.weighting import GATHERED
from ringfence.protocol.plan import Plan
from ringfence.protocol.prospects import noise_variance


def noise_in_scores(plan: Plan, width: int) -> float:
    """Return about how large the noise in scores is with so many features, in squares of a residual."""
    clip = plan.training_stages[0].question.largest(plan)
    return GATHERED * width**2 * plan.loss.outputs * noise_variance(plan) / clip**2


def must_explain(plan: Plan) -> float:
    """Return which share of a number's variance the features must explain for the model to beat a constant.

    It is derived for axes along which features vary alike, and for squared errors; 0 elsewhere.
    """
    if not plan.training_numbers or not (plan.algorithm.finds_clip and plan.loss.is_squared_error):
        return 0.0
    noise = noise_in_scores(plan, plan.data.width)
    return noise / (1.0 + noise)


def noise_wins(plan: Plan) -> str:
    """Say so where features must explain half of the target's variance, or more; else nothing."""
    share = must_explain(plan)
    if share < 1 / 2:
        return ""
    return (
        f"Noise may outweigh what is learned: unless the features explain more than {share:.0%} of the target's "
        f"variance, or vary together, a constant predicts as well as this model. Use fewer columns (there are "
        f"{plan.dimension} weights), more {plan.unit}s or a larger epsilon"
        f"{'' if plan.trust != 'nobody' else ', or trust a shuffler'}."
    )


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
