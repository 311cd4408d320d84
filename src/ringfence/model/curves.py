"""Curves of a model: what each column adds to its scores, in the table's own numbers.

    for curve in column_curves(model.placed_plan, model.coefficients):
        print(curve.points.column, *zip(curve.points.labels, *curve.lines.values()))

Every point is a linear function of the weights (`CurvePoints`), so that second moments give it an interval. The mean
over the column's range, or over its categories, is 0. Where a map joins a column with others, a curve is the average
over their ranges and categories. The schema's `radius` is left out, as in exported coefficients.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringfence.estimates.coefficients import CoefficientInterval
from ringfence.protocol import FloatArray, Plan, Schema
from ringfence.protocol.arrays import pieces
from ringfence.protocol.schema.blocks import ColumnBlock
from ringfence.protocol.schema.columns.base import ReadColumn, Reading
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.maps.curves import Curve as CurveMap
from ringfence.protocol.schema.maps.curves import CurveBlock, Cyclic, Spline
from ringfence.protocol.schema.maps.joint import Products

STEPS, MARKS = 64, 8
"""Into how many steps, at least, the range of a number is divided, and between how many of them it is printed."""

MISSING = "(missing)"
"""The label of a cell without a value, where the column has an indicator."""

_OTHERS = 60
"""Points of the other columns over which a joint map's features are averaged: 2 to 6 categories divide it."""

_MOST_LEVELS, _MOST_COLUMNS, _MOST_FEATURES = 8, 200, 2000


