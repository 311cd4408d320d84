"""A model's curves on a page: a small chart for each column, with a band where a summary measured one."""

from collections.abc import Sequence

import numpy as np

from ringfence.evidence.report import sections
from ringfence.evidence.report.page import ReportPage, counted, kicker_line
from ringfence.html.charts import MOST_SERIES, Bar, Line, bar_chart, figure, line_chart
from ringfence.html.markup import Html, Value, outline, paragraph, readable, section, table, tag, together
from ringfence.model.curves import MISSING, Curve, column_curves, pair_curves, score_words
from ringfence.model.model import Model
from ringfence.model.summary import AT_ONCE, Summary
from ringfence.protocol import Plan

MOST_CURVES, MOST_BARS, _MOST_LETTERS = 24, 12, 34

_BEYOND = 2.0
"""How far charts show bands, in units of the largest number of any curve."""


def model_curves_section(model: Model) -> tuple[Html | None, dict[str, Html]]:
    """Return the training report's section on the model's own curves, and its charts by name; None without curves."""
    plan = model.placed_plan
    command = tag("code", "ringfence model summary --report")
    more = (command, " asks the silos again, for a budget of its own, and draws curves with confidence bands.")
    text = together(
        "They are computed from noisy messages, so they are public, and the noise moves them, too. ",
        *(more if plan.loss.is_curved and plan.data.maps else ()),
    )
    curves, pairs = (found(plan, model.coefficients) for found in (column_curves, pair_curves))
    return curves_section(plan, curves, pairs, text=text)


def curves_section(
    plan: Plan, curves: Sequence[Curve], pairs: Sequence[Curve] = (), *, text: str
) -> tuple[Html | None, dict[str, Html]]:
    """Return the section with a chart for each of the first curves, and the charts by name; None without curves."""
    words, own = score_words(plan), curves[:MOST_CURVES]
    shown = [*own, *pairs[:MOST_CURVES]]
    lines = np.concatenate([np.zeros(1), *(line for curve in shown for line in curve.lines.values())])
    lines = lines[np.isfinite(lines)]
    if not shown:
        return None, {}
    ends = np.array([end for curve in shown for one in curve.band if one.is_known for end in (one.low, one.high)])
    most = _BEYOND * np.abs(lines).max()
    reach = [float(end) for end in (lines.min(), lines.max(), *np.clip(ends, -most, most))]
    charts = {f"curve-{number}": _chart(curve, words, reach) for number, curve in enumerate(shown, 1)}
    drawn = [figure(chart, _caption(curve)) for chart, curve in zip(charts.values(), shown, strict=True)]
    remarks = {
        f"The first {MOST_CURVES} of {len(curves)} columns are shown.": len(curves) > MOST_CURVES,
        f"Only the first {MOST_SERIES} lines are drawn.": len(shown[0].lines) > MOST_SERIES,
        "Where a map joins columns, the curve of each is an average over the others.": plan.data.maps is not None,
        "Where a record is scaled to the schema's radius, so is what its columns add.": plan.data.radius is not None,
    }
    lead = (
        f"What each value of a column adds to the {words}, compared with the mean over the column's range or "
        "categories: the columns that matter most first, all on one scale."
    )
    return section(
        "What each column adds",
        paragraph(" ".join([lead, *(remark for remark, applies in remarks.items() if applies)])),
        paragraph(text),
        tag("div", *drawn[: len(own)], class_="curves"),
        *((tag("h3", "Two columns together"), tag("div", *drawn[len(own) :], class_="curves")) if pairs else ()),
    ), charts


def _chart(curve: Curve, words: str, reach: Sequence[float]) -> Html:
    """Draw one curve: a line over numbers, or bars of categories."""
    points, numbers = curve.points, curve.points.numbers.tolist()
    x_label, words = (
        text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…" for text in (points.axis, words)
    )
    lines = dict(list(curve.lines.items())[:MOST_SERIES])
    band = {at: (one.low, one.high) for at, one in zip(points.marks, curve.band, strict=False) if one.is_known}
    told = (f"{points.labels[at]}: " + ", ".join(f"{line[at]:.3g}" for line in lines.values()) for at in points.marks)
    description = f"What it adds to the {words}: {'; '.join(told)}."
    if not numbers:
        values = np.array(list(lines.values())).T
        known = [at for at in np.argsort(-np.abs(values).max(axis=1)) if np.isfinite(values[at]).all()]
        return bar_chart(
            [Bar(points.labels[at], values[at].tolist(), interval=band.get(at)) for at in sorted(known[:MOST_BARS])],
            names=list(lines), title=curve.name, description=description, x_label=words, small=True, reach=reach,
        )  # fmt: skip
    dates = points.labels[0] != f"{numbers[0]:.6g}"
    middles = [len(numbers) * part // 6 for part in (1, 3, 5)]
    return line_chart(
        [Line(name, list(zip(numbers, line.tolist(), strict=False))) for name, line in lines.items()],
        title=curve.name, description=description, x_label=x_label, y_label=words, small=True, reach=reach,
        x_ticks={numbers[at]: points.labels[at] for at in middles} if dates else None,
        band=[(numbers[at], *ends) for at, ends in band.items() if at < len(numbers)],
    )  # fmt: skip


def _caption(curve: Curve) -> Html:
    """Return the caption of a curve's chart: the column, how far it spans, and what the chart cannot show."""
    numbers, labels = curve.points.numbers, curve.points.labels
    missing, more = labels[-1] == MISSING and len(numbers), len(labels) - MOST_BARS
    cells = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in curve.table()[1][-1][1:]]
    values, ends = ", ".join(cells[: len(curve.lines)]), " to ".join(filter(None, cells[len(curve.lines) :]))
    return tag(
        "span",
        tag("strong", curve.name),
        *((" spans ", curve.span, ".") if curve.span else (" is flat, or unknown.",)),
        readable(f" Missing: {values}{ends and f' ({ends})'}.") if missing else "",
        f" Those {more} with the least effect are left out." if more > 0 and not len(numbers) else "",
    )


def summary_report(found: Summary) -> ReportPage:
    """Return the page of a summary: every curve with its band, and every coefficient."""
    plan = found.statement.plan
    level = f"{100 * found.level:.4g}% confidence intervals"
    curves, charts = curves_section(
        plan,
        found.curves,
        text=f"Bars and bands are {level} over {'silos' if found.by_silo else f'{plan.unit}s'}, which allow for the "
        f"noise. {AT_ONCE} What leaves a chart goes on beyond its edge.",
    )
    coefficients: list[list[Value]] = [[*row] for row in found.rows()]
    parts = (
        paragraph(
            f"{counted(len(found.statement.silos), 'silo')} measured, with noise, what best predicts "
            f"“{plan.data.target_words}”. Estimates are those of the loss without ridge, clipping and early stopping, "
            "so they need not be the model's own weights.",
            class_="lead",
        ),
        curves,
        section("Coefficients", table(f"In the table's own units, with {level}", found.HEADER, coefficients))
        if coefficients
        else None,
        paragraph(found.remark),
        sections.protection_section(plan.unit, outline(found.statement.text())),
    )
    kicker = kicker_line("Summary", f"plan {plan.digest()[:12]}")
    return ReportPage(f"What each column adds to “{plan.data.target_words}”", kicker, parts, charts)
