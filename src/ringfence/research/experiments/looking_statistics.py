"""Statistics of simulated silos: how far private ones are off, and how often their intervals hold.

Of 4 silos with 1,000 records each: five columns of numbers from 0 to 100 (one of them with missing cells) and five of
categories, all asked about at once. Every run draws records and noise anew.

    python -m ringfence.research.experiments.looking_statistics
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ringfence.estimates.statistics import CategoryShares, DataSummary, Estimate, NumericSummary
from ringfence.planning.query_plans import make_query_plan
from ringfence.planning.request import Member
from ringfence.protocol import FloatArray, Plan, Statistics, parse_schema
from ringfence.protocol.schema.columns.base import Reading
from ringfence.research.markdown import table
from ringfence.server.queries.statistics import statistics_of_run
from ringfence.server.state import Findings
from ringfence.silo.queries import compute
from ringfence.silo.records.records import Records

SILOS, RECORDS, EPSILON, DELTA, RUNS, QUICK_RUNS = 4, 1000, 1.0, 1e-6, 200, 3
LARGE = 400_000
"""How many draws stand for the population."""

Draw = Callable[[np.random.Generator, int], FloatArray]
NUMBERS: dict[str, Draw] = {
    "normal": lambda random, n: random.normal(40, 15, n),
    "skewed": lambda random, n: np.exp(random.normal(2.5, 0.7, n)),
    "two humps": lambda random, n: random.normal(np.where(random.random(n) < 0.6, 25, 75), 6),
    "uniform": lambda random, n: random.uniform(10, 90, n),
    "constant": lambda random, n: np.full(n, 42.0),
}
CATEGORIES = {f"{count} categories": count for count in (2, 3, 4, 5, 8)}
EMPTY = 0.15
"""The share of missing cells in the first column."""

Silo = Mapping[str, Reading]


class Row(NamedTuple):
    """A statistic: its root mean square error and its interval's half length, in percent, and how often these hold."""

    statistic: str
    of: str
    error: float
    half_length: float
    covers_records: float
    covers_population: float


def statistics_rows(
    runs: int = RUNS, seed: int = 1, watch: Callable[[int, int], None] = lambda done, total: None
) -> list[Row]:
    """Return a row for each statistic, of a silo and of all; numbers are in percent of the public range."""
    random, plan = np.random.default_rng(seed), _plan()
    population = dict(_truths(_drawn(random, LARGE)))
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for run in range(runs):
        silos = {terms.name: _drawn(random, RECORDS) for terms in plan.silos}
        each = {name: _answer(plan, cells, random) for name, cells in silos.items()}
        made = statistics_of_run(plan, {"statistics": Findings(np.zeros(0), 0.0, 1.0, each)})
        first = next(iter(silos))
        looks = {"one silo": (made.silos[first], silos[first]), "all silos": (made.together, _joined(silos))}
        for of, (summary, cells) in looks.items():
            exact = dict(_truths(cells))
            for (kind, key), estimate in _estimates(summary):
                low, high = estimate.records
                found[kind, of].append(
                    (
                        (estimate.value - exact[kind, key]) ** 2,
                        (high - low) / 2,
                        _holds(estimate.records, exact[kind, key]),
                        _holds(estimate.population, population[kind, key]),
                    )
                )
        watch(run + 1, runs)
    rows = []
    for (kind, of), results in sorted(found.items()):
        square, half, records, sampled = np.mean(results, axis=0)
        percent = 100 if kind in ("share", "missing share") else 1  # numbers range over 100
        rows.append(Row(kind, of, percent * float(np.sqrt(square)), percent * half, records, sampled))
    return rows


