"""Statistics as plain data, as tables for people, and as a page with figures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringfence.html.charts import Line, Span, figure, line_chart, span_chart
from ringfence.html.markup import Html, bullets, outline, section, table, tag
from ringfence.protocol.columns import ReadColumn
from ringfence.protocol.plan import Plan
from ringfence.report.page import ReportPage, counted, facts
from ringfence.server.statistics import DataSummary, Difference, Estimate, Numbers, Shares, Tables
from ringfence.server.statistics.summary import QUANTILES

ALL = "all silos"

INTERVALS = (
    "The interval in brackets covers the exact value for these records, without noise, with probability 95%. This "
    "holds for each interval separately: on average, one in twenty misses."
)
ADDS_UP = (
    "The numbers are consistent: categories, bins and missing cells add up to the records, cross tables to the counts "
    "of their columns, and silos to the total, all up to rounding. As a result, small counts can be negative."
)
DIFFERENCING = (
    "Asking again with other bins, columns or silos and subtracting the answers reveals more: the privacy budget "
    "limits that. Each silo charges its ledger before it answers and refuses anything beyond its budget, so all its "
    "answers together reveal no more about one record than the ledger's epsilon allows."
)


class Shown(NamedTuple):
    """One table for people."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def shown_tables(plan: Plan, tables: Tables) -> Iterator[Shown]:
    """Yield all tables: of numbers by silo, of categories, of pairs of columns, and of how silos differ."""
    summaries = _summaries(tables)
    for name, column in tables.together.columns.items():
        if isinstance(column, Numbers):
            found = {silo: summary.columns[name] for silo, summary in summaries.items()}
            yield _of_numbers(name, plan.data.used[name], found)
        else:
            yield _of_shares(name, plan.unit, summaries)
    for (a, b), cross in tables.together.cross.items():
        rows = [
            [row, *(_count(cell, tables.together.records) for cell in cells)]
            for row, cells in zip(cross.rows, cross.cells, strict=True)
        ]
        yield Shown(f"{a} by {b}: {plan.unit}s of all silos", [a, *(f"{b}: {name}" for name in cross.columns)], rows)
    if tables.differences:
        differing = sorted(tables.differences.items(), key=lambda item: item[1].p)
        yield Shown(
            "How silos differ: for each column, the silo furthest from the others, in which statistic, by how much, "
            "and the p-value if all silos sampled one population",
            ["column", "silo", "statistic", "difference", "p-value"],
            [[name, d.silo, d.what, _difference(plan.data.used[name], d), f"{d.p:.2g}"] for name, d in differing],
        )


def _summaries(tables: Tables) -> dict[str, DataSummary]:
    alone = len(tables.silos) == 1
    return dict(tables.silos) if alone else {ALL: tables.together, **tables.silos}


def _difference(column: ReadColumn, found: Difference) -> str:
    unit = f" {column.distance}" if column.distance and found.what == "mean" else ""
    return f"{_plain(found.by)}{unit}"


def _of_numbers(name: str, described: ReadColumn, columns: Mapping[str, Shares | Numbers]) -> Shown:
    found = {silo: column for silo, column in columns.items() if isinstance(column, Numbers)}
    first = next(iter(found.values()))
    header = ["silo"]
    header += ["missing"] if first.missing is not None else []
    deviation = f"deviation in {described.distance}" if described.distance else "deviation"
    header += ["mean", deviation] if first.mean is not None else []
    header += ["median" if p == 0.5 else f"{p:.0%}" for p in QUANTILES]
    rows = []
    for silo, column in found.items():
        missing = [] if column.missing is None else [_percent(column.missing)]
        mean = [] if column.mean is None else [_value(described, column.mean)]
        spread = [] if column.deviation is None else [_plain(column.deviation)]
        rows.append([silo, *missing, *mean, *spread, *(_value(described, column.quantiles[p]) for p in QUANTILES)])
    kind, bounds = described.described
    known = f"{kind}s from {bounds}" if first.mean is not None else f"{kind}s without public bounds"
    return Shown(f"{name}: {known}", header, rows)


def _of_shares(name: str, unit: str, summaries: Mapping[str, DataSummary]) -> Shown:
    columns = {silo: (summary.columns[name], summary.records) for silo, summary in summaries.items()}
    cells = [
        (cell, [_count(column.cells[cell], n) for column, n in columns.values() if isinstance(column, Shares)])
        for cell in _cells(next(iter(summaries.values())).columns[name])
    ]
    return Shown(f"{name}: {unit}s", ["category", *columns], [[cell, *counts] for cell, counts in cells])


def _cells(column: Shares | Numbers) -> list[str]:
    return list(column.cells) if isinstance(column, Shares) else []


def _value(column: ReadColumn, number: Estimate) -> str:
    """Write a value as its column does: dates as dates."""
    value, low, high = (column.written(float(each)) for each in (number.value, *number.records))
    return f"{value} [{low}, {high}]" if isinstance(value, str) else _plain(number)


def _plain(number: Estimate) -> str:
    value, low, high = (_number(each) for each in (number.value, *number.records))
    return f"{value} [{low}, {high}]"


