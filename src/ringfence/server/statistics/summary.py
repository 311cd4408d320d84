"""Tables of what silos have, one by one and together, and of how they differ."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions import Statistics
from ringfence.protocol.questions.statistics_layout import QUARTERS, Categories, ColumnPart, Layout, Tree
from ringfence.server.learned import Findings
from ringfence.server.statistics import linear
from ringfence.server.statistics.intervals import Estimate, Interval, Z, crossing, ratio, share

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MISSING = "(missing)"
FIGURE_BINS = 16
"""Into how many bins a figure divides numbers: finer ones show little but noise."""


@dataclass(frozen=True)
class Shares:
    """The share of the records in each category, and, last, of those with none, if there may be any."""

    cells: Mapping[str, Estimate]


@dataclass(frozen=True)
class Numbers:
    """What a numeric column's values are like. Without public bounds there are quantiles and bins alone.

    Moments and quantiles are of the values that are there, bins and `missing` shares of all records; `figure` has the
    bins put together to a few.
    """

    edges: FloatArray
    bins: tuple[Estimate, ...]
    figure: tuple[Estimate, ...]
    quantiles: Mapping[float, Estimate]
    missing: Estimate | None
    mean: Estimate | None
    variance: Estimate | None

    @property
    def deviation(self) -> Estimate | None:
        """The standard deviation."""
        if self.variance is None:
            return None
        value, records, population = self.variance.value, self.variance.records, self.variance.population
        return Estimate(
            math.sqrt(max(value, 0.0)), Interval(*map(math.sqrt, records)), Interval(*map(math.sqrt, population))
        )


@dataclass(frozen=True)
class CrossTable:
    """The share of the records in each cell; rows and columns add up to those of the two columns by themselves."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Estimate, ...], ...]


@dataclass(frozen=True)
class DataSummary:
    """What one silo, or all of them together, have."""

    records: int
    columns: Mapping[str, Shares | Numbers]
    cross: Mapping[tuple[str, str], CrossTable]


@dataclass(frozen=True)
class Difference:
    """In what, of a column, which silo differs most from the others together, by how much, and how likely by chance.

    `p` is the chance that noise and samples make silos of one population differ as much in anything of the column: at
    most, but for the normal approximation.
    """

    silo: str
    what: str
    by: Estimate
    p: float


@dataclass(frozen=True)
class Tables:
    """Every silo's summary, all silos' together, and in what they differ, by column."""

    silos: Mapping[str, DataSummary]
    together: DataSummary
    differences: Mapping[str, Difference]


@dataclass(frozen=True)
class _Sight:
    """An answer in units of whole records, the deviation of its noise, and how many records it is about."""

    numbers: FloatArray
    noise: float
    records: int

    @classmethod
    def of_all(cls, sights: list["_Sight"]) -> "_Sight":
        """Return what answers come to together: their mean by records."""
        total = sum(sight.records for sight in sights)
        numbers = np.sum([sight.numbers * sight.records for sight in sights], axis=0) / total
        return cls(numbers, math.hypot(*(sight.noise * sight.records for sight in sights)) / total, total)


def tabulate(question: Statistics, plan: Plan, stage: int, found: Findings) -> Tables:
    """Return the tables that the silos' answers in that stage give; a silo that did not answer is in none of them."""
    layout = question.layout(plan)
    sights = {
        terms.name: _Sight(found.each[terms.name] * layout.unit, own.sigma * layout.unit, own.batch)
        for terms in plan.silos
        if terms.name in found.each
        for own in [terms.stages[stage]]
    }
    silos = {name: _summary(layout, sight) for name, sight in sights.items()}
    together = silos[next(iter(silos))] if len(silos) == 1 else _summary(layout, _Sight.of_all(list(sights.values())))
    return Tables(silos, together, dict(_differences(layout, sights)) if len(silos) > 1 else {})


def _summary(layout: Layout, sight: _Sight) -> DataSummary:
    places = layout.slices()
    columns: dict[str, Shares | Numbers] = {}
    for name, part in layout.columns.items():
        own = _Sight(sight.numbers[places[name]], sight.noise, sight.records)
        columns[name] = _shares(part, own) if isinstance(part, Categories) else _numbers(part, own)
    return DataSummary(sight.records, columns, {pair: _cross(layout, pair, sight) for pair in layout.cross})


