"""A model's coefficients with standard errors, intervals and p-values, in the table's own units."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.errors import PlanError
from ringfence.estimates.coefficients import CoefficientInterval, coefficient_intervals
from ringfence.model.export import LinearFunction
from ringfence.model.statement import Statement
from ringfence.protocol import FloatArray, Plan, Schema
from ringfence.protocol.queries.second_moments import independent_features
from ringfence.server.queries.second_moments import measured_moments
from ringfence.server.state import Findings


@dataclass(frozen=True)
class Summary:
    """Every coefficient with its interval, the largest first, unknown ones and the intercept last.

    They are of the loss without any ridge or clip, and need not be the model's own weights, which stop short of them. A
    category's coefficient is the difference from its column's first one, which has none.
    """

    coefficients: Mapping[str, CoefficientInterval]
    level: float
    by_silo: bool
    statement: Statement

    HEADER = ("feature", "estimate", "standard error", "from", "to", "p-value")

    @property
    def positive(self) -> str | None:
        """The class whose log odds the coefficients are of, the last of two; None if they are of a number."""
        return next(reversed(self.statement.plan.data.target_column.classes), None)

    def rows(self) -> list[list[object]]:
        """Return the coefficients as rows of a printed table, below `HEADER`."""
        return [_summary_row(name, found) for name, found in self.coefficients.items()]

    @property
    def remark(self) -> str:
        """What to do about unknown coefficients of a summary, in one sentence; empty if there are none."""
        if all(found.is_known for found in self.coefficients.values()):
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
            "silos": {name: silo.model_dump(mode="json") for name, silo in self.statement.silos.items()},
        }

    def __str__(self) -> str:
        """Return the coefficients' summary as a printed table."""
        rows = ["\t".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row) for row in self.rows()]
        head = [] if self.positive is None else [f"log odds of '{self.positive}'"]
        return "\n".join([*head, *rows, *filter(None, [self.remark])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the coefficients' summary in IPython and notebooks as `print` does."""
        del cycle
        printer.text(str(self))


def summarise_coefficients(
    statement: Statement, findings: Mapping[str, Findings], *, level: float = 0.95, by_silo: bool = False
) -> Summary:
    """Make a summary of what a plan of `planning.query_plans` found."""
    return Summary(
        coefficients_of_run(statement.plan, findings, level=level, by_silo=by_silo), level, by_silo, statement
    )


def coefficients_of_run(
    plan: Plan, findings: Mapping[str, Findings], *, level: float = 0.95, by_silo: bool = False
) -> dict[str, CoefficientInterval]:
    """Return every coefficient with its interval, the largest first, unknown ones and the intercept last."""
    found = measured_moments(findings)
    require_level(level, len(found.silos) if by_silo else None)
    names, functions, offsets = coefficients_in_table_units(plan)
    records = sum(terms.records for terms in plan.silos if terms.name in found.silos)
    intervals = coefficient_intervals(found.at, found.silos, records, functions, offsets, level=level, by_silo=by_silo)
    named = dict(zip(names, intervals, strict=True))
    order = sorted(names, key=lambda name: (name == INTERCEPT, not named[name].is_known, -abs(named[name].estimate)))
    return {name: named[name] for name in order}


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
    """Return names of coefficients, and each as a linear function of the weights plus an offset."""
    data, kept = plan.data, independent_features(plan.data)
    basis = LinearFunction.of(data, plan.loss, np.eye(data.width))
    start = float(LinearFunction.of(data, plan.loss, np.zeros((data.width, 1))).intercepts[0])
    places = [place for place in kept if place < len(basis.features)]
    functions = np.vstack([basis.coefficients.T[places], basis.intercepts - start]) @ _reference_coding(data)
    return [*(basis.features[place] for place in places), INTERCEPT], functions, np.array([0.0] * len(places) + [start])


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


def _summary_row(name: str, found: CoefficientInterval) -> list[object]:
    """Return the row of a coefficient in a printed table."""
    if not found.is_known:
        return [name, "unknown", "", "", "", ""]
    return [name, found.estimate, found.error, found.low, found.high, found.p_value]
