"""Warnings of a plan before anything is charged, and the noise in scores that they rest on. Public numbers only.

*Noise in scores.* Along whitened axes, with curvature 1, a record's d features have norm about √d, and its gradient √d
residuals, which is about the clipping norm. Noise of variance v in each number of the gradient, in squares of the clip,
is then d·v in squares of a residual. There are d·k weights for k outputs, and each adds its noise to the scores: in all
d²·k·v squared residuals, which grows with the square of the width. The last iterate accumulates more noise than the
average over all rounds (`silo_weights.GATHERED`).

*When maps pay.* With noise ν, a squared error s² becomes about s²·(1 + ν). Maps that bring s₀² down to s₁² pay if
s₁²·(1 + ν₁) < s₀²·(1 + ν₀): if they remove more than 1 − (1 + ν₀)/(1 + ν₁) of the unexplained variance. How much they
do remove depends on the records, and is not asked.

*When features pay.* The best constant has squared error s₀², the target's variance; features that explain the share R²
of it leave s₁² = (1 − R²)·s₀². So they pay if R² > ν/(1 + ν). Correlated features do better than that: noise along
directions without variance changes no score.
"""

from ringfence.errors import visible
from ringfence.planning.propose import Proposal
from ringfence.planning.silo_weights import GATHERED
from ringfence.protocol import Plan, Unit
from ringfence.protocol.plan.guarantee import LARGE_EPSILON
from ringfence.protocol.plan.prospects import noise_in_weights, noise_variance, weight_of


def noise_in_scores(plan: Plan, width: int) -> float:
    """Return the approximate variance of the noise in scores with that many features, in squared residuals."""
    clip = plan.training_stages[0].query.largest(plan)
    return GATHERED * width**2 * plan.loss.outputs * noise_variance(plan) / clip**2


def must_explain(plan: Plan) -> float:
    """Return the R² that features need for the model to beat a constant.

    Derived for whitened axes and squared errors; 0 for other plans.
    """
    if not plan.training_numbers or not (plan.algorithm.finds_clip and plan.loss.is_squared_error):
        return 0.0
    noise = noise_in_scores(plan, plan.data.width)
    return noise / (1.0 + noise)


def noisy_scores_warning(plan: Plan) -> str:
    """Return a warning if features must explain half of the target's variance or more, else an empty text."""
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
    """Return the share of the unexplained variance that maps must remove to be worth their noise."""
    if not plan.training_numbers or not plan.data.maps:
        return 0.0
    plain, noise = _plain_width(plan), noise_in_scores(plan, plan.data.width)
    return max(0.0, 1.0 - (1.0 + noise_in_scores(plan, plain)) / (1.0 + noise))


def wide_maps_warning(plan: Plan) -> str:
    """Return a warning if maps must remove half of the unexplained variance or more, else an empty text."""
    share = maps_must_remove(plan)
    if share < 1 / 2:
        return ""
    return (
        f"The maps are wide for this budget: they make {plan.data.width} features of {_plain_width(plan)}, and unless "
        f"they remove more than {share:.0%} of what the plain columns leave unexplained, noise takes back what they "
        "gain. Take fewer knots, harmonics, interactions or Fourier features, or a larger epsilon."
    )


def _plain_width(plan: Plan) -> int:
    """Return the number of features without the schema's maps, for the warning about wide maps."""
    return plan.data.model_copy(update={"maps": None}).width


def plan_warnings(proposal: Proposal) -> list[str]:
    """Return the warnings about a proposal: too much noise for the budget, or too large an epsilon."""
    epsilon = max(terms.guarantee.epsilon for terms in proposal.plan.silos)
    plan = proposal.plan
    found = (
        noisy_weights_warning(proposal),
        noisy_scores_warning(plan),
        wide_maps_warning(plan),
        large_epsilon_warning(epsilon, plan.unit),
    )
    return [warning for warning in found if warning]


def noisy_weights_warning(proposal: Proposal) -> str:
    """Return a warning if the noise in a weight is as large as a weight, else an empty text."""
    plan = proposal.plan
    noise, size = noise_in_weights(plan), weight_of(proposal.distance, plan)
    if noise is None or noise < size:
        return ""
    return (
        f"This budget buys almost nothing: the noise in each weight is about {noise:.2g} or more, while a weight is "
        f"about {size:.2g} if the model has the expected norm ({proposal.distance:.3g}). Use fewer columns (there are "
        f"{plan.dimension} weights{_widest(plan)}), more records or a larger epsilon"
        f"{'' if plan.trust != 'nobody' else ', or trust a shuffler'}."
    )


def _widest(plan: Plan) -> str:
    """Return a clause for the noise warning about the column that makes more than half of the features, if any."""
    widths = {name: len(column.feature_names(name)) for name, column in plan.data.features.items()}
    name = max(widths, key=widths.__getitem__, default="")
    most = widths.get(name, 0)
    return f", most of them for {most} features of column '{visible(name)}'" if 2 * most > plan.data.width else ""


def large_epsilon_warning(epsilon: float, unit: Unit) -> str:
    """Return a warning if epsilon is too large to protect anybody, else an empty text."""
    if epsilon <= LARGE_EPSILON:
        return ""
    return (
        f"Epsilon {epsilon:g} protects almost nobody: a guess whether a {unit} was in the data may be right every "
        "time. Most releases stay below 10."
    )