def _each(found: linear.Linear, sight: _Sight) -> list[Estimate]:
    noise = found.spread() * sight.noise
    values = found.values(sight.numbers)
    return [share(float(v), float(n), sight.records) for v, n in zip(values, noise, strict=True)]


def _shares(part: Categories, sight: _Sight) -> Shares:
    return Shares(dict(zip(_names(part), _each(linear.of_categories(part), sight), strict=True)))


def _names(part: ColumnPart) -> list[str]:
    """Return what the cells of a column are called in a cross table."""
    empty = [MISSING] if part.may_be_empty else []
    if isinstance(part, Categories):
        return [*part.column.classes, *empty]
    column = part.column
    ends = [column.low + (column.high - column.low) * quarter / QUARTERS for quarter in range(QUARTERS + 1)]
    return [*(f"{low:.6g} to {high:.6g}" for low, high in itertools.pairwise(ends)), *empty]


def _numbers(part: Tree, sight: _Sight) -> Numbers:
    found, column = linear.of_numbers(part), part.column
    edges = np.concatenate([[column.low], part.edges, [column.high]])
    missing = None
    if part.may_be_empty:
        filled = _each(found.filled, sight)[0]
        missing = filled.scaled(-1.0, 1.0)
        missing = Estimate(missing.value, Interval(*missing.records[::-1]), Interval(*missing.population[::-1]))
    mean = variance = None
    if found.moments is not None:
        mean, _, variance = _moments(found, found.moments, sight)
        width = column.high - column.low
        mean, variance = mean.scaled(width, (column.low + column.high) / 2), variance.scaled(width**2)
    quantiles = {p: _quantile(found, p, sight, edges) for p in QUANTILES}
    few = min(FIGURE_BINS, part.leaves)
    figure = found.bins.combined(np.repeat(np.eye(few), part.leaves // few, axis=1))
    return Numbers(
        edges, tuple(_each(found.bins, sight)), tuple(_each(figure, sight)), quantiles, missing, mean, variance
    )


def _quantile(found: linear.OfNumbers, p: float, sight: _Sight, edges: FloatArray) -> Estimate:
    """Return the least number that at least p of the values do not exceed: the bins in which it may lie."""
    below, filled = found.below, found.filled
    excess = linear.Linear(below.constant - p * filled.constant, below.matrix - p * filled.matrix)
    values, noise = excess.values(sight.numbers), excess.spread() * sight.noise
    share_filled = min(max(float(filled.values(sight.numbers)[0]), 1 / sight.records), 1.0)
    sampled = np.sqrt(noise**2 + share_filled * p * (1 - p) / sight.records)
    these, population = crossing(values, noise, edges), crossing(values, sampled, edges)
    rising = np.clip(values / share_filled + p, 0.0, 1.0)
    rising = (np.maximum.accumulate(rising) + np.minimum.accumulate(rising[::-1])[::-1]) / 2
    value = float(np.interp(p, np.concatenate([[0.0], rising, [1.0]]), edges))
    return Estimate(min(max(value, these.low), these.high), these, population)


def _moments(found: linear.OfNumbers, moments: linear.Linear, sight: _Sight) -> tuple[Estimate, float, Estimate]:
    """Return the mean, the variance of its noise, and the variance of the values that are there.

    All are about the middle of the range, in units of its width.
    """
    together = linear.Linear(
        np.append(moments.constant, found.filled.constant), np.concatenate([moments.matrix, found.filled.matrix])
    )
    values = together.values(sight.numbers)
    covariance = together.matrix @ together.matrix.T * sight.noise**2
    total = max(float(values[2]), 1 / sight.records)
    mean, square = values[:2] / total
    # To first order, what noise makes of variance and mean; its square adds a bias, and a little more noise.
    mean_slope = np.array([1.0, 0.0, -mean]) / total
    slope = np.array([-2 * mean, 1.0, 2 * mean**2 - square]) / total
    bias = float(mean_slope @ covariance @ mean_slope)
    value = float(square - mean**2 + bias)
    noise = float(slope @ covariance @ slope) + 2 * bias**2
    these = _around(value, noise)
    # A sample's variance varies by its fourth moment, of which bins tell enough; it is at most the variance.
    bins = len(found.bins.constant)
    fourth = found.bins.combined(((np.arange(bins) + 0.5) / bins - 0.5 - mean)[None] ** 4 / total)
    most = float(fourth.values(sight.numbers)[0] + Z * fourth.spread()[0] * sight.noise)
    population = _around(value, noise + min(max(most, 0.0), these.high) / (total * sight.records))
    variance = Estimate(min(max(value, 0.0), 0.25), these, population)
    pair = [0, 2]
    known, sampled = covariance[np.ix_(pair, pair)], covariance[np.ix_(pair, pair)].copy()
    sampled[0, 0] += these.high * total / sight.records
    limits = (ratio(values[pair], own, -0.5, 0.5) for own in (known, sampled))
    return Estimate(min(max(float(mean), -0.5), 0.5), *limits), bias, variance


def _around(variance: float, noise: float) -> Interval:
    return Interval(variance - Z * math.sqrt(noise), variance + Z * math.sqrt(noise)).within(0.0, 0.25)


def _cross(layout: Layout, pair: tuple[str, str], sight: _Sight) -> CrossTable:
    """Put a table together from its margins and what it has beyond them, whose noises are independent."""
    places, table = layout.slices(), layout.cross[pair]
    beyond = linear.of_association(table)
    shape = (table.rows, table.columns)
    shares = beyond.values(sight.numbers[places[pair]]).reshape(shape) - 1 / table.length
    squares = beyond.spread().reshape(shape) ** 2
    for axis, name in enumerate(pair):
        margin = linear.of_margin(layout.columns[name])
        others = shape[1 - axis]
        shares = shares + np.expand_dims(margin.values(sight.numbers[places[name]]) / others, 1 - axis)
        squares = squares + np.expand_dims((margin.spread() / others) ** 2, 1 - axis)
    noise = np.sqrt(squares) * sight.noise
    cells = tuple(
        tuple(share(float(s), float(n), sight.records) for s, n in zip(*row, strict=True))
        for row in zip(shares, noise, strict=True)
    )
    rows, columns = (tuple(_names(layout.columns[name])) for name in pair)
    return CrossTable(rows, columns, cells)


def _differences(layout: Layout, sights: Mapping[str, _Sight]) -> Iterator[tuple[str, Difference]]:
    """Yield in what silos differ most, by column, of those that there is something to compare of."""
    places = layout.slices()
    for column, part in layout.columns.items():
        own = {
            silo: _Sight(sight.numbers[places[column]], sight.noise, sight.records) for silo, sight in sights.items()
        }
        spreads = [spread for _, _, _, spread in _compared(part, _Sight.of_all(list(own.values())))]
        found: list[tuple[float, str, str, Estimate]] = []
        for silo, sight in own.items():
            rest = _Sight.of_all([other for name, other in own.items() if name != silo])
            sides = zip(_compared(part, sight), _compared(part, rest), spreads, strict=True)
            for (what, here, noise, _), (_, elsewhere, more, _), spread in sides:
                errors = (noise + more, noise + more + spread * (1 / sight.records + 1 / rest.records))
                by = here - elsewhere
                ends = (Interval(by - Z * math.sqrt(error), by + Z * math.sqrt(error)) for error in errors)
                found.append((abs(by) / math.sqrt(errors[1]), silo, what, Estimate(by, *ends)))
        if found:
            far, silo, what, difference = max(found, key=lambda compared: compared[0])
            yield column, Difference(silo, what, difference, min(len(found) * math.erfc(far / math.sqrt(2)), 1.0))


def _compared(part: ColumnPart, sight: _Sight) -> Iterator[tuple[str, float, float, float]]:
    """Yield what silos are compared by: a name, the number, the variance of its noise, and that of one record."""
    if isinstance(part, Categories):
        names, found = _names(part), linear.of_categories(part)
    else:
        of_numbers = linear.of_numbers(part)
        names, found = ([MISSING] if part.may_be_empty else []), of_numbers.filled.combined(-np.ones((1, 1)))
        found = linear.Linear(1 + found.constant, found.matrix)
        if of_numbers.moments is not None:
            mean, noise, variance = _moments(of_numbers, of_numbers.moments, sight)
            width, middle = part.column.high - part.column.low, (part.column.low + part.column.high) / 2
            yield "mean", mean.value * width + middle, noise * width**2, variance.records.high * width**2
    values, noises = found.values(sight.numbers), (found.spread() * sight.noise) ** 2
    for name, value, noise in zip(names, values, noises, strict=False):
        yield name, float(value), float(noise), float(np.clip(value, 0, 1) * (1 - np.clip(value, 0, 1)))
