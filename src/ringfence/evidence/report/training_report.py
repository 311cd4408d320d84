"""The report of `ringfence train`: the model, its cost to each silo, its metrics, and other epsilons.

The section on other epsilons is computed from proposals, which are made of public numbers: nothing in it is measured.
"""

import math
from collections.abc import Mapping, Sequence

from ringfence.estimates.comparison import Choice
from ringfence.evidence.report import sections
from ringfence.evidence.report.curves import model_curves_section
from ringfence.evidence.report.page import ReportPage, counted, kicker_line
from ringfence.federation.tracking import Progress
from ringfence.federation.training import CHOOSING
from ringfence.federation.workflow import WorkflowResult
from ringfence.html.charts import Line, figure, line_chart
from ringfence.html.markup import Html, bullets, key_numbers, not_private, outline, paragraph, section, table, tag
from ringfence.model.statement import Statement
from ringfence.planning.explain import explain_proposal
from ringfence.planning.noise_warnings import noise_in_scores
from ringfence.planning.propose import Proposal
from ringfence.protocol import against_words, claimed_against
from ringfence.protocol.plan.guarantee import against


def train_report(
    outcomes: WorkflowResult, rounds: Sequence[Progress], *, what_if: Mapping[float, Proposal], cap: float | None = None
) -> ReportPage:
    """Return the report of a run. `what_if` are proposals for other budgets, by the factor on every epsilon."""
    plan, result = outcomes.proposal.plan, outcomes.result
    curves, charts = model_curves_section(result.model)
    silos = result.statement.silos
    figures = {
        "budgets": sections.budget_chart(
            {name: (silo.run.epsilon, silo.total.epsilon) for name, silo in silos.items()},
            {} if cap is None else {name: cap for name, silo in silos.items() if silo.total.epsilon <= cap},
            names=("this run", "all runs in the ledger"),
            limit_name="cap on all runs",
        ),
        "epsilon": sections.epsilon_chart(rounds),
        "updates": sections.update_chart(rounds, plan),
        "privacy-accuracy": _privacy_accuracy_chart(what_if),
        "loss-bound": _loss_bound_chart(what_if),
        **sections.evaluation_charts(result.evaluation),
        "held-out-loss": _held_out_loss_chart(outcomes.losses),
        **charts,
    }
    target = plan.data.target_words
    shared = [] if outcomes.division is None else outcomes.division.explain()
    reasons = [f"{line[:1].upper()}{line[1:]}." for line in explain_proposal(outcomes.proposal)]
    parts = (
        paragraph(
            f"{counted(len(silos), 'silo')} trained one model that predicts “{target}”. Each silo kept its records, "
            "added its own noise to everything it sent, and logged the privacy cost.",
            class_="lead",
        ),
        key_numbers(
            {
                f"largest epsilon of this run, per {plan.unit}": max(silo.run.epsilon for silo in silos.values()),
                "largest epsilon of all runs": max(silo.total.epsilon for silo in silos.values()),
                f"{plan.unit}s in total": f"{sum(silo.records for silo in silos.values()):,}",
                **sections.rounds_number(*result.statement.plans),
            }
        ),
        not_private(
            "show this page only to people who may see the records behind its section “Measured without noise”. "
            "Without --exact and --test, the report has no such section."
        )
        if outcomes.test is not None
        else None,
        sections.protection_section(plan.unit, outline(result.statement.text())),
        _cost_section(result.statement, figures["budgets"], cap),
        sections.rounds_section(plan, figures["epsilon"], figures["updates"]),
        _choice_section(result.model.choice),
        sections.evaluation_section(result.evaluation, figures),
        _exact_test_section(outcomes, figures["held-out-loss"]),
        _other_epsilons_section(what_if, figures),
        section("Why the planner chose this", bullets(*shared, *reasons)),
        curves,
        sections.plan_section(plan, list(silos)),
    )
    kicker = kicker_line("Training report", f"plan {plan.digest()[:12]}")
    return ReportPage(f"A model of “{target}” from {counted(len(silos), 'silo')}", kicker, parts, figures)


def _cost_section(statement: Statement, chart: Html | None, cap: float | None) -> Html:
    """Return the training report's section on what the run cost each silo."""
    plan = statement.plan
    late = [name for name, silo in statement.silos.items() if cap is not None and silo.total.epsilon > cap]
    return section(
        "What it cost each silo",
        figure(
            chart,
            f"The epsilon guaranteed to each {plan.unit}, {claimed_against(plan.observers, plan.most_colluders)}: for "
            "this run, and for everything the silo's ledger says was ever released from the same data, however the "
            "runs were chosen and whenever they stop. Each holds at its own delta, below.",
        ),
        paragraph(
            f"The cap of {cap:.4g} was set after the first answer of {', '.join(late)}. There it limits what plans "
            "use, but it is not the guarantee, which also covers that answers may have led to the cap."
        )
        if late
        else None,
        table(
            "Per silo",
            ["silo", f"{plan.unit}s", "rounds", "epsilon", "delta", "epsilon, all runs", "delta, all runs"],
            [
                (name, own.records, own.rounds, own.run.epsilon, own.run.delta, own.total.epsilon, own.total.delta)
                for name, own in statement.silos.items()
            ],
        ),
        *(
            table(
                f"{against_words(observer).capitalize()}: each silo's own noise alone",
                ["silo", "epsilon", "epsilon, all runs"],
                [
                    (name, against(silo.this_run, observer).epsilon, against(silo.all_runs, observer).epsilon)
                    for name, silo in statement.silos.items()
                ],
            )
            for observer in plan.observers[1:]
        ),
    )


