"""Statistics of columns with intervals: counts, means, variances, quantiles, cross tables, differences of silos.

All of it is computed from noisy answers, at no further privacy cost. Every statistic is a constant plus a linear
function of noisy numbers, none of them redundant, so that sums over cells or silos agree.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ringfence.estimates.answers import NoisyAnswer
from ringfence.estimates.intervals import (
    Interval,
    Z,
    crossing_interval,
    normal_interval,
    ratio_interval,
    wilson_interval,
)
from ringfence.estimates.metrics import is_precise
from ringfence.protocol import FloatArray, Plan, Statistics
from ringfence.protocol.queries.statistics_layout import QUARTERS, Association, Categories, ColumnPart, Layout, Tree

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MISSING = "(missing)"
_CHART_BINS = 16
"""Bins of a chart: finer ones show little but noise."""


@dataclass(frozen=True)
class Estimate:
    """A number with two 95 % intervals: for these records (noise alone), and for the population (sampling too).

    Each interval is separate: of twenty, one misses on average. If it is not `usable`, the interval for these records
    is too wide for the number to be stated (`estimates.metrics`).
    """

    value: float
    records: Interval
    population: Interval
    usable: bool = field(default=True, kw_only=True)

    def scaled(self, factor: float, offset: float = 0.0) -> "Estimate":
        """Return a statistic's estimate in other units."""
        ends = self.records.scaled(factor, offset), self.population.scaled(factor, offset)
        return Estimate(self.value * factor + offset, *ends, usable=self.usable)

    def as_data(self) -> dict[str, object]:
        """Return a statistic's estimate as plain data."""
        value = self.value if self.usable else None
        return {"value": value, "these_records": list(self.records), "population": list(self.population)}


def share_estimate(share: float, noise: float, records: int) -> Estimate:
    """Return the estimate of a share of the records, with noise of this deviation."""
    these, population = normal_interval(share, noise**2), wilson_interval(share, noise**2, records)
    return Estimate(share, these.within(0.0, 1.0), population.within(0.0, 1.0))


@dataclass(frozen=True)
class CategoryShares:
    """The share of the records in each category, and, last, of those with none, if there may be any."""

    cells: Mapping[str, Estimate]


@dataclass(frozen=True)
class NumericSummary:
    """Statistics of a numeric column. Without public bounds there are quantiles and bins alone.

    Moments and quantiles are of the values that are there, bins and `missing` shares of all records; `chart_bins` are
    coarser bins.
    """

    edges: FloatArray
    bins: tuple[Estimate, ...]
    chart_bins: tuple[Estimate, ...]
    quantiles: Mapping[float, Estimate]
    missing: Estimate | None
    mean: Estimate | None
    variance: Estimate | None

    @property
    def deviation(self) -> Estimate | None:
        """The standard deviation of a numeric column."""
        if self.variance is None:
            return None
        value = math.sqrt(max(self.variance.value, 0.0))
        records, population = (
            Interval(*map(math.sqrt, own)) for own in (self.variance.records, self.variance.population)
        )
        return Estimate(value, records, population, usable=is_precise(value, records, "ratio"))


@dataclass(frozen=True)
class CrossTable:
    """The share of the records in each cell; rows and columns add up to those of the two columns by themselves."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Estimate, ...], ...]


@dataclass(frozen=True)
class DataSummary:
    """The columns and cross tables of one silo, or of all of them together."""

    records: int
    columns: Mapping[str, CategoryShares | NumericSummary]
    cross: Mapping[tuple[str, str], CrossTable]


@dataclass(frozen=True)
class Difference:
    """For one column, the silo and the statistic that differ most from the other silos together, and by how much.

    `p` bounds the probability, up to the normal approximation, that noise and sampling alone make silos of one
    population differ as much in any statistic of the column.
    """

    silo: str
    what: str
    by: Estimate
    p: float


@dataclass(frozen=True)
class StatisticsTables:
    """Every silo's summary, that of all silos together, and how silos differ, by column."""

    silos: Mapping[str, DataSummary]
    together: DataSummary
    differences: Mapping[str, Difference]


def _pooled(answers: list[NoisyAnswer]) -> NoisyAnswer:
    """Return the mean of silos' statistics by records. All answers here are in units of whole records."""
    total = sum(answer.records for answer in answers)
    vector = np.sum([answer.vector * answer.records for answer in answers], axis=0) / total
    return NoisyAnswer(vector, math.hypot(*(answer.sigma * answer.records for answer in answers)) / total, total)


