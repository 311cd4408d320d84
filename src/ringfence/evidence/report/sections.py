"""Sections and charts that several reports share: glossary, plan, cost per round, metrics. All of it is public."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from ringfence.estimates.metrics import EvaluationReport, Metric, ModelMetrics
from ringfence.federation.tracking import FOLLOWED, Progress
from ringfence.html.charts import Bar, Line, bar_chart, figure, line_chart
from ringfence.html.markup import Html, Value, bullets, paragraph, section, table, tag, together
from ringfence.protocol import Plan, Unit, rounds_words

MOST_BARS = 20

_UNITS: dict[Unit, tuple[str, str]] = {
    "record": ("Record", "One row of one silo's table. The guarantee holds for each record."),
    "person": ("Person", "Anyone with rows in one silo's table. The guarantee covers all rows of a person together."),
}

_TERMS = {
    "Silo": "One organisation that keeps its own records: a hospital, a bank, a school.",
    "Epsilon (ε)": "The privacy loss: how much a silo's messages can reveal about any one {unit}. At 0 they reveal "
    "nothing; at 1 they change the odds anyone would give on a {unit} by a factor of at most 2.72.",
    "Delta (δ)": "The tiny probability that epsilon does not cover.",
    "Ledger": "The silo's own log of every request and every answer. Tampering with a line is detected.",
}


def glossary(unit: Unit) -> Html:
    """Return the reports' section that defines a statement's terms for a reader who does not know them."""
    terms = (_UNITS[unit], *_TERMS.items())
    return bullets(*(together(tag("strong", f"{term}. "), meaning.format(unit=unit)) for term, meaning in terms))


def protection_section(unit: Unit, *parts: Html) -> Html:
    """Return the reports' section on the guarantees, with a glossary below them."""
    return section("Who is protected, and how well", *parts, tag("h3", "Terms"), glossary(unit))


def budget_chart(
    bars: Mapping[str, Sequence[float]], limits: Mapping[str, float], *, names: Sequence[str], limit_name: str
) -> Html:
    """Draw every silo's epsilons beside its limit; with many silos, only those with the largest."""
    shown = sorted(bars.items(), key=lambda item: -max(item[1]))[:MOST_BARS] if len(bars) > MOST_BARS else bars.items()
    left_out = f" Showing the {MOST_BARS} largest of {len(bars)} silos." if len(bars) > MOST_BARS else ""
    return bar_chart(
        [Bar(name, values, limits.get(name)) for name, values in shown],
        names=names,
        title="Epsilon per silo",
        description=f"One group of bars per silo: {', '.join(names)}.{left_out}",
        x_label="epsilon",
        limit_name=limit_name,
    )


def epsilon_chart(rounds: Sequence[Progress]) -> Html | None:
    """Draw how much each silo has used after every round; None if nothing was recorded."""
    marked = [progress for progress in rounds if progress.epsilon]
    if not marked:
        return None
    return line_chart(
        [Line(silo, [(p.round + 1, p.epsilon[silo]) for p in marked]) for silo in marked[-1].epsilon],
        title="Epsilon over the rounds",
        description="How much of its guarantee each silo has used after each round, up to what the plan allows.",
        x_label="round",
        y_label="epsilon used",
    )


def update_chart(rounds: Sequence[Progress], plan: Plan) -> Html | None:
    """Draw the norm of the averaged noisy gradients beside that of their noise; None if there were none."""
    gradients = [p for p in rounds if plan.place(p.round).stage.query.trains and p.update_norm is not None]
    if not gradients:
        return None
    noise = [(p.round + 1.0, p.noise_norm) for p in gradients if p.noise_norm is not None]
    return line_chart(
        [
            Line("averaged answer, with noise", [(p.round + 1.0, p.update_norm or 0.0) for p in gradients], level=True),
            Line("noise alone", noise, level=True),
        ],
        title="Norm of the averaged noisy gradients",
        description="Where the first line no longer rises above the second, a round shows little but noise.",
        x_label="round",
        y_label="norm",
    )


def rounds_number(*plans: Plan) -> dict[str, str]:
    """Return the number of all rounds of a report's plans, for its key numbers, by the parts that they belong to."""
    number, _, parts = rounds_words(*plans).partition(" ")
    return {parts: number}


def rounds_section(plan: Plan, epsilon: Html | None, updates: Html | None) -> Html:
    """Return the reports' section with the charts of a run's rounds."""
    more = f" Showing the {FOLLOWED} silos with the largest epsilon." if len(plan.silos) > FOLLOWED else ""
    return section(
        "Round by round",
        figure(
            epsilon,
            "How much of its guarantee each silo has used after each round, composed exactly from the plan. This is "
            f"bookkeeping: the guarantee is the plan's, even if a run stops early.{more}",
        ),
        figure(
            updates,
            "What the server saw in each round: the norm of the averaged noisy answers, beside the norm of the noise "
            "alone. Both are public.",
        ),
    )


