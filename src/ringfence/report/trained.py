"""The report of `ringfence train`: what was learned, what it cost each silo, and what is and is not protected."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ringfence.html.charts import Line, figure, line_chart
from ringfence.html.markup import Html, bullets, outline, section, table, tag
from ringfence.model import Model
from ringfence.planning.explain import explain_proposal
from ringfence.planning.propose import Proposal
from ringfence.protocol.guarantee import against, against_words, claimed_against
from ringfence.report import sections
from ringfence.report.chosen import choice_section
from ringfence.report.evaluated import evaluation_charts, evaluation_section
from ringfence.report.expected import expected_charts, expected_section
from ringfence.report.page import ReportPage, counted, facts, not_private
from ringfence.statement import Statement
from ringfence.tracking import Progress
from ringfence.training import CHOOSING
from ringfence.workflow import WorkflowResult

MOST_WEIGHTS = 60


def train_report(
    outcomes: WorkflowResult,
    rounds: Sequence[Progress],
    *,
    what_if: Mapping[float, Proposal],
    cap: float | None = None,
) -> ReportPage:
    """Put the report of a run together. `what_if` are proposals for other budgets, by the factor on every epsilon."""
    plan, statement = outcomes.proposal.plan, outcomes.result.statement
    silos = statement.silos
    figures = {
        "budgets": sections.budget_chart(
            {name: (silo.run.epsilon, silo.total.epsilon) for name, silo in silos.items()},
            {} if cap is None else dict.fromkeys(silos, cap),
            names=("this run", "all runs in the ledger"),
            limit_name="cap on all runs",
        ),
        "epsilon": sections.epsilon_chart(rounds),
        "updates": sections.update_chart(rounds, plan),
        **expected_charts(what_if),
        **evaluation_charts(outcomes.result.evaluation),
        "held-out-loss": _loss_chart(outcomes.losses),
    }
    worst = max(silos.values(), key=lambda silo: silo.total.epsilon)
    parts = (
        tag(
            "p",
            f"{counted(len(silos), 'silo')} trained one model that predicts “{plan.data.target_words}”. Each silo kept "
            "its records, added its own noise to everything it sent, and logged the privacy cost.",
            class_="lead",
        ),
        facts(
            {
                f"largest epsilon of this run, per {plan.unit}": max(silo.run.epsilon for silo in silos.values()),
                "largest epsilon of all runs": worst.total.epsilon,
                f"{plan.unit}s in total": f"{sum(silo.records for silo in silos.values()):,}",
                "rounds": plan.steps,
            }
        ),
        not_private(
            "show this page only to people who may see the records behind its section “Measured without noise”. "
            "Without --exact and --test, the report has no such section."
        )
        if outcomes.test is not None
        else None,
        section(
            "Who is protected, and how well",
            outline(statement.text()),
            tag("h3", "Terms"),
            sections.glossary(plan.unit),
        ),
        _budgets(statement, figures["budgets"]),
        sections.rounds_section(plan, figures["epsilon"], figures["updates"]),
        choice_section(outcomes.result.model.choice),
        evaluation_section(outcomes.result.evaluation, figures),
        _test(outcomes, figures["held-out-loss"]),
        expected_section(what_if, figures),
        _why(outcomes),
        _model(outcomes.result.model),
        sections.plan_section(plan, list(silos)),
    )
    kicker = f"Training report · {datetime.now(UTC):%d %B %Y, %H:%M} UTC · plan {plan.digest()[:12]}"
    return ReportPage(
        f"A model of “{plan.data.target_words}” from {counted(len(silos), 'silo')}", kicker, parts, figures
    )


def _budgets(statement: Statement, chart: Html | None) -> Html:
    plan = statement.plan
    return section(
        "What it cost each silo",
        figure(
            chart,
            f"The epsilon guaranteed to each {plan.unit}, {claimed_against(plan.observers, plan.most_colluders)}: for "
            "this run, and for everything the silo's ledger says was ever released from the same data, however the "
            "runs were chosen and whenever they stop. Each holds at its own delta, below.",
        ),
        table(
            "Per silo",
            ["silo", f"{plan.unit}s", "rounds", "epsilon", "delta", "epsilon, all runs", "delta, all runs"],
            [
                (
                    name,
                    silo.records,
                    silo.rounds,
                    silo.run.epsilon,
                    silo.run.delta,
                    silo.total.epsilon,
                    silo.total.delta,
                )
                for name, silo in statement.silos.items()
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


def _test(outcomes: WorkflowResult, chart: Html | None) -> Html | None:
    if outcomes.test is None:
        return None
    rows = [("all silos", outcomes.test.value), *outcomes.test.per_silo.items()]
    return section(
        "Measured without noise",
        not_private(f"measured on records without noise, for people who may see those records. {CHOOSING}"),
        table("On records held out of training", ["records of", outcomes.test.metric], rows),
        tag("p", outcomes.test.remark) if outcomes.test.remark else None,
        figure(
            chart,
            "Mean loss on the held-out records at the start of each round. The final model combines the weights of "
            "several rounds, usually as their average.",
        ),
        class_="private",
    )


def _loss_chart(losses: Mapping[int, float]) -> Html | None:
    if not losses:
        return None
    return line_chart(
        [Line("held-out loss", [(round + 1, loss) for round, loss in sorted(losses.items())])],
        title="Held-out loss over the rounds",
        description="Not private. Mean loss on held-out records at the start of each round shown.",
        x_label="round",
        y_label="held-out loss (not private)",
    )


def _why(outcomes: WorkflowResult) -> Html:
    shared = [] if outcomes.division is None else outcomes.division.explain()
    lines = [*shared, *(_sentence(line) for line in explain_proposal(outcomes.proposal))]
    return section("Why the planner chose this", bullets(lines))


def _model(model: Model) -> Html | None:
    weights, one = model.by_size(), model.coefficients.shape[1] == 1
    if len(weights) > MOST_WEIGHTS:
        return None
    header = ["feature", "weight"] if one else ["feature", "output", "weight"]
    rows = [(name, weight) for name, _, weight in weights] if one else weights
    return section(
        "The model",
        tag(
            "p",
            "Weights of the scaled features, largest first. They are computed from noisy messages, so they are public.",
        ),
        table("Weights", header, rows),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