@dataclass(frozen=True)
class _Linear:
    """Statistics that are `constant` + `matrix` · (the part's numbers, in units of a whole record)."""

    constant: FloatArray
    matrix: FloatArray

    def combined(self, rows: FloatArray) -> "_Linear":
        """Return sums of these linear statistics, with the factors of each row."""
        return _Linear(rows @ self.constant, rows @ self.matrix)

    def values(self, numbers: FloatArray) -> FloatArray:
        """Return the linear statistics of a noisy answer's numbers."""
        return np.asarray(self.constant + self.matrix @ numbers)

    def spread(self) -> FloatArray:
        """Return the standard deviation of each linear statistic, if every number has noise of deviation 1."""
        return np.asarray(np.sqrt(np.sum(self.matrix**2, axis=1)))

    def estimates(self, answer: NoisyAnswer) -> tuple[Estimate, ...]:
        """Return the linear statistics of an answer as shares of the records."""
        noise, values = self.spread() * answer.sigma, self.values(answer.vector)
        return tuple(share_estimate(float(v), float(n), answer.records) for v, n in zip(values, noise, strict=True))


@dataclass(frozen=True)
class _NumericShares:
    """The shares of all records in each bin, below each inner edge, in any bin (`filled`) and in none (`empty`).

    Sums of the first two moments are about the middle of the range, in units of its width; there are none without
    bounds.
    """

    bins: _Linear
    below: _Linear
    filled: _Linear
    empty: _Linear
    moments: _Linear | None = None


@lru_cache(maxsize=64)  # by numbers: a column with synonyms has no hash
def _category_shares(cells: int, weight: float) -> _Linear:
    """Return the share of each cell of a categorical column, by least squares: together they are 1."""
    return _Linear(np.full(cells, 1 / cells), (np.eye(cells) - 1 / cells) / weight)


