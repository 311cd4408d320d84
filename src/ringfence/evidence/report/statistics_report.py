"""Statistics of silos as plain data, as printed tables, and as a page with charts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ringfence.estimates.statistics import (
    QUANTILES,
    CategoryShares,
    DataSummary,
    Difference,
    Estimate,
    NumericSummary,
    StatisticsTables,
)
from ringfence.evidence.report.page import ReportPage, counted
from ringfence.html.charts import Line, Span, figure, line_chart, span_chart
from ringfence.html.markup import Html, bullets, key_numbers, outline, paragraph, section, table
from ringfence.protocol import Plan
from ringfence.protocol.schema.columns.base import ReadColumn

_ALL = "all silos"

INTERVALS = (
    "The interval in brackets covers the exact value for these records, without noise, with probability 95%. This "
    "holds for each interval separately: on average, one in twenty misses. An interval alone is too wide for a number: "
    "use more records, fewer columns or a larger epsilon."
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


class PrintedTable(NamedTuple):
    """A table's title, header and cells as text."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def printed_tables(plan: Plan, tables: StatisticsTables) -> Iterator[PrintedTable]:
    """Yield one table per column, then those of pairs of columns, then how silos differ."""
    summaries = _summaries(tables)
    for name in tables.together.columns:
        columns = {silo: (summary.columns[name], summary.records) for silo, summary in summaries.items()}
        numbers = {silo: own for silo, (own, _) in columns.items() if isinstance(own, NumericSummary)}
        shares = {silo: (own, n) for silo, (own, n) in columns.items() if isinstance(own, CategoryShares)}
        if numbers:
            yield _numeric_table(name, plan.data.used[name], numbers)
        else:
            first, _ = next(iter(shares.values()))
            rows = [[cell, *(_count(own.cells[cell], n) for own, n in shares.values())] for cell in first.cells]
            yield PrintedTable(f"{name}: {plan.unit}s", ["category", *shares], rows)
    for (a, b), cross in tables.together.cross.items():
        rows = [
            [row, *(_count(cell, tables.together.records) for cell in cells)]
            for row, cells in zip(cross.rows, cross.cells, strict=True)
        ]
        header = [a, *(f"{b}: {name}" for name in cross.columns)]
        yield PrintedTable(f"{a} by {b}: {plan.unit}s of all silos", header, rows)
    if tables.differences:
        differing = sorted(tables.differences.items(), key=lambda item: item[1].p)
        yield PrintedTable(
            "How silos differ: for each column, the silo furthest from the others, in which statistic, by how much, "
            "and the p-value if all silos sampled one population",
            ["column", "silo", "statistic", "difference", "p-value"],
            [[name, d.silo, d.what, _difference(plan.data.used[name], d), f"{d.p:.2g}"] for name, d in differing],
        )


def _summaries(tables: StatisticsTables) -> dict[str, DataSummary]:
    """Return the summaries that the statistics report shows: all silos together first, if there are several."""
    alone = len(tables.silos) == 1
    return dict(tables.silos) if alone else {_ALL: tables.together, **tables.silos}


def _difference(column: ReadColumn, difference: Difference) -> str:
    """Write by how much a silo's statistic differs from the others', with its unit."""
    unit = f" {column.distance}" if column.distance and difference.what == "mean" else ""
    return f"{_with_interval(difference.by)}{unit}"


def _numeric_table(name: str, described: ReadColumn, columns: Mapping[str, NumericSummary]) -> PrintedTable:
    """Return the printed table of a numeric column's statistics: mean, deviation and quantiles by silo."""
    deviation = f"deviation in {described.distance}" if described.distance else "deviation"
    rows = []
    for silo, column in columns.items():
        row = {"silo": silo}
        if column.missing is not None:
            row["missing"] = _percent(column.missing)
        if column.mean is not None and column.deviation is not None:
            row |= {"mean": _in_column_format(described, column.mean), deviation: _with_interval(column.deviation)}
        for p in QUANTILES:
            row["median" if p == 0.5 else f"{p:.0%}"] = _in_column_format(described, column.quantiles[p])
        rows.append(row)
    kind, bounds = described.described
    known = f"{kind}s from {bounds}" if "mean" in rows[0] else f"{kind}s without public bounds"
    return PrintedTable(f"{name}: {known}", list(rows[0]), [list(row.values()) for row in rows])


def _in_column_format(column: ReadColumn, number: Estimate) -> str:
    """Write a statistic's value as its column does: dates as dates."""
    value, low, high = (column.written(float(each)) for each in (number.value, *number.records))
    if not isinstance(value, str):
        return _with_interval(number)
    return f"{value} [{low}, {high}]" if number.usable else f"[{low}, {high}]"


def _with_interval(number: Estimate) -> str:
    """Write a statistic and its interval with four digits, and large numbers without an exponent."""
    value, low, high = (
        f"{each:,.0f}" if 1e4 <= abs(each) < 1e15 else f"{each:.4g}" for each in (number.value, *number.records)
    )
    return f"{value} [{low}, {high}]" if number.usable else f"[{low}, {high}]"


def _percent(number: Estimate) -> str:
    """Write a share in the statistics, with its interval, in percent."""
    low, high = number.records
    return f"{number.value:.1%} [{low:.1%}, {high:.1%}]"


