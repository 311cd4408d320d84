"""What the planner expects at other epsilons, as a part of a page: the privacy-accuracy curve, and loss bounds.

All of it is computed from proposals, which are made of public numbers: nothing is measured on a record.
"""

import math
from collections.abc import Mapping

from ringfence.html.charts import Line, figure, line_chart
from ringfence.html.markup import Html, Value, section, table, tag
from ringfence.planning.propose import Proposal
from ringfence.planning.widths import noise_in_scores

_PERCENT = 100.0


def expected_charts(proposals: Mapping[float, Proposal]) -> dict[str, Html | None]:
    """Return the figures, by name; None for what has fewer than two points."""
    return {"privacy-accuracy": _curve(proposals), "loss-bound": _bounds(proposals)}


def expected_section(proposals: Mapping[float, Proposal], charts: Mapping[str, Html | None]) -> Html | None:
    """Return the part of a page; None without proposals. Proposals are named by the factor on every epsilon."""
    if not proposals:
        return None
    largest = max(next(iter(proposals.values())).plan.silos, key=lambda terms: terms.records).name
    rows: list[tuple[Value, ...]] = [
        (
            f"{_epsilon(proposal):.4g}" + (" (this run)" if factor == 1 else ""),
            _noise(proposal, largest),
            f"{_PERCENT * extra_error(proposal):.2g}%",
            bound if math.isfinite(bound := _bound(proposal)) else "none",
            proposal.plan.algorithm.name,
            proposal.plan.steps,
        )
        for factor, proposal in proposals.items()
    ]
    return section(
        "Privacy and accuracy at other epsilons",
        tag(
            "p",
            tag("strong", "Expected by the planner's model, not measured. "),
            "The planner repeated its plan with every silo's epsilon scaled by one factor. It uses public numbers "
            "only: sizes, columns and budgets.",
        ),
        figure(
            charts.get("privacy-accuracy"),
            "How much noise is expected to add to the model's squared error, as a percentage of what the same model "
            "would have without noise. Read the curve for its shape: the planner's model assumes features that vary "
            "alike and are known without noise, so the true extra error can be several times larger.",
        ),
        figure(
            charts.get("loss-bound"),
            "Loss bound: how far the model's loss can be, on average, above that of the best weights. A bound is a "
            "worst case, not a forecast.",
        ),
        table(
            f"Noise is the standard deviation that silo “{largest}” adds to each number it sends",
            ["largest epsilon", "noise", "expected extra error", "loss bound", "algorithm", "rounds"],
            rows,
        ),
    )


def extra_error(proposal: Proposal) -> float:
    """Return by which share noise is expected to raise the model's squared error: `planning.widths` derives it."""
    return noise_in_scores(proposal.plan, proposal.plan.data.width)


def _curve(proposals: Mapping[float, Proposal]) -> Html | None:
    if len(proposals) < 2:
        return None
    points = [(_epsilon(proposal), _PERCENT * extra_error(proposal)) for proposal in proposals.values()]
    errors = [error for _, error in points]
    run = _epsilon(proposals[1.0]) if 1.0 in proposals else math.nan
    mark = Line("this run", [(run, min(errors)), (run, max(errors))], level=True)
    return line_chart(
        [Line("expected by the planner's model", points), mark],
        title="Privacy and accuracy, as the planner expects them",
        description="Not measured. Expected extra error from noise, in percent, against the largest epsilon: "
        + "; ".join(f"{error:.2g}% at epsilon {epsilon:.3g}" for epsilon, error in points)
        + ".",
        x_label="largest epsilon of a silo",
        y_label="expected extra error from noise, in %",
        log_x=True,
        log_y=True,
    )


def _bounds(proposals: Mapping[float, Proposal]) -> Html | None:
    points = [(_epsilon(proposal), _bound(proposal)) for proposal in proposals.values()]
    points = [(epsilon, bound) for epsilon, bound in points if math.isfinite(bound)]
    if len(points) < 2:
        return None
    return line_chart(
        [Line("loss bound", points)],
        title="Loss bound at other epsilons",
        description="Not measured. The bound on the excess loss falls as epsilon grows.",
        x_label="largest epsilon of a silo",
        y_label="loss bound",
        log_x=True,
        log_y=True,
    )


def _bound(proposal: Proposal) -> float:
    return math.inf if proposal.choice is None else proposal.choice.expected


def _epsilon(proposal: Proposal) -> float:
    return max(terms.guarantee.epsilon for terms in proposal.plan.silos)


def _noise(proposal: Proposal, silo: str) -> float:
    plan = proposal.plan
    terms = next(terms for terms in plan.silos if terms.name == silo)
    return terms.stages[plan.training_numbers[0]].sigma