@lru_cache(maxsize=64)
def _numeric_shares(part: Tree) -> _NumericShares:
    """Read a tree: each child has half of its node's share, plus or minus half of the node's number."""
    leaves, nodes = part.leaves, part.leaves - 1
    matrix = np.zeros((leaves, part.length))
    column = 0
    for level in range(part.levels):
        size = leaves >> level
        for begin in range(0, leaves, size):
            matrix[begin : begin + size // 2, column] = -1 / size / part.weight
            matrix[begin + size // 2 : begin + size, column] = 1 / size / part.weight
            column += 1
    filled = np.zeros((1, part.length))
    if part.column.may_be_empty:
        filled[0, -1] = -1 / part.empty
    bins = _Linear(np.full(leaves, 1 / leaves), matrix + filled / leaves)
    below, total, empty = (
        bins.combined(np.tri(nodes, leaves)),
        _Linear(np.ones(1), filled),
        _Linear(np.zeros(1), -filled),
    )
    if not part.fine:
        return _NumericShares(bins, below, total, empty)
    middles, half = (np.arange(leaves) + 0.5) / leaves - 0.5, 0.5 / leaves
    moments = bins.combined(np.array([middles, middles**2]))
    moments.matrix[:, nodes : nodes + 2] = np.diag([half, half * (1 - half)]) / (part.fine * part.weight)
    return _NumericShares(bins, below, total, empty, moments)


def _margin_shares(part: ColumnPart) -> _Linear:
    """Return the shares of the cells that a column has in a cross table."""
    if isinstance(part, Categories):
        return _category_shares(part.cells, part.weight)
    shares = _numeric_shares(part)
    quarters = shares.bins.combined(np.repeat(np.eye(QUARTERS), part.leaves // QUARTERS, axis=1))
    if not part.column.may_be_empty:
        return quarters
    empty = shares.empty
    return _Linear(np.append(quarters.constant, empty.constant), np.concatenate([quarters.matrix, empty.matrix]))


def _association_shares(part: Association) -> _Linear:
    """Return each cell's share beyond its margins, by least squares: rows and columns add up to 0."""
    centred = [np.eye(count) - 1 / count for count in (part.rows, part.columns)]
    return _Linear(np.zeros(part.length), np.asarray(np.kron(*centred) / part.weight, dtype=np.float64))


def statistics_tables(
    query: Statistics, plan: Plan, stage: int, each: Mapping[str, FloatArray], *, by_silo: bool = True
) -> StatisticsTables:
    """Return the tables of the silos' answers in a stage, without silos that did not answer, or of all together."""
    layout = query.layout(plan)
    answers = {
        terms.name: NoisyAnswer(each[terms.name] * layout.unit, own.sigma * layout.unit, own.batch)
        for terms in plan.silos
        if terms.name in each
        for own in [terms.stages[stage]]
    }
    together = _summary(layout, _pooled(list(answers.values())))
    if not by_silo:
        return StatisticsTables({}, together, {})
    if len(answers) == 1:
        return StatisticsTables(dict.fromkeys(answers, together), together, {})
    silos = {name: _summary(layout, answer) for name, answer in answers.items()}
    return StatisticsTables(silos, together, dict(_differences(layout, answers)))


def _summary(layout: Layout, answer: NoisyAnswer) -> DataSummary:
    """Return all statistics of the columns from one answer."""
    places = layout.slices()
    columns: dict[str, CategoryShares | NumericSummary] = {}
    for name, part in layout.columns.items():
        own = replace(answer, vector=answer.vector[places[name]])
        if isinstance(part, Categories):
            shares = _margin_shares(part).estimates(own)
            columns[name] = CategoryShares(dict(zip(_cell_names(part), shares, strict=True)))
        else:
            columns[name] = _numeric_summary(part, own)
    return DataSummary(answer.records, columns, {pair: _cross_table(layout, pair, answer) for pair in layout.cross})


def _cell_names(part: ColumnPart) -> list[str]:
    """Return the names of a column's cells in a cross table."""
    empty = [MISSING] if part.column.may_be_empty else []
    if isinstance(part, Categories):
        return [*part.column.classes, *empty]
    column = part.column
    ends = [column.low + (column.high - column.low) * quarter / QUARTERS for quarter in range(QUARTERS + 1)]
    return [*(f"{low:.6g} to {high:.6g}" for low, high in itertools.pairwise(ends)), *empty]


def _numeric_summary(part: Tree, answer: NoisyAnswer) -> NumericSummary:
    """Return the statistics of a numeric column: missing cells, moments, quantiles and bins."""
    shares, column = _numeric_shares(part), part.column
    edges = np.concatenate([[column.low], part.edges, [column.high]])
    missing = mean = variance = None
    if part.column.may_be_empty:
        (filled,) = shares.filled.estimates(answer)
        empty = filled.scaled(-1.0, 1.0)
        missing = Estimate(empty.value, Interval(*empty.records[::-1]), Interval(*empty.population[::-1]))
    if shares.moments is not None:
        mean, _, variance = _moments(shares, shares.moments, answer)
        width = column.high - column.low
        mean = replace(mean, usable=is_precise(mean.value, mean.records, "share"))
        variance = replace(variance, usable=is_precise(variance.value, variance.records, "ratio"))
        mean, variance = mean.scaled(width, (column.low + column.high) / 2), variance.scaled(width**2)
    few = min(_CHART_BINS, part.leaves)
    return NumericSummary(
        edges=edges,
        bins=shares.bins.estimates(answer),
        chart_bins=shares.bins.combined(np.repeat(np.eye(few), part.leaves // few, axis=1)).estimates(answer),
        quantiles={p: _quantile(shares, p, answer, edges) for p in QUANTILES},
        missing=missing,
        mean=mean,
        variance=variance,
    )


def _quantile(shares: _NumericShares, p: float, answer: NoisyAnswer, edges: FloatArray) -> Estimate:
    """Return a numeric column's quantile: the least number that at least the share p of its values does not exceed."""
    below, filled = shares.below, shares.filled
    excess = _Linear(below.constant - p * filled.constant, below.matrix - p * filled.matrix)
    values, noise = excess.values(answer.vector), excess.spread() * answer.sigma
    share_filled = min(max(float(filled.values(answer.vector)[0]), 1 / answer.records), 1.0)
    sampled = np.sqrt(noise**2 + share_filled * p * (1 - p) / answer.records)
    these, population = crossing_interval(values, noise, edges), crossing_interval(values, sampled, edges)
    in_range = these.scaled(1 / (float(edges[-1]) - float(edges[0])))
    usable = shares.moments is None or is_precise(0.0, in_range, "share")  # without bounds there is no scale
    rising = np.clip(values / share_filled + p, 0.0, 1.0)
    rising = (np.maximum.accumulate(rising) + np.minimum.accumulate(rising[::-1])[::-1]) / 2
    value = float(np.interp(p, np.concatenate([[0.0], rising, [1.0]]), edges))
    return Estimate(min(max(value, these.low), these.high), these, population, usable=usable)


def _moments(shares: _NumericShares, moments: _Linear, answer: NoisyAnswer) -> tuple[Estimate, float, Estimate]:
    """Return a numeric column's mean, the variance of its noise, and the variance of the values that are there.

    All are about the middle of the range, in units of its width.
    """
    filled = shares.filled
    both = _Linear(np.append(moments.constant, filled.constant), np.concatenate([moments.matrix, filled.matrix]))
    values = both.values(answer.vector)
    covariance = both.matrix @ both.matrix.T * answer.sigma**2
    total = max(float(values[2]), 1 / answer.records)
    mean, square = values[:2] / total
    # First-order errors of variance and mean by noise; its square adds a bias, and a little more noise.
    mean_slope = np.array([1.0, 0.0, -mean]) / total
    slope = np.array([-2 * mean, 1.0, 2 * mean**2 - square]) / total
    bias = float(mean_slope @ covariance @ mean_slope)
    value = float(square - mean**2 + bias)
    noise = float(slope @ covariance @ slope) + 2 * bias**2
    these = normal_interval(value, noise).within(0.0, 0.25)
    # A sample's variance varies by its fourth moment, which bins show well enough; it is at most the variance.
    bins = len(shares.bins.constant)
    fourth = shares.bins.combined(((np.arange(bins) + 0.5) / bins - 0.5 - mean)[None] ** 4 / total)
    most = float(fourth.values(answer.vector)[0] + Z * fourth.spread()[0] * answer.sigma)
    sampling = min(max(most, 0.0), these.high) / (total * answer.records)
    variance = Estimate(min(max(value, 0.0), 0.25), these, normal_interval(value, noise + sampling).within(0.0, 0.25))
    ends = []
    for sampled in (0.0, these.high * total / answer.records):
        variances = float(covariance[0, 0] + sampled), float(covariance[2, 2]), float(covariance[0, 2])
        interval = ratio_interval(float(values[0]), float(values[2]), variances)
        ends.append((interval or Interval(-0.5, 0.5)).within(-0.5, 0.5))
    return Estimate(min(max(float(mean), -0.5), 0.5), *ends), bias, variance


def _cross_table(layout: Layout, pair: tuple[str, str], answer: NoisyAnswer) -> CrossTable:
    """Combine a table's margins with the shares beyond them, whose noises are independent."""
    places, table = layout.slices(), layout.cross[pair]
    beyond = _association_shares(table)
    shape = (table.rows, table.columns)
    shares = beyond.values(answer.vector[places[pair]]).reshape(shape) - 1 / table.length
    squares = beyond.spread().reshape(shape) ** 2
    for axis, name in enumerate(pair):
        margin = _margin_shares(layout.columns[name])
        others = shape[1 - axis]
        shares = shares + np.expand_dims(margin.values(answer.vector[places[name]]) / others, 1 - axis)
        squares = squares + np.expand_dims((margin.spread() / others) ** 2, 1 - axis)
    noise = np.sqrt(squares) * answer.sigma
    cells = tuple(
        tuple(share_estimate(float(s), float(n), answer.records) for s, n in zip(*row, strict=True))
        for row in zip(shares, noise, strict=True)
    )
    rows, columns = (tuple(_cell_names(layout.columns[name])) for name in pair)
    return CrossTable(rows, columns, cells)


def _differences(layout: Layout, answers: Mapping[str, NoisyAnswer]) -> Iterator[tuple[str, Difference]]:
    """Yield, by column, the silo and statistic that differ most from the other silos."""
    places = layout.slices()
    for column, part in layout.columns.items():
        own = {silo: replace(answer, vector=answer.vector[places[column]]) for silo, answer in answers.items()}
        spreads = [spread for _, _, _, spread in _compared(part, _pooled(list(own.values())))]
        differences: list[tuple[float, str, str, Estimate]] = []
        for silo, answer in own.items():
            rest = _pooled([other for name, other in own.items() if name != silo])
            sides = zip(_compared(part, answer), _compared(part, rest), spreads, strict=True)
            for (what, here, noise, _), (_, elsewhere, more, _), spread in sides:
                errors = (noise + more, noise + more + spread * (1 / answer.records + 1 / rest.records))
                by = here - elsewhere
                estimate = Estimate(by, *(normal_interval(by, error) for error in errors))
                differences.append((abs(by) / math.sqrt(errors[1]), silo, what, estimate))
        if differences:
            far, silo, what, largest = max(differences, key=lambda compared: compared[0])
            yield column, Difference(silo, what, largest, min(len(differences) * math.erfc(far / math.sqrt(2)), 1.0))


def _compared(part: ColumnPart, answer: NoisyAnswer) -> Iterator[tuple[str, float, float, float]]:
    """Yield the statistics that silos are compared by: name, value, variance of its noise, and of one record."""
    if isinstance(part, Categories):
        names, shares = _cell_names(part), _margin_shares(part)
    else:
        numeric = _numeric_shares(part)
        names, shares = ([MISSING] if part.column.may_be_empty else []), numeric.empty
        if numeric.moments is not None:
            mean, noise, variance = _moments(numeric, numeric.moments, answer)
            width, middle = part.column.high - part.column.low, (part.column.low + part.column.high) / 2
            yield "mean", mean.value * width + middle, noise * width**2, variance.records.high * width**2
    values, noises = shares.values(answer.vector), (shares.spread() * answer.sigma) ** 2
    for name, value, noise in zip(names, values, noises, strict=False):
        yield name, float(value), float(noise), float(np.clip(value, 0, 1) * (1 - np.clip(value, 0, 1)))
