"""A model's coefficients with standard errors, intervals and p-values, in the table's own units."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.errors import PlanError
from ringfence.export import LinearFunction
from ringfence.inference.coefficients import CoefficientInterval, intervals
from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.plan import Plan
from ringfence.protocol.questions.second_moments import independent
from ringfence.protocol.schema import Schema
from ringfence.server.learned import Findings
from ringfence.server.questions.second_moments import measured
from ringfence.statement import Statement


@dataclass(frozen=True)
class Summary:
    """Every coefficient with its interval, the largest first, those that cannot be told and the intercept last.

    They are of the loss without any ridge or clip, and need not be the model's own weights, which stop short of them. A
    category's coefficient is the difference from its column's first one, which has none.
    """

    coefficients: Mapping[str, CoefficientInterval]
    level: float
    by_silo: bool
    statement: Statement

    HEADER = ("feature", "estimate", "standard error", "from", "to", "p-value")

    def rows(self) -> list[list[object]]:
        """Return the lines of a table for people, below `HEADER`."""
        return [_cells(name, found) for name, found in self.coefficients.items()]

    @property
    def remark(self) -> str:
        """What to do about coefficients that cannot be told, in one sentence; nothing if there are none."""
        if all(found.is_told for found in self.coefficients.values()):
            return ""
        return (
            "Unknown: the noise hides how features vary together, so these coefficients could be anything. Use a "
            "larger epsilon, more records, or a model with fewer columns: one that hardly varies can hide the others."
        )

    def report(self) -> dict[str, Any]:
        """Return plain data for machines; what cannot be told is infinite."""
        return {
            "plan": self.statement.plan.digest(),
            "level": self.level,
            "by_silo": self.by_silo,
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
        rows = ["\t".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in row) for row in self.rows()]
        return "\n".join([*rows, *filter(None, [self.remark])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show it in IPython and notebooks as `print` does."""
        del cycle
        printer.text(str(self))


def summarise(
    statement: Statement, findings: Mapping[str, Findings], *, level: float = 0.95, by_silo: bool = False
) -> Summary:
    """Make a summary of what a plan of `planning.summaries` found."""
    plan, found = statement.plan, measured(findings)
    require_level(level, len(found.silos) if by_silo else None)
    names, functions, offsets = in_table_units(plan)
    records = sum(terms.records for terms in plan.silos if terms.name in found.silos)
    told = intervals(found.at, found.silos, records, functions, offsets, level=level, by_silo=by_silo)
    named = dict(zip(names, told, strict=True))
    order = sorted(names, key=lambda name: (name == INTERCEPT, not named[name].is_told, -abs(named[name].estimate)))
    return Summary({name: named[name] for name in order}, level, by_silo, statement)


INTERCEPT = "(intercept)"


def require_level(level: float, silos: int | None) -> None:
    """Refuse intervals of no level, or by too few silos."""
    if not 0 < level < 1:
        raise PlanError(f"The level of an interval must be between 0 and 1, such as 0.95, not {level!r}.")
    if silos is not None and silos < 2:
        raise PlanError(
            "Intervals over silos (--by-silo) need answers from two silos or more: remove it, or ask more silos."
        )


def in_table_units(plan: Plan) -> tuple[list[str], FloatArray, FloatArray]:
    """Return names of coefficients, and each as a linear function of the weights, with what is added to it."""
    data, kept = plan.data, independent(plan.data)
    basis = LinearFunction.of(data, plan.loss, np.eye(data.width))
    start = float(LinearFunction.of(data, plan.loss, np.zeros((data.width, 1))).intercepts[0])
    places = [place for place in kept if place < len(basis.features)]
    functions = np.vstack([basis.coefficients.T[places], basis.intercepts - start]) @ _without_first(data)
    return [*(basis.features[place] for place in places), INTERCEPT], functions, np.array([0.0] * len(places) + [start])


def _without_first(data: Schema) -> FloatArray:
    """Return a matrix that takes the weights of categories that are left out (`independent`) to 0, at equal scores.

    All of a column's categories add up to its scale, and so does a constant to the size that it has.
    """
    matrix, kept, place = np.eye(data.width), independent(data), 0
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


def _cells(name: str, found: CoefficientInterval) -> list[object]:
    """Return a line of a table."""
    if not found.is_told:
        return [name, "unknown", "", "", "", ""]
    return [name, found.estimate, found.error, found.low, found.high, found.p_value]