def _count(number: Estimate, records: int) -> str:
    """Write a count in the statistics as a whole number, with its interval rounded outwards."""
    count = number.scaled(records)
    low, high = count.records
    return f"{round(count.value):,} [{math.floor(low):,}, {math.ceil(high):,}]"


def statistics_data(tables: StatisticsTables) -> dict[str, Any]:
    """Return all statistics as plain data: each silo, all together, and the differences."""
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
    """Return the statistics of one silo, or of all together, as plain data."""

    def cell(number: Estimate) -> dict[str, Any]:
        """Return a cell's count and share in the statistics as plain data."""
        return {
            "count": number.value * summary.records,
            "these_records": list(number.records.scaled(summary.records)),
            "share": number.value,
            "population": list(number.population),
        }

    def column(found: CategoryShares | NumericSummary) -> dict[str, Any]:
        """Return a column's statistics as plain data."""
        if isinstance(found, CategoryShares):
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


def statistics_report(plan: Plan, tables: StatisticsTables, guarantees: str) -> ReportPage:
    """Return the statistics' page; `guarantees` is the statement of what the answers cost."""
    figures: dict[str, Html | None] = {}
    columns: list[Html] = []
    printed = list(printed_tables(plan, tables))
    for name, made in zip(tables.together.columns, printed, strict=False):
        charts = list(_charts(name, plan.data.used[name].axis, tables))
        figures |= {f"{name}-{number}": chart for number, (chart, _) in enumerate(charts)}
        columns.append(section(name, *(figure(*chart) for chart in charts), table(*made)))
    rest = [table(*made) for made in printed[len(tables.together.columns) :]]
    silos = [(name, summary.records) for name, summary in tables.silos.items()]
    silent = [terms.name for terms in plan.silos if terms.name not in tables.silos]
    left_out = f" Not included, because they did not answer: {', '.join(silent)}." if silent else ""
    parts = (
        paragraph(f"Noisy statistics of the {plan.unit}s at {counted(len(silos), 'silo')}.{left_out}", class_="lead"),
        key_numbers(
            {
                "largest epsilon": max(terms.guarantee.epsilon for terms in plan.silos),
                "silos": len(silos),
                f"{plan.unit}s in total": f"{tables.together.records:,}",
                "columns": len(tables.together.columns),
            }
        ),
        section("How to read these numbers", bullets(INTERVALS, _POPULATION, ADDS_UP, DIFFERENCING)),
        section("Silos", table(f"{plan.unit.capitalize()}s per silo (public)", ["silo", f"{plan.unit}s"], silos)),
        *columns,
        section("Pairs of columns, and how silos differ", *rest) if rest else None,
        section("Who is protected, and how well", outline(guarantees)),
    )
    title = f"Statistics of {counted(len(silos), 'silo')}"
    return ReportPage(title, f"Statistics · plan {plan.digest()[:12]}", parts, figures)


_POPULATION = (
    "Figures show wider intervals, for the population: they also allow for sampling error, if the records are a "
    "random sample."
)


def _charts(name: str, axis: str, tables: StatisticsTables) -> Iterator[tuple[Html, str]]:
    """Yield a column's charts for the statistics report, with their captions."""
    column = tables.together.columns[name]
    if isinstance(column, CategoryShares):
        yield (
            _span_chart(column.cells, name, "Share of each category over all silos.", "share"),
            "Share of each category over all silos, with its interval for the population.",
        )
        return
    if column.mean is None:
        return
    yield _histogram(name, axis, column)
    means = {
        silo: found.mean
        for silo, summary in _summaries(tables).items()
        if isinstance(found := summary.columns[name], NumericSummary) and found.mean is not None
    }
    yield (
        _span_chart(means, f"Mean of {name}", "Mean at each silo and overall.", f"mean of {name}{axis}"),
        "Mean over all silos and at each silo, with its interval for the population.",
    )


def _span_chart(numbers: Mapping[str, Estimate], title: str, description: str, x_label: str) -> Html:
    """Draw statistics with their intervals, one row each, for the statistics report."""
    spans = [Span(name, number.value, *number.population) for name, number in numbers.items()]
    return span_chart(spans[:40], title=title, description=description, x_label=x_label)


def _histogram(name: str, axis: str, column: NumericSummary) -> tuple[Html, str]:
    """Return a numeric column's histogram for the statistics report, with its caption."""
    bins = len(column.chart_bins)
    edges = column.edges[:: len(column.bins) // bins]

    def steps(label: str, shares: Sequence[float]) -> Line:
        """Return a histogram's shares as a stepped line, for the statistics report."""
        sides = zip(edges, edges[1:], shares, strict=False)
        return Line(label, [(float(edge), share) for low, high, share in sides for edge in (low, high)], level=True)

    chart = line_chart(
        [
            steps("share of the records", [number.value for number in column.chart_bins]),
            steps("lower end of its interval", [number.population.low for number in column.chart_bins]),
            steps("upper end of its interval", [number.population.high for number in column.chart_bins]),
        ],
        title=name,
        description=f"Share of the records in each of {bins} bins over all silos, with its interval.",
        x_label=f"{name}{axis}",
        y_label="share",
    )
    return chart, f"Share of the records in each of {bins} bins over all silos. Noise can make a share negative."
