"""A model's curves on a page: a small chart for each column, with a band where a summary measured one."""

from collections.abc import Sequence

import numpy as np

from ringfence.evidence.report import sections
from ringfence.evidence.report.page import ReportPage, counted, kicker_line
from ringfence.html.charts import MOST_SERIES, Bar, Line, bar_chart, figure, line_chart
from ringfence.html.markup import Html, outline, paragraph, section, table, tag, together
from ringfence.model.curves import MISSING, Curve, column_curves, pair_curves, score_words
from ringfence.model.model import Model
from ringfence.model.summary import AT_ONCE, Summary
from ringfence.protocol import Plan
from ringfence.protocol.schema.maps.curves import Cyclic, Spline

MOST_CURVES, MOST_BARS = 24, 20

_BEYOND = 2.0
"""How far charts show bands, in units of the largest number of any curve."""


def model_curves_section(model: Model) -> tuple[Html | None, dict[str, Html]]:
    """Return the training report's section on the model's own curves, and its charts by name; None without curves."""
    plan = model.plan
    text: list[str] = ["They are computed from noisy messages, so they are public, and the noise moves them, too. "]
    if plan.loss.is_curved:
        text += [
            tag("code", "ringfence model summary --report"),
            " asks the silos again, for a budget of its own, and ",
        ]
        text += ["draws each curve with a confidence band."]
    curves = column_curves(plan, model.coefficients), pair_curves(plan, model.coefficients)
    return curves_section(plan, *curves, text=together(*text))


def curves_section(
    plan: Plan, curves: Sequence[Curve], pairs: Sequence[Curve] = (), *, text: str
) -> tuple[Html | None, dict[str, Html]]:
    """Return the section with a chart for each of the first curves, and the charts by name; None without curves."""
    if not curves:
        return None, {}
    own = curves[:MOST_CURVES]
    shown = [*own, *pairs[:MOST_CURVES]]
    lines = np.concatenate([line for curve in shown for line in curve.lines.values()])
    most = _BEYOND * float(np.abs(lines).max())
    ends = np.clip([end for curve in shown for one in curve.band for end in (one.low, one.high)], -most, most)
    reach = [*ends.tolist(), float(lines.min()), float(lines.max())]
    charts = {f"curve-{number}": _chart(curve, score_words(plan), reach) for number, curve in enumerate(shown, 1)}
    drawn = [figure(chart, _caption(curve)) for chart, curve in zip(charts.values(), shown, strict=True)]
    joined = any(not isinstance(each, Spline | Cyclic) for each in plan.data.maps or ())
    lead = (
        f"What each value of a column adds to the {score_words(plan)}, compared with the mean over the column's range "
        "or categories: the columns that matter most first, all on one scale."
        + (f" Shown are {MOST_CURVES} of {len(curves)} columns." if len(curves) > MOST_CURVES else "")
        + (" Where a map joins it with others, a curve is the average over these." if joined else "")
        + (
            " Where a record is scaled to the schema's radius, so is all that its columns add."
            if plan.data.radius
            else ""
        )
    )
    return section(
        "What each column adds",
        paragraph(lead),
        paragraph(text),
        tag("div", *drawn[: len(own)], class_="curves"),
        *((tag("h3", "Two columns together"), tag("div", *drawn[len(own) :], class_="curves")) if pairs else ()),
    ), charts


def _chart(curve: Curve, words: str, reach: Sequence[float]) -> Html:
    """Draw one curve: a line over numbers, or bars of categories."""
    points, by = curve.points, f" by {curve.by}" if curve.by else ""
    lines = dict(list(curve.lines.items())[:MOST_SERIES])
    band = {mark: (one.low, one.high) for mark, one in zip(points.marks, curve.band, strict=False)}
    told = (f"{points.labels[at]}: " + ", ".join(f"{line[at]:.3g}" for line in lines.values()) for at in points.marks)
    title, description = f"{points.column}{by}", f"What it adds to the {words}: {'; '.join(told)}."
    numbers = points.numbers.tolist()
    if not numbers:
        sizes = -np.max(np.abs(list(lines.values())), axis=0)
        places = sorted(np.argsort(sizes, kind="stable")[:MOST_BARS].tolist())
        return bar_chart(
            [Bar(points.labels[at], [line[at] for line in lines.values()], interval=band.get(at)) for at in places],
            names=list(lines), title=title, description=description, x_label=words, small=True, reach=reach,
        )  # fmt: skip
    dates = points.labels[0] != f"{numbers[0]:.6g}"
    middles = [len(numbers) * part // 6 for part in (1, 3, 5)]
    return line_chart(
        [Line(name, list(zip(numbers, line.tolist(), strict=False))) for name, line in lines.items()],
        title=title, description=description, x_label=points.axis, y_label=words, small=True, reach=reach,
        x_ticks={numbers[at]: points.labels[at] for at in middles} if dates else None,
        band=[(numbers[at], *ends) for at, ends in band.items() if at < len(numbers)],
    )  # fmt: skip


def _caption(curve: Curve) -> Html:
    """Return the caption of a curve's chart: the column, how far the curve spans, and where a missing cell lies."""
    points, lines = curve.points, curve.lines.values()
    name = f"{points.column} by {curve.by}" if curve.by else points.column
    missing = ""
    if len(points.numbers) and points.labels[-1] is MISSING:
        values = ", ".join(f"{line[-1]:.3g}" for line in lines)
        interval = f" ({curve.band[-1].low:.3g} to {curve.band[-1].high:.3g})" if curve.band else ""
        missing = f" Missing: {values}{interval}."
    return tag("span", tag("strong", name), f" spans {curve.span:.3g}.{missing}")


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
    coefficients = [[name, *row] for name, *row in found.rows()]
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
