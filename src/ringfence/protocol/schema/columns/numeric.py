"""Numbers between public bounds."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ringfence.protocol.arrays import FloatArray, without_negligible
from ringfence.protocol.schema.columns.base import UNKNOWN, Beyond, Problem, ReadColumn, Reading
from ringfence.sources.cells import Cells


class Scaled(ReadColumn):
    """A number in an interval, scaled so that `offset` becomes 0 and `unit` the distance 1."""

    is_number: ClassVar[bool] = True
    open_fields: ClassVar[Mapping[str, str]] = {
        "lower": "the smallest publicly possible value",
        "upper": "the largest publicly possible value",
    }

    lower: Any
    upper: Any
    center: Any = None
    scale: float | None = Field(default=None, gt=0)
    missing: Any = None

    def values(self, cells: Cells) -> FloatArray:
        """Return the numbers of a numeric column's cells; NaN for a cell that has none."""
        return cells.numbers()

    def number_of(self, value: Any) -> float:
        """Return the number that a schema means by a value of a numeric or date column; ValueError if it means none."""
        if isinstance(value, str):
            raise ValueError("a value is not a number: write it without quotes")
        return float(value)

    @cached_property
    def low(self) -> float:
        """The lower bound of a numeric column, as a number."""
        return self.number_of(self.lower)

    @cached_property
    def high(self) -> float:
        """The upper bound of a numeric column, as a number."""
        return self.number_of(self.upper)

    @cached_property
    def offset(self) -> float:
        """The number of a numeric column that becomes 0: the centre, or the middle."""
        return (self.low + self.high) / 2 if self.center is None else self.number_of(self.center)

    @property
    def unit(self) -> float:
        """The distance in a numeric column that becomes 1: the scale, or half the width."""
        return (self.high - self.low) / 2 if self.scale is None else self.scale

    @property
    def stand_in(self) -> float | None:
        """The number for an empty numeric cell: the public `missing` value, with an indicator the centre, or None."""
        if self.missing is None:
            return self.offset if self.indicator else None
        return self.number_of(self.missing)

    def _require_values_inside(self) -> None:
        """Refuse a numeric column whose centre or stand-in is out of bounds, or whose scaled numbers are huge."""
        for name, value in (("center", self.center), ("missing", self.missing)):
            if value is not None and not self.low <= self.number_of(value) <= self.high:
                raise ValueError(f"{name} must lie between lower and upper")
        if self._largest > 1e6:
            raise ValueError("scale is so small that scaled values exceed a million")

    def in_units(self, scaled: NDArray[Any]) -> FloatArray:
        """Return scaled numbers in a numeric column's own units, within its bounds."""
        values = scaled.astype(np.float64)  # in single precision a bound would be another
        return np.clip(values * self.unit + self.offset, self.low, self.high)

    @property
    def _largest(self) -> float:
        """The largest absolute scaled number of a numeric column."""
        return max(self.high - self.offset, self.offset - self.low) / self.unit

    @property
    def bound(self) -> float:
        """The largest norm of a numeric column's features: of a number, or of the stand-in with its indicator."""
        if not self.indicator or self.stand_in is None:
            return self._largest
        return max(self._largest, math.hypot((self.stand_in - self.offset) / self.unit, 1.0))

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Return the name of a numeric column itself, and that of its indicator."""
        return self.with_indicator_name(name, (name,))

    @property
    def scaling(self) -> tuple[tuple[float, float], ...]:
        """Offset and unit of the number of a numeric column, and of its indicator."""
        return ((self.offset, self.unit), (0.0, 1.0))[: 2 if self.indicator else 1]

    @property
    def limits(self) -> tuple[tuple[float, float, float], ...]:
        """The bounds of a numeric column."""
        own = (self.low, self.high, math.nan if self.stand_in is None else self.stand_in)
        return (own, (0.0, 1.0, 0.0))[: 2 if self.indicator else 1]

    @property
    def described(self) -> tuple[str, str]:
        """A number, and its bounds."""
        return "number", f"{self.low:g} to {self.high:g}"

    @property
    def target_scaling(self) -> tuple[float, float]:
        """Factor and summand that turn scaled numbers of a numeric column, as the target, back into its own units."""
        return self.unit, self.offset

    @property
    def problem(self) -> str:
        """What is wrong with a cell that is not a number."""
        return "this is not a finite number; if it marks a missing value, list it in `missing_tokens`"

    def read(self, cells: Cells) -> tuple[Reading, list[Problem]]:
        """Return the clamped and scaled numbers of a numeric column."""
        values, empty, problems = self._filled(cells)
        scaled = np.clip(values, self.low, self.high)
        rows = np.flatnonzero(values != scaled)
        scaled -= self.offset
        scaled /= self.unit
        with np.errstate(over="ignore"):
            beyond = Beyond(rows, (values[rows] - self.offset) / self.unit) if rows.size else None
        return Reading(without_negligible(scaled), empty, beyond), problems

    def _filled(self, cells: Cells) -> tuple[FloatArray, NDArray[np.bool_] | None, list[Problem]]:
        """Return a numeric column with empty cells replaced by the stand-in, the mask of empty cells, and problems."""
        values = self.values(cells)
        wrong = ~np.isfinite(values)
        if not self.missing_tokens and not wrong.any():
            return values, None, []  # as most columns are
        empty = self._empty(cells)
        if empty is not None:
            values = np.where(empty, 0.0 if self.stand_in is None else self.stand_in, values)
        return values, empty, self._problems(empty, wrong, self.problem)

    def features(self, reading: Reading) -> FloatArray:
        """Return the number of each numeric cell, and whether there was none."""
        return self.with_indicator(reading.values[:, None], reading)

    def plain(self, cells: Cells) -> FloatArray:
        """Return the numbers of a numeric column as they stand."""
        values, empty, _ = self._filled(cells)
        return self.with_indicator(values[:, None], Reading(values, empty))


class Numeric(Scaled):
    """A number in [lower, upper]; values beyond are clamped. It becomes (value − center) / scale.

    `center` and `scale` default to the middle and half the width, which maps the bounds to ±1. Give them
    where it is publicly known that values crowd in a narrower range: training then needs fewer rounds.
    """

    is_plain_number: ClassVar[bool] = True

    type: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    center: float | None = None
    missing: float | None = None

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        """Refuse a numeric column whose bounds are out of order or too far apart."""
        if not self.lower < self.upper:
            raise ValueError("lower must be smaller than upper (type = 'ignore' drops a constant column)")
        if not math.isfinite(self.upper - self.lower):
            raise ValueError("the range from lower to upper is too wide to compute with")
        if not self.unit > 0 or not math.isfinite(self.offset):
            raise ValueError("lower and upper are too close, or too large, to compute with")
        self._require_values_inside()
        return self

    @property
    def is_unbounded(self) -> bool:
        """Whether no bound is known: private statistics then estimate magnitudes only."""
        return self.upper >= UNKNOWN or self.lower <= -UNKNOWN
