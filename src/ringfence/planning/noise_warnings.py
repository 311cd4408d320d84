"""Warnings about wide maps and large budgets, and the noise in scores that they rest on. Public numbers only.

*Noise in scores.* Along whitened axes, with curvature 1, a record's d features have norm about √d, and its gradient √d
residuals, which is about the clipping norm. Noise of variance v in each number of the gradient, in squares of the clip,
is then d·v in squares of a residual. There are d·k weights for k outputs, and each adds its noise to the scores: in all
d²·k·v squared residuals, which grows with the square of the width. The last iterate accumulates more noise than the
average over all rounds (`silo_weights.GATHERED`).

*When maps pay.* With noise ν, a squared error s² becomes about s²·(1 + ν). Maps that bring s₀² down to s₁² pay if
s₁²·(1 + ν₁) < s₀²·(1 + ν₀): if they remove more than 1 − (1 + ν₀)/(1 + ν₁) of the unexplained variance. How much they
do remove depends on the records, and is not asked.
"""

from ringfence.errors import visible
from ringfence.planning.propose import Proposal
from ringfence.planning.silo_weights import GATHERED
from ringfence.protocol import Plan, Unit
from ringfence.protocol.plan.guarantee import LARGE_EPSILON
from ringfence.protocol.plan.prospects import noise_variance


def noise_in_scores(plan: Plan, width: int) -> float:
    """Return the approximate variance of the noise in scores with that many features, in squared residuals."""
    clip = plan.training_stages[0].query.largest(plan)
    return GATHERED * width**2 * plan.loss.outputs * noise_variance(plan) / clip**2


def maps_must_remove(plan: Plan) -> float:
    """Return the share of the unexplained variance that maps must remove to be worth their noise."""
    straight = plan.data.without_open_curves()
    if not plan.training_numbers or not straight.maps:
        return 0.0
    plain, noise = _plain_width(plan), noise_in_scores(plan, straight.width)
    return max(0.0, 1.0 - (1.0 + noise_in_scores(plan, plain)) / (1.0 + noise))


def wide_maps_warning(plan: Plan) -> str:
    """Return a warning if maps must remove half of the unexplained variance or more, else an empty text."""
    share = maps_must_remove(plan)
    if share < 1 / 2:
        return ""
    width = plan.data.without_open_curves().width
    return (
        f"The maps are wide for this budget: they make {width} features of {_plain_width(plan)}, and unless "
        f"they remove more than {share:.0%} of what the plain columns leave unexplained, noise takes back what they "
        "gain. Take fewer knots, harmonics, interactions or Fourier features, or a larger epsilon."
    )


def _plain_width(plan: Plan) -> int:
    """Return the number of features without the schema's maps, for the warning about wide maps."""
    return plan.data.model_copy(update={"maps": None}).width


def plan_warnings(proposal: Proposal) -> list[str]:
    """Return the warnings about a proposal: maps that are too wide for the budget, or too large an epsilon."""
    epsilon = max(terms.guarantee.epsilon for terms in proposal.plan.silos)
    plan = proposal.plan
    found = (
        wide_maps_warning(plan),
        large_epsilon_warning(epsilon, plan.unit),
    )
    return [warning for warning in found if warning]


def widest_column(plan: Plan) -> str:
    """Return a clause about the column that makes more than half of a plan's features, if there is one."""
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