def _number(value: float) -> str:
    """Write a number with four digits, and a large one without an exponent."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def _percent(number: Estimate) -> str:
    low, high = number.records
    return f"{number.value:.1%} [{low:.1%}, {high:.1%}]"


def _count(number: Estimate, records: int) -> str:
    """Write a count as a whole number, and its interval no narrower than it is."""
    count = number.scaled(records)
    low, high = count.records
    return f"{round(count.value):,} [{math.floor(low):,}, {math.ceil(high):,}]"


def as_data(tables: Tables) -> dict[str, Any]:
    """Return everything: of each silo, of all together, and the differences."""
    return {
        "level": 0.95,
        "silos": {name: _summary_data(summary) for name, summary in tables.silos.items()},
        "together": _summary_data(tables.together),
        "differences": {
            name: {"silo": found.silo, "what": found.what, "by": found.by.as_data(), "p": found.p}
            for name, found in tables.differences.items()
        },
    }


def _summary_data(summary: DataSummary) -> dict[str, Any]:
    def cell(number: Estimate) -> dict[str, Any]:
        return {
            "count": number.value * summary.records,
            "these_records": list(number.records.scaled(summary.records)),
            "share": number.value,
            "population": list(number.population),
        }

    def column(found: Shares | Numbers) -> dict[str, Any]:
        if isinstance(found, Shares):
            return {"categories": {name: cell(number) for name, number in found.cells.items()}}
        moments = {"mean": found.mean, "variance": found.variance, "deviation": found.deviation}
        return {
            **({} if found.missing is None else {"missing": cell(found.missing)}),
            **{name: number.as_data() for name, number in moments.items() if number is not None},
            "quantiles": {str(p): number.as_data() for p, number in found.quantiles.items()},
            "edges": found.edges.tolist(),
            "bins": [cell(number) for number in found.bins],
        }

    return {
        "records": summary.records,
        "columns": {name: column(found) for name, found in summary.columns.items()},
        "cross": [
            {
                "columns": list(pair),
                "cells": {
                    row: {name: cell(number) for name, number in zip(found.columns, cells, strict=True)}
                    for row, cells in zip(found.rows, found.cells, strict=True)
                },
            }
            for pair, found in summary.cross.items()
        ],
    }


def statistics_report(plan: Plan, tables: Tables, guarantees: str) -> ReportPage:
    """Put the page together; `guarantees` is the statement of what the answers cost."""
    figures: dict[str, Html | None] = {}
    parts: list[Html] = []
    shown = list(shown_tables(plan, tables))
    for name, made in zip(tables.together.columns, shown, strict=False):
        charts = list(_charts(name, plan.data.used[name].axis, tables))
        figures |= {f"{name}-{number}": chart for number, (chart, _) in enumerate(charts)}
        parts.append(section(name, *(figure(*chart) for chart in charts), table(*made)))
    rest = shown[len(tables.together.columns) :]
    silos = [(name, summary.records) for name, summary in tables.silos.items()]
    silent = [terms.name for terms in plan.silos if terms.name not in tables.silos]
    unheard = f" Not included, because they did not answer: {', '.join(silent)}." if silent else ""
    page = (
        tag("p", f"Noisy statistics of the {plan.unit}s at {counted(len(silos), 'silo')}.{unheard}", class_="lead"),
        facts(
            {
                "largest epsilon": max(terms.guarantee.epsilon for terms in plan.silos),
                "silos": len(silos),
                f"{plan.unit}s in total": f"{tables.together.records:,}",
                "columns": len(tables.together.columns),
            }
        ),
        section("How to read these numbers", bullets([INTERVALS, _POPULATION, ADDS_UP, DIFFERENCING])),
        section("Silos", table(f"{plan.unit.capitalize()}s per silo (public)", ["silo", f"{plan.unit}s"], silos)),
        *parts,
        *([section("Pairs of columns, and how silos differ", *(table(*made) for made in rest))] if rest else []),
        section("Who is protected, and how well", outline(guarantees)),
    )
    return ReportPage(
        f"Statistics of {counted(len(silos), 'silo')}", f"Statistics · plan {plan.digest()[:12]}", page, figures
    )


_POPULATION = (
    "Figures show wider intervals, for the population: they also allow for sampling error, if the records are a "
    "random sample."
)


def _charts(name: str, axis: str, tables: Tables) -> Iterator[tuple[Html, str]]:
    column = tables.together.columns[name]
    if isinstance(column, Shares):
        spans = [Span(cell, number.value, *number.population) for cell, number in column.cells.items()]
        yield (
            span_chart(spans[:40], title=name, description="Share of each category over all silos.", x_label="share"),
            "Share of each category over all silos, with its interval for the population.",
        )
        return
    if column.mean is None:
        return
    yield _histogram(name, axis, column)
    means = {
        silo: found.mean
        for silo, summary in _summaries(tables).items()
        if isinstance(found := summary.columns[name], Numbers) and found.mean is not None
    }
    spans = [Span(silo, number.value, *number.population) for silo, number in means.items()]
    yield (
        span_chart(
            spans[:40],
            title=f"Mean of {name}",
            description="Mean at each silo and overall.",
            x_label=f"mean of {name}{axis}",
        ),
        "Mean over all silos and at each silo, with its interval for the population.",
    )


def _histogram(name: str, axis: str, column: Numbers) -> tuple[Html, str]:
    bins = len(column.figure)
    edges = column.edges[:: len(column.bins) // bins]

    def steps(label: str, shares: Sequence[float]) -> Line:
        sides = zip(edges, edges[1:], shares, strict=False)
        return Line(label, [(float(edge), share) for low, high, share in sides for edge in (low, high)], level=True)

    chart = line_chart(
        [
            steps("share of the records", [number.value for number in column.figure]),
            steps("lower end of its interval", [number.population.low for number in column.figure]),
            steps("upper end of its interval", [number.population.high for number in column.figure]),
        ],
        title=name,
        description=f"Share of the records in each of {bins} bins over all silos, with its interval.",
        x_label=f"{name}{axis}",
        y_label="share",
    )
    return chart, f"Share of the records in each of {bins} bins over all silos. Noise can make a share negative."
