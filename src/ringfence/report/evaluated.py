"""How good a model is, as a part of a page: figures with intervals, and curves."""

from collections.abc import Sequence
from itertools import accumulate

from ringfence.html.charts import Line, figure, line_chart
from ringfence.html.markup import Html, Value, bullets, section, table, tag
from ringfence.metrics.intervals import Figure
from ringfence.metrics.report import Evaluated, EvaluationReport


def evaluation_charts(report: EvaluationReport | None) -> dict[str, Html | None]:
    """Return the curves, where there are any: by name, for a page's figures."""
    if report is None:
        return {}
    found = report.together
    return {"roc": _roc(found), "calibration": _calibration(found)}


def evaluation_section(report: EvaluationReport | None, charts: dict[str, Html | None]) -> Html | None:
    """Return the part of a page; None if nothing was evaluated."""
    if report is None:
        return None
    found, unit = report.together, report.unit
    return section(
        "How good the model is",
        tag(
            "p",
            f"Measured with noise on {found.records:,} held-out {unit}s and charged to their silos' ledgers, so this "
            f"part is as private as the model. Each interval covers the population's value with probability "
            f"{report.coverage:.0%}.",
        ),
        bullets([*(f"{one[0].upper()}{one[1:]}." for one in found.sentences())]),
        table(
            "Per silo",
            ["silo", f"{unit}s", "metric", "value", "interval"],
            [_row(name, own) for name, own in report.silos.items()],
        )
        if len(report.silos) > 1
        else None,
        table("Confusion matrix", ["actual", "predicted", "share", "interval"], _confusion(found))
        if found.confusion
        else None,
        figure(
            charts.get("roc"),
            "True positive rate against false positive rate, at each threshold measured.",
        ),
        figure(
            charts.get("calibration"),
            "How often the second class occurred, against the probability the model gave it.",
        ),
    )


def _row(name: str, own: Evaluated) -> Sequence[Value]:
    first = own.figures[0]
    return (name, own.records, first.name, *told(first))


def _confusion(found: Evaluated) -> list[Sequence[Value]]:
    return [(cell.actual, cell.predicted, *told(cell.share)) for cell in found.confusion]


def told(one: Figure) -> tuple[Value, Value]:
    """Return a figure's value and interval for a table."""
    if one.value is None or one.low is None or one.high is None:
        return "hidden by noise", ""
    return one.value, f"{one.low:.3g} to {one.high:.3g}"


def _known(points: Sequence[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if x is not None and y is not None]


def _rising(rates: Sequence[float]) -> list[float]:
    """Return rates that never fall, halfway between the least such above them and the largest below."""
    above = list(accumulate(rates, max))
    below = list(accumulate(reversed(rates), min))[::-1]
    return [(high + low) / 2 for high, low in zip(above, below, strict=True)]


def _roc(found: Evaluated) -> Html | None:
    falling = sorted(found.roc, key=lambda point: -point.threshold)
    points = _known([(point.false_positive_rate.value, point.true_positive_rate.value) for point in falling])
    if len(points) < 2:
        return None
    across, upward = (_rising(rates) for rates in zip(*points, strict=True))
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


def _calibration(found: Evaluated) -> Html | None:
    points = _known([(bin.predicted, bin.share.value) for bin in found.calibration])
    if len(points) < 2:
        return None
    return line_chart(
        [
            Line("this model", sorted(points)),
            Line("perfectly calibrated", [(0.0, 0.0), (1.0, 1.0)], level=True),
        ],
        title="Calibration curve",
        description="How often the second class occurred, against its predicted probability, measured with noise.",
        x_label="predicted probability",
        y_label="observed share",
    )