def _choice_section(choice: Choice | None) -> Html | None:
    """Return the training report's section on all candidates, with intervals that allow for the choice, or None."""
    if choice is None:
        return None
    return section(
        "Which candidate was chosen",
        paragraph(" ".join(choice.sentences())),
        paragraph(
            f"Ringfence trained every candidate and compared their noisy losses on each held-out {choice.unit}, "
            f"clipping large differences. The cost and the rounds of this run are those of all candidates together; "
            "charts, plan, noise and weights on this page are those of the chosen one."
        ),
        table(
            "The candidates",
            ["candidate", "loss above the best", "interval"],
            [
                (str(one), *(("the best", "") if number == choice.best else sections.metric_cells(one.above)))
                for number, one in enumerate(choice.candidates)
            ],
        ),
    )


def _exact_test_section(outcomes: WorkflowResult, chart: Html | None) -> Html | None:
    """Return the training report's section on metrics measured without noise; None if there are none."""
    if outcomes.test is None:
        return None
    rows = [("all silos", outcomes.test.value), *outcomes.test.per_silo.items()]
    return section(
        "Measured without noise",
        not_private(f"measured on records without noise, for people who may see those records. {CHOOSING}"),
        table("On records held out of training", ["records of", outcomes.test.metric], rows),
        paragraph(outcomes.test.remark) if outcomes.test.remark else None,
        figure(
            chart,
            "Mean loss on the held-out records at the start of each round. The final model combines the weights of "
            "several rounds, usually as their average.",
        ),
        class_="private",
    )


def _held_out_loss_chart(losses: Mapping[int, float]) -> Html | None:
    """Draw the held-out loss over the rounds for the training report; None if it was not measured."""
    if not losses:
        return None
    return line_chart(
        [Line("held-out loss", [(round + 1, loss) for round, loss in sorted(losses.items())])],
        title="Held-out loss over the rounds",
        description="Not private. Mean loss on held-out records at the start of each round shown.",
        x_label="round",
        y_label="held-out loss (not private)",
    )


def _other_epsilons_section(proposals: Mapping[float, Proposal], charts: Mapping[str, Html | None]) -> Html | None:
    """Show what the planner expects at other epsilons, by the factor on every epsilon; None without proposals."""
    if not proposals:
        return None
    largest = max(next(iter(proposals.values())).plan.silos, key=lambda terms: terms.records).name
    rows = [
        (
            f"{_largest_epsilon(proposal):.4g}" + (" (this run)" if factor == 1 else ""),
            next(terms for terms in plan.silos if terms.name == largest).stages[plan.training_numbers[0]].sigma,
            f"{100.0 * extra_error(proposal):.2g}%",
            bound if math.isfinite(bound := _loss_bound(proposal)) else "none",
            plan.algorithm.name,
            plan.rounds,
        )
        for factor, proposal in proposals.items()
        for plan in [proposal.plan]
    ]
    return section(
        "Privacy and accuracy at other epsilons",
        paragraph(
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
    """Return by which share noise should raise the trained model's squared error (`planning.noise_warnings`)."""
    return noise_in_scores(proposal.plan, proposal.plan.data.without_open_curves().width)


def _privacy_accuracy_chart(proposals: Mapping[float, Proposal]) -> Html | None:
    """Draw the expected error at other epsilons for the training report; None if there are none."""
    if len(proposals) < 2:
        return None
    points = [(_largest_epsilon(proposal), 100.0 * extra_error(proposal)) for proposal in proposals.values()]
    errors = [error for _, error in points]
    run = _largest_epsilon(proposals[1.0]) if 1.0 in proposals else math.nan
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


def _loss_bound_chart(proposals: Mapping[float, Proposal]) -> Html | None:
    """Draw the loss bound at other epsilons for the training report; None if there are too few."""
    bounds = [(_largest_epsilon(proposal), _loss_bound(proposal)) for proposal in proposals.values()]
    points = [(epsilon, bound) for epsilon, bound in bounds if math.isfinite(bound)]
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


def _loss_bound(proposal: Proposal) -> float:
    """Return a proposal's bound on the excess loss for the training report; infinite if there is none."""
    return math.inf if proposal.choice is None else proposal.choice.expected


def _largest_epsilon(proposal: Proposal) -> float:
    """Return the largest epsilon of a proposal's silos, for the training report's charts."""
    return max(terms.guarantee.epsilon for terms in proposal.plan.silos)