def plan_section(plan: Plan, silos: Sequence[str]) -> Html:
    """Return the reports' section on what the plan says."""
    asked, unit = plan.training_stages or plan.stages, plan.unit.capitalize()
    what: list[tuple[str, Value]] = [("Asked for", ", ".join(dict.fromkeys(stage.query.name for stage in asked)))]
    if plan.steps:
        what = [
            ("To predict", plan.data.target_words),
            ("From", plan.data.inputs),
            ("Loss", plan.loss.name),
            ("Algorithm", plan.algorithm.name),
        ]
    rows: list[tuple[str, Value]] = [
        *plan.responsible.items(),
        *what,
        ("Rounds", rounds_words(plan)),
        *dict.fromkeys((f"{unit}s per round", stage.sampling.brief) for stage in asked),
        *dict.fromkeys((f"Limit per {plan.unit}", limits) for stage in asked if (limits := stage.query.limits(plan))),
        ("Numbers per answer", max(stage.query.length(plan) for stage in asked)),
        ("Silos", ", ".join(silos[:20]) + (f" and {len(silos) - 20} more" if len(silos) > 20 else "")),
        ("Adjacency", f"data sets that differ in one replaced {plan.unit}"),
    ]
    return section(
        "The plan",
        paragraph("Every silo's operator approved this plan by its digest. Nothing the server sends can change it."),
        paragraph(tag("code", plan.digest())),
        table("What the plan says", ["", ""], rows),
    )


def evaluation_charts(report: EvaluationReport | None) -> dict[str, Html | None]:
    """Return the ROC and the calibration curve, by name; None where there is none."""
    if report is None:
        return {}
    return {"roc": _roc_chart(report.together), "calibration": _calibration_chart(report)}


def evaluation_section(report: EvaluationReport | None, charts: Mapping[str, Html | None]) -> Html | None:
    """Return the reports' section on metrics with their intervals; None if nothing was evaluated."""
    if report is None:
        return None
    whole, unit = report.together, report.unit
    silos = [
        (name, own.records, own.metrics[0].name, *metric_cells(own.metrics[0])) for name, own in report.silos.items()
    ]
    confusion = [(cell.actual, cell.predicted, *metric_cells(cell.share)) for cell in whole.confusion]
    return section(
        "How good the model is",
        paragraph(
            f"Measured with noise on {whole.records:,} held-out {unit}s and charged to their silos' ledgers, so this "
            f"part is as private as the model. Each interval covers the population's value with probability "
            f"{report.coverage:.0%}{report.positive_words}."
        ),
        bullets(*(f"{one[0].upper()}{one[1:]}." for one in whole.sentences())),
        table("Per silo", ["silo", f"{unit}s", "metric", "value", "interval"], silos) if len(silos) > 1 else None,
        table("Confusion matrix", ["actual", "predicted", "share", "interval"], confusion) if confusion else None,
        figure(charts.get("roc"), "True positive rate against false positive rate, at each threshold measured."),
        figure(
            charts.get("calibration"),
            f"How often {_predicted_class(report)} occurred, against the probability the model gave it.",
        ),
    )


def metric_cells(metric: Metric) -> tuple[Value, Value]:
    """Return a metric's value and interval for a table in the reports' sections."""
    if metric.low is None or metric.high is None:
        return "too noisy to report", ""
    return "too wide to use" if metric.value is None else metric.value, f"{metric.low:.3g} to {metric.high:.3g}"


def _monotone(rates: Sequence[float]) -> list[float]:
    """Return ROC rates that never fall, halfway between the least such above them and the largest below."""
    above = list(accumulate(rates, max))
    below = list(accumulate(reversed(rates), min))[::-1]
    return [(high + low) / 2 for high, low in zip(above, below, strict=True)]


def _roc_chart(metrics: ModelMetrics) -> Html | None:
    """Draw the ROC curve for the reports' section on metrics; None if there are too few points."""
    falling = sorted(metrics.roc, key=lambda point: -point.threshold)
    rates = [(point.false_positive_rate.value, point.true_positive_rate.value) for point in falling]
    points = [(x, y) for x, y in rates if x is not None and y is not None]
    if len(points) < 2:
        return None
    across, upward = (_monotone(rates) for rates in zip(*points, strict=True))
    return line_chart(
        [
            Line("this model", [(0.0, 0.0), *zip(across, upward, strict=True), (1.0, 1.0)]),
            Line("random guess", [(0.0, 0.0), (1.0, 1.0)], level=True),
        ],
        title="ROC curve",
        description="True positive rate against false positive rate, measured with noise.",
        x_label="false positive rate",
        y_label="true positive rate",
    )


def _predicted_class(report: EvaluationReport) -> str:
    """Name the class whose probability the calibration curve shows."""
    if report.positive is not None:
        return f"'{report.positive}'"
    return "the second class" if report.together.roc else "the predicted class"


def _calibration_chart(report: EvaluationReport) -> Html | None:
    """Draw the calibration curve for the reports' section on metrics; None if there are too few points."""
    points = [(bin.predicted, bin.share.value) for bin in report.together.calibration if bin.share.value is not None]
    if len(points) < 2:
        return None
    return line_chart(
        [Line("this model", sorted(points)), Line("perfectly calibrated", [(0.0, 0.0), (1.0, 1.0)], level=True)],
        title="Calibration curve",
        description=f"How often {_predicted_class(report)} occurred, against its predicted probability, with noise.",
        x_label="predicted probability",
        y_label="observed share",
    )
