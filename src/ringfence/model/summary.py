"""A model's coefficients and curves with intervals, in the table's own units."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ringfence.errors import PlanError
from ringfence.estimates.coefficients import CoefficientInterval, coefficient_intervals
from ringfence.model.curves import Curve, curve_points, score_words
from ringfence.model.export import LinearFunction
from ringfence.model.statement import Statement
from ringfence.protocol import FloatArray, Plan, Schema
from ringfence.protocol.queries.second_moments import independent_features
from ringfence.protocol.schema.blocks import Block, ColumnBlock
from ringfence.protocol.schema.maps.joint import Products
from ringfence.server.queries.second_moments import measured_moments
from ringfence.server.state import Findings

AT_ONCE = (
    "The intervals of one curve hold at all its points at once. They say nothing of the points between, and several "
    "curves need not hold together."
)


@dataclass(frozen=True)
class Summary:
    """Every coefficient with its interval, the largest first, unknown ones and the intercept last.

    They are of the loss without any ridge or clip, and need not be the model's own weights, which stop short of them. A
    category's coefficient is the difference from its column's first one, which has none. Columns that maps read have
    curves instead: each interval is wide enough that all of a curve's together hold with the probability `level`.
    """

    coefficients: Mapping[str, CoefficientInterval]
    level: float
    by_silo: bool
    statement: Statement
    curves: Sequence[Curve] = ()

    HEADER = ("feature", "estimate", "standard error", "from", "to", "p-value")

    @property
    def positive(self) -> str | None:
        """The class whose log odds the coefficients are of, the last of two; None if they are of a number."""
        return next(reversed(self.statement.plan.data.target_column.classes), None)

    def rows(self) -> list[Sequence[str | float]]:
        """Return the coefficients as rows of a printed table, below `HEADER`."""
        return [_summary_row(name, found) for name, found in self.coefficients.items()]

    @property
    def remark(self) -> str:
        """What to do about unknown coefficients of a summary, in one sentence; empty if there are none."""
        found = [*self.coefficients.values(), *(one for curve in self.curves for one in curve.band)]
        if all(one.is_known for one in found):
            return ""
        return (
            "Unknown: the noise hides how features vary together, so these coefficients could be anything. Use a "
            "larger epsilon, more records, or a model with fewer columns: one that hardly varies can hide the others."
        )

    def report(self) -> dict[str, Any]:
        """Return the coefficients' summary as plain data; unknown coefficients have infinite intervals."""
        return {
            "plan": self.statement.plan.digest(),
            "level": self.level,
            "by_silo": self.by_silo,
            **({} if self.positive is None else {"positive": self.positive}),
            "coefficients": {
                name: {
                    "estimate": found.estimate,
                    "standard_error": found.error,
                    "interval": [found.low, found.high],
                    "p_value": found.p_value,
                }
                for name, found in self.coefficients.items()
            },
            "curves": {
                curve.points.column: [
                    {"value": row[0], "estimate": one.estimate, "interval": [one.low, one.high]}
                    for row, one in zip(curve.table()[1], curve.band, strict=True)
                ]
                for curve in self.curves
            },
            "silos": {name: silo.model_dump(mode="json") for name, silo in self.statement.silos.items()},
        }

    def __str__(self) -> str:
        """Return the coefficients' summary as a printed table."""
        rows = self.rows()
        for curve in self.curves:
            header, points = curve.table()
            rows += [header, *points]
        lines = ["\t".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row) for row in rows]
        head = [] if self.positive is None else [f"log odds of '{self.positive}'"]
        return "\n".join([*head, *lines, *filter(None, [self.remark])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the coefficients' summary in IPython and notebooks as `print` does."""
        del cycle
        printer.text(str(self))


def summarise_coefficients(
    statement: Statement, findings: Mapping[str, Findings], *, level: float = 0.95, by_silo: bool = False
) -> Summary:
    """Make a summary of what a plan of `planning.query_plans` found."""
    coefficients, curves = coefficients_of_run(statement.plan, findings, level=level, by_silo=by_silo)
    return Summary(coefficients, level, by_silo, statement, curves)


def coefficients_of_run(
    plan: Plan, findings: Mapping[str, Findings], *, level: float = 0.95, by_silo: bool = False
) -> tuple[dict[str, CoefficientInterval], list[Curve]]:
    """Return every coefficient with its interval, the largest first, unknown ones and the intercept last; and curves.

    Of m points of a curve, each interval misses with probability (1 − level)/m, so all hold at once (Bonferroni).
    """
    found = measured_moments(findings)
    require_level(level, len(found.silos) if by_silo else None)
    records = sum(terms.records for terms in plan.silos if terms.name in found.silos)
    intervals = partial(coefficient_intervals, found.at, found.silos, records, by_silo=by_silo)
    names, functions, offsets = coefficients_in_table_units(plan)
    named = dict(zip(names, intervals(functions, offsets, level=level), strict=True))
    order = sorted(names, key=lambda name: (name == INTERCEPT, not named[name].is_known, -abs(named[name].estimate)))
    curves, unit, drawn = [], plan.loss.score_units(*plan.data.target_scaling)[0], curved_columns(plan.data)
    for points in curve_points(plan.data, drawn):
        rows = unit * np.pad(points.functions, ((0, 0), (0, plan.data.width - points.functions.shape[1])))
        own = intervals(rows, np.zeros(len(rows)), level=1 - (1 - level) / len(points.marks))
        line = np.array([one.estimate if one.is_known else math.nan for one in own])
        curves.append(Curve(points, {score_words(plan): line}, band=[own[mark] for mark in points.marks]))
    return {name: named[name] for name in order}, sorted(curves, key=lambda curve: -curve.span)


def curved_columns(data: Schema) -> set[str]:
    """Return the columns that a summary gives curves: those that maps read, and, without an intercept, categories."""
    alike = () if data.intercept else (name for name, column in data.features.items() if column.constant)
    return {*(name for map in data.maps or () for name in map.columns), *alike} if data.maps else set()


INTERCEPT = "(intercept)"


def require_level(level: float, silos: int | None) -> None:
    """Refuse a level of a coefficients' summary outside (0, 1), and too few silos."""
    if not 0 < level < 1:
        raise PlanError(f"The level of an interval must be between 0 and 1, such as 0.95, not {level!r}.")
    if silos is not None and silos < 2:
        raise PlanError(
            "Intervals over silos (--by-silo) need answers from two silos or more: remove it, or ask more silos."
        )


def coefficients_in_table_units(plan: Plan) -> tuple[list[str], FloatArray, FloatArray]:
    """Return names of coefficients, and each as a linear function of the weights plus an offset.

    With maps there is no intercept, and no coefficient of what they make but the products of columns' own features.
    """
    data, kept = plan.data, independent_features(plan.data)
    basis = LinearFunction.of(data, plan.loss, np.eye(data.width))
    start = float(LinearFunction.of(data, plan.loss, np.zeros((data.width, 1))).intercepts[0])
    curved = curved_columns(data)
    shown = np.concatenate([np.full(block.width, _has_coefficients(block, curved)) for block in data.blocks])
    places = [place for place in kept if place < len(basis.features) and shown[place]]
    functions = np.vstack([basis.coefficients.T[places], basis.intercepts - start]) @ _reference_coding(data)
    last = 0 if curved else 1
    names = [*(basis.features[place] for place in places), *[INTERCEPT] * last]
    return names, functions[: len(names)], np.array([0.0] * len(places) + [start] * last)


def _has_coefficients(block: Block, curved: set[str]) -> bool:
    """Return whether a summary lists a block's coefficients: each means the same, whatever the other features are."""
    if isinstance(block, Products):
        return not block.repeats.any() and all(isinstance(own, ColumnBlock) for own in (*block.first, *block.second))
    return isinstance(block, ColumnBlock) and block.name not in curved


def _reference_coding(data: Schema) -> FloatArray:
    """Return a matrix that takes the weights of categories that are left out (`independent`) to 0, at equal scores.

    All of a column's categories add up to its scale, and so does a constant to the size that it has.
    """
    matrix, kept, place = np.eye(data.width), independent_features(data), 0
    constant, size = range(data.width - 1, data.width), data.intercept
    for block in data.blocks:
        others = range(place, place + block.width)
        if place not in kept:
            matrix[others, place] -= 1.0
            matrix[constant, place] += block.constant / size
        elif block.constant:
            constant, size = others, block.constant
        place = others.stop
    return matrix


def _summary_row(name: str, found: CoefficientInterval) -> list[str | float]:
    """Return the row of a coefficient in a printed table."""
    if not found.is_known:
        return [name, "unknown", "", "", "", ""]
    return [name, found.estimate, found.error, found.low, found.high, found.p_value]