def section(quick: bool, watch: Callable[[int, int], None]) -> str:
    """Write the part of the page."""
    runs = QUICK_RUNS if quick else RUNS
    header = ["statistic", "of", "rms error, %", "half interval, %", "holds these records", "holds the population"]
    rows = [
        [row.statistic, row.of, f"{row.error:.2f}", f"{row.half_length:.2f}", f"{row.covers_records:.3f}",
         f"{row.covers_population:.3f}"]
        for row in statistics_rows(runs, watch=watch)
    ]  # fmt: skip
    return (
        f"{SILOS} silos of {RECORDS} records, epsilon {EPSILON:g}, delta {DELTA:g}, {len(NUMBERS)} numeric and "
        f"{len(CATEGORIES)} categorical columns in one query; {runs} runs. Errors are distances from the exact "
        "figure of the same records: those of shares in percent of the records, those of means, deviations and "
        f"medians in percent of the public range. Intervals are 95 %.\n\n{table(header, rows, texts=2)}"
    )


def _holds(interval: tuple[float, float], value: float) -> bool:
    return interval[0] - 1e-9 <= value <= interval[1] + 1e-9


def _plan() -> Plan:
    columns: dict[str, Any] = {name: {"type": "numeric", "lower": 0.0, "upper": 100.0} for name in NUMBERS}
    columns[next(iter(NUMBERS))]["missing"] = 50.0
    for name, count in CATEGORIES.items():
        columns[name] = {"type": "categorical", "categories": [f"c{number}" for number in range(count)]}
    schema = parse_schema({"columns": columns}, target="skewed")
    members = [Member(f"silo {number}", RECORDS, EPSILON, DELTA) for number in range(SILOS)]
    return make_query_plan(schema, members, Statistics(columns=tuple(columns)), run="looking")


def _drawn(random: np.random.Generator, count: int) -> Silo:
    cells = {}
    for number, (name, draw) in enumerate(NUMBERS.items()):
        values = np.clip(np.round(draw(random, count), 3), 0.0, 100.0)
        cells[name] = Reading((values - 50) / 50, random.random(count) < EMPTY if number == 0 else None)
    for name, categories in CATEGORIES.items():
        likely = 1.0 / np.arange(1, categories + 1)
        cells[name] = Reading(random.choice(categories, count, p=likely / likely.sum()), None)
    return cells


def _joined(silos: Mapping[str, Silo]) -> Silo:
    names = next(iter(silos.values()))
    return {
        name: Reading(
            np.concatenate([cells[name].values for cells in silos.values()]),
            None
            if names[name].empty is None
            else np.concatenate([empty for cells in silos.values() if (empty := cells[name].empty) is not None]),
        )
        for name in names
    }


def _answer(plan: Plan, cells: Silo, random: np.random.Generator) -> FloatArray:
    query, sigma = plan.stages[0].query, plan.silos[0].stages[0].sigma
    records = Records(plan.data, np.zeros((RECORDS, plan.data.width)), np.zeros(RECORDS), cells=cells)
    exact = compute(query, plan, np.zeros(0), records, np.ones(RECORDS), RECORDS)
    return exact + random.normal(scale=sigma, size=len(exact))


def _truths(cells: Silo) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the exact statistics of cells, by what they are and of what."""
    for name, (values, empty, *_) in cells.items():
        if name in CATEGORIES:
            for category, share in enumerate(np.bincount(values, minlength=CATEGORIES[name]) / len(values)):
                yield ("share", f"{name} c{category}"), float(share)
            continue
        there = 50 * (values if empty is None else values[~empty]) + 50
        yield ("mean", name), float(np.mean(there))
        yield ("deviation", name), float(np.std(there))
        yield ("median", name), float(np.quantile(there, 0.5, method="inverted_cdf"))
        if empty is not None:
            yield ("missing share", name), float(np.mean(empty))


def _estimates(summary: DataSummary) -> Iterator[tuple[tuple[str, str], Estimate]]:
    for name, column in summary.columns.items():
        if isinstance(column, CategoryShares):
            for category, estimate in column.cells.items():
                yield ("share", f"{name} {category}"), estimate
        elif isinstance(column, NumericSummary):
            known = {"mean": column.mean, "deviation": column.deviation, "missing share": column.missing}
            for kind, found in {**known, "median": column.quantiles[0.5]}.items():
                if found is not None:
                    yield (kind, name), found


if __name__ == "__main__":
    print(section(False, lambda done, total: None))  # noqa: T201