class CurvePoints(NamedTuple):
    """Points of a column's curve, and each as a linear function of the weights of all features but the constant.

    `numbers` are the table's own, or none for categories. A last label `MISSING` has no number. `axis` is the column's
    name, and of what the numbers are if not the column's own.
    """

    column: str
    axis: str
    numbers: FloatArray
    labels: Sequence[str]
    reading: Reading
    functions: FloatArray = np.zeros((0, 0))

    @property
    def marks(self) -> list[int]:
        """The points that a table lists: evenly spaced numbers and the missing one, or all categories."""
        count = len(self.numbers)
        return [*range(0, count, max(1, (count - 1) // MARKS)), *range(count, len(self.labels))]


class Curve(NamedTuple):
    """A column's curve in the scores' own units: a line for each output, or for each level of another column, `by`.

    The `band` has an interval for each of the marks.
    """

    points: CurvePoints
    lines: Mapping[str, FloatArray]
    by: str = ""
    band: Sequence[CoefficientInterval] = ()

    @property
    def name(self) -> str:
        """The curve's column, or both of a pair."""
        return f"{self.points.column} by {self.by}" if self.by else self.points.column

    def table(self) -> tuple[list[str], list[list[str | float]]]:
        """Return the header and the rows of a table of a curve's marks; an unknown point has no number."""
        points, ends = self.points, ["from", "to"] if self.band else []
        rows: list[list[str | float]] = [
            [points.labels[mark], *(float(line[mark]) for line in self.lines.values())] for mark in points.marks
        ]
        for row, one in zip(rows, self.band, strict=False):
            row[1:] = [row[1], one.low, one.high] if one.is_known else ["unknown", "", ""]
        return [points.axis, *self.lines, *ends], rows

    @property
    def span(self) -> float:
        """The difference between a curve's highest and lowest known point."""
        values = np.concatenate(list(self.lines.values()))
        return float(np.ptp(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0


def column_curves(plan: Plan, coefficients: FloatArray) -> list[Curve]:
    """Return the curve of every column but vectors and texts, the one with the largest span first.

    There are none if columns or features are too many to draw.
    """
    units = np.array([plan.loss.score_units(*scaling)[0] for scaling in plan.data.target_scalings])
    names, data = line_names(plan), plan.data
    slopes = (coefficients[: data.blocks.width] * units)[:, : len(names)]
    curves = []
    for points in curve_points(data, data.features if _are_few(data) else ()):
        scores = points.functions @ slopes
        scores[np.abs(scores) < 1e-12 * np.abs(slopes).max()] = 0.0  # what rounding leaves of a mean
        curves.append(Curve(points, dict(zip(names, scores.T, strict=True))))
    return sorted(curves, key=lambda curve: -curve.span)


def pair_curves(plan: Plan, coefficients: FloatArray) -> list[Curve]:
    """Return, for every two columns of an interaction, the curve of one at levels of the other, widest first."""
    features, unit = _Features(plan.data), plan.loss.score_units(*plan.data.target_scaling)[0]
    curves = []
    for block in plan.data.blocks:
        if not isinstance(block, Products) or len(line_names(plan)) > 1 or not _are_few(plan.data):
            continue
        own = [one for factor in (block.first, block.second) for one in factor[:1]]
        pair = [
            one.name for one in own if isinstance(one, ColumnBlock | CurveBlock) and features.grids[one.name].labels
        ]
        if len(pair) < 2:
            continue  # a vector or a text
        by, column = sorted(pair, key=lambda name: len(features.grids[name].labels))
        levels, grid = features.grids[by], features.grids[column]
        step = (len(levels.numbers) - 1) // 2 if len(levels.numbers) else 1  # the lowest, middle and highest number
        chosen = np.arange(0, len(levels.labels), step)[:_MOST_LEVELS]
        places = np.arange(len(grid.labels))
        rows = [features.rows({column: places, by: np.full(len(places), level)}) for level in chosen]
        scores = unit * np.array(rows) @ coefficients[: rows[0].shape[1], 0]
        names = [f"{by} {levels.labels[level]}" for level in chosen]
        curves.append(Curve(grid, dict(zip(names, scores - scores.mean(), strict=True)), by))
    return sorted(curves, key=lambda curve: -curve.span)


def curve_points(data: Schema, columns: Collection[str]) -> Iterator[CurvePoints]:
    """Yield the points of these columns' curves, but for vectors and texts; without a missing cell, the mean is 0."""
    if not columns:
        return
    features = _Features(data)
    for name, grid in features.grids.items():
        if grid.labels and name in columns:
            rows = features.rows({name: np.arange(len(grid.labels))})
            known = len(grid.labels) - (grid.labels[-1] is MISSING)
            yield grid._replace(functions=rows - rows[:known].mean(axis=0))


def _are_few(data: Schema) -> bool:
    """Tell whether columns and features are few enough to draw every curve in seconds."""
    return len(data.features) <= _MOST_COLUMNS and data.blocks.width <= _MOST_FEATURES


def line_names(plan: Plan) -> list[str]:
    """Return what each line of a model's curves is of; a single one where outputs differ by their constant alone."""
    data, loss = plan.data, plan.loss
    outputs = loss.output_names(data.targets, data.target_column.classes, data.target_scaling[0])
    return [score_words(plan)] if loss.shares_slopes or len(outputs) == 1 else outputs


def score_words(plan: Plan) -> str:
    """Return what a model's scores are, as the label of an axis."""
    data, loss = plan.data, plan.loss
    classes = data.target_column.classes
    if loss.shares_slopes and classes:
        return f"log odds of a later {data.target}"
    if len(classes) == 2:
        return f"{'log odds' if loss.has_probabilities else 'score'} of '{classes[-1]}'"
    if loss.parts_end:
        return "logarithm of the hazard"
    if loss.link == "log":
        return f"logarithm of the mean {data.target}"
    return f"score of each {data.target}" if classes else data.target_words


class _Features:
    """The features that a model makes of chosen points of some columns, on average over the others."""

    def __init__(self, data: Schema) -> None:
        """Divide every column of a schema into points."""
        maps, random = data.maps or (), np.random.default_rng(0)
        curves = [map for map in maps if isinstance(map, CurveMap)]
        self._blocks, self.grids = (
            data.blocks,
            {name: _grid(name, each, curves) for name, each in data.features.items()},
        )
        self._joined = {name for map in maps if not isinstance(map, CurveMap) for name in map.columns}
        sizes = {name: len(grid.numbers) or len(data.features[name].classes) or 1 for name, grid in self.grids.items()}
        self._others = {name: random.permutation(_OTHERS) * size // _OTHERS for name, size in sizes.items()}

    def rows(self, fixed: Mapping[str, NDArray[np.int64]]) -> FloatArray:
        """Return the features of each combination of points of the fixed columns.

        They are averages over the other columns if a map joins these to one of them, and else those of any others.
        """
        times = _OTHERS if self._joined & fixed.keys() else 1
        count = len(next(iter(fixed.values())))
        averages = []
        for some in pieces(count, STEPS):
            points = {
                name: np.repeat(fixed[name][some], times)
                if name in fixed
                else np.tile(self._others[name][:times], some.stop - some.start)
                for name in self.grids
            }
            features = self._blocks.features({name: self.grids[name].reading.within(points[name]) for name in points})
            averages.append(features.reshape(-1, times, self._blocks.width).mean(axis=1))
        return np.concatenate(averages)


def _grid(name: str, column: ReadColumn, curves: Sequence[Spline | Cyclic]) -> CurvePoints:
    """Return the points of a column's curve; a single one without a label for vectors and texts."""
    axis = ""
    if isinstance(column, Scaled):
        numbers, places, axis = _numbers(column, [each for each in curves if name in each.columns])
        shown = numbers.tolist() if axis else map(column.written, numbers.tolist())
        labels = [each if isinstance(each, str) else f"{each:.6g}" for each in shown]
        values, empty = (places - column.offset) / column.unit, ((column.stand_in or 0.0) - column.offset) / column.unit
    elif column.classes:
        numbers, labels, values = np.zeros(0), list(column.classes), np.arange(float(len(column.classes)))
        empty = -1 if column.stand_in is None else column.stand_in
    else:
        zeros = np.zeros((1, len(column.scaling) - bool(column.indicator)))
        return CurvePoints(name, name, np.zeros(0), [], Reading(zeros, None))
    if column.indicator:
        labels, values = [*labels, MISSING], np.append(values, empty)
    missing = np.array([label is MISSING for label in labels])
    reading = Reading(values if len(numbers) else values.astype(np.int64), missing)
    return CurvePoints(name, name + axis, numbers, labels, reading)


def _numbers(column: Scaled, curves: Sequence[Spline | Cyclic]) -> tuple[FloatArray, FloatArray, str]:
    """Return the numbers of a curve, where in the column's range each is, and of what they are, if not of the column.

    If only cyclic maps read the column, the numbers are those of the longest period, counted from the column's 0.
    """
    width, period = column.high - column.low, max((curve.period for curve in curves), default=math.inf)
    repeats = period < width and not all(curve.keep for curve in curves)
    turns = max(((period if repeats else width) * wave.harmonics / wave.period for wave in curves), default=0.0)
    varying = [end for curve in curves for end in (curve.inner(column)[0], curve.inner(column)[-1])]
    low, high = (0.0, period) if repeats else (min(varying, default=column.low), max(varying, default=column.high))
    numbers = np.linspace(low, high, STEPS * min(max(math.ceil(turns / 5), 1), 15) + 1)
    if not repeats:
        return numbers, numbers, ""
    return numbers, column.low + np.remainder(numbers - column.low, period), f", of each {period:g} {column.distance}"
