"""Curves: maps of one number each, by splines or by cosines and sines."""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import Annotated, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.schema.blocks import Block, Readings
from ringfence.protocol.schema.columns.base import Only, ReadColumn
from ringfence.protocol.schema.columns.date import Moment
from ringfence.protocol.schema.columns.numeric import Scaled
from ringfence.protocol.schema.maps.base import BaseMap

_POINTS = 1024
"""The number of points of an interval at which the basis is evaluated to bound its norm."""

MOST_KNOTS = 1000

Places: TypeAlias = Annotated[tuple[float | Moment, ...], Field(min_length=1, max_length=MOST_KNOTS)]


class Curve(BaseMap):
    """A map of every one of its columns by itself; they are numbers."""

    constant: ClassVar[float] = 0.0
    """The sum of a curve's features, if it is the same for every number; else 0."""

    def check(self, columns: Mapping[str, ReadColumn]) -> None:
        """Raise ValueError if a column is not a number or date, or does not suit the map."""
        super().check(columns)
        for name in self.columns:
            column = columns[name]
            if not isinstance(column, Scaled):
                raise ValueError(f"a {self.type} map needs numbers or dates, and the column '{name}' has neither")
            try:
                self.fit(column)
            except ValueError as problem:
                raise ValueError(f"the {self.type} map of the column '{name}': {problem}") from None

    def fit(self, column: Scaled) -> None:
        """Raise ValueError if a curve cannot be made of that column."""

    def inner(self, column: Scaled) -> tuple[float, ...]:
        """Return a curve's knots in that column, in its own numbers, from where it begins to vary to where it ends."""
        return (column.low, column.high)


class Spline(Curve):
    """The B-splines of a `degree`: at every number they are not negative and add up to 1.

    `knots` is how many there are, evenly from the column's lower bound to its upper one; or a list of those between
    the bounds, in the column's own numbers or dates. Beyond the bounds knots go on as far apart as the nearest two, so
    that the basis is that of scikit-learn's SplineTransformer. There are knots + degree − 1 features, which take the
    place of the column's own: a straight line is among their sums.

    Knots that are `surveyed` are found by a survey: each request places them (`Schema.placed`). The curve is then made
    of straight lines, and constant beyond the outermost knots.
    """

    constant: ClassVar[float] = 1.0
    keep: ClassVar[None] = None
    period: ClassVar[float] = math.inf
    harmonics: ClassVar[int] = 0

    type: Literal["spline"] = "spline"
    knots: Annotated[int, Field(ge=2, le=MOST_KNOTS)] | Places = 5
    degree: int = Field(default=3, ge=1, le=5)
    surveyed: Only = None

    def fit(self, column: Scaled) -> None:
        """Refuse a spline's knots beyond the column's bounds, or out of order, and surveyed ones for smooth curves."""
        if self.surveyed and self.degree > 1:
            raise ValueError("surveyed knots are for straight lines: give it degree = 1")
        if isinstance(self.knots, int):
            return
        places = [column.number_of(knot) for knot in self.knots]
        if not all(column.low <= place <= column.high for place in places):
            raise ValueError("a knot is outside the column's bounds: knots must lie between `lower` and `upper`")
        if any(later <= earlier for earlier, later in pairwise(places)):
            raise ValueError("knots must increase: sort them, and name each once")
        least = 1e-9 * (column.high - column.low)
        if any(later - earlier <= least for earlier, later in pairwise(self.inner(column))):
            raise ValueError("two knots are too close to each other, or to a bound, to compute with: leave one out")

    @property
    def is_open(self) -> bool:
        """Whether the spline's knots are still to be found."""
        return bool(self.surveyed) and isinstance(self.knots, int)

    def placed(self, places: Iterator[float]) -> "tuple[BaseMap, ...]":
        """Return an open spline with the next of these places for its knots, in a map for each column."""
        if not isinstance(self.knots, int) or not self.surveyed:
            return (self,)
        own = [(name, tuple(islice(places, self.knots))) for name in self.columns]
        return tuple(Spline(columns=(name,), knots=knots, degree=1, surveyed=True) for name, knots in own)

    def inner(self, column: Scaled) -> tuple[float, ...]:
        """Return the spline's knots from bound to bound, or the surveyed ones."""
        if isinstance(self.knots, int):
            steps = self.knots - 1
            between = (column.low + (column.high - column.low) * step / steps for step in range(1, steps))
            return (column.low, *between, column.high)
        places = tuple(map(column.number_of, self.knots))
        return places if self.surveyed else tuple(sorted({column.low, column.high, *places}))

    def width(self, column: Scaled) -> int:
        """Return how many functions the spline basis has."""
        return len(self.inner(column)) + self.degree - 1

    def bound(self, column: Scaled) -> float:
        """Return the largest norm of a spline basis, to a ten-thousandth, never less: √½ for even knots, degree 3."""
        if self.surveyed:
            return 1.0  # wherever the knots are
        inner = self.inner(column)
        return _largest_norm(inner[:2] if isinstance(self.knots, int) else inner, self.degree)

    def names(self, name: str, column: Scaled) -> list[str]:
        """Return the number of each B-spline, and about where its bump is."""
        knots = extended(self.inner(column), self.degree)
        middles = [sum(knots[at + 1 : at + 1 + self.degree]) / self.degree for at in range(self.width(column))]
        shown = (column.written(middle) for middle in middles)
        return [
            f"{name} spline {place} (near {each if isinstance(each, str) else format(each, '.4g')})"
            for place, each in enumerate(shown, 1)
        ]

    def values(self, numbers: FloatArray, column: Scaled) -> FloatArray:
        """Return the spline basis at each number; beyond surveyed knots, that at the nearest of them."""
        inner = self.inner(column)
        return basis(np.clip(numbers, inner[0], inner[-1]), inner, self.degree)

    @property
    def words(self) -> str:
        """Describe a spline map: degree, knots and columns."""
        if self.surveyed and isinstance(self.knots, int):
            return f"curves of {self.knots - 1} straight pieces ({', '.join(self.columns)})"
        if isinstance(self.knots, int):
            knots = f"{self.knots} knots"
        else:
            knots = "knots at " + ", ".join(each if isinstance(each, str) else f"{each:g}" for each in self.knots)
        return f"splines of degree {self.degree} with {knots} ({', '.join(self.columns)})"


def basis(numbers: FloatArray, inner: tuple[float, ...], degree: int) -> FloatArray:
    """Return the B-splines at numbers from the first to the last of the inner knots, by de Boor's recursion."""
    interval = np.clip(np.searchsorted(inner, numbers, side="right") - 1, 0, len(inner) - 2) + degree
    return _recursion(numbers, np.array(extended(inner, degree)), interval, degree)


def _recursion(numbers: FloatArray, knots: FloatArray, interval: NDArray[np.int64], degree: int) -> FloatArray:
    """Return the B-splines of all these knots at numbers; `interval` is the last knot that is not above each."""
    values: FloatArray = (np.arange(len(knots) - 1) == interval[:, None]).astype(np.float64)
    for power in range(1, degree + 1):
        rising = (numbers[:, None] - knots[: -power - 1]) / (knots[power:-1] - knots[: -power - 1])
        falling = (knots[power + 1 :] - numbers[:, None]) / (knots[power + 1 :] - knots[1:-power])
        values = np.asarray(rising * values[:, :-1] + falling * values[:, 1:], dtype=np.float64)
    return values


def extended(inner: tuple[float, ...], degree: int) -> list[float]:
    """Return a spline's knots with further ones, evenly spaced, beyond both bounds."""
    first, last = inner[1] - inner[0], inner[-1] - inner[-2]
    below = [inner[0] - first * step for step in range(degree, 0, -1)]
    return [*below, *inner, *(inner[-1] + last * step for step in range(1, degree + 1))]


@lru_cache(maxsize=1000)
def _largest_norm(inner: tuple[float, ...], degree: int) -> float:
    """Return the largest norm of the spline basis.

    Between two knots its square is a polynomial of degree n = 2·degree, whose maximum is at most 1/cos(nπ/2N) times
    that at the N Chebyshev points of the interval (Ehlich and Zeller, 1964); and the functions are not negative and add
    up to 1.
    """
    points = 0.5 + 0.5 * np.cos((np.arange(_POINTS) + 0.5) * math.pi / _POINTS)
    knots, first = np.array(extended(inner, degree)), np.full(_POINTS, degree)
    squares = []
    for at, (low, high) in enumerate(pairwise(inner)):  # where all but degree + 1 functions are 0
        values = _recursion(low + (high - low) * points, knots[at : at + 2 * degree + 2], first, degree)
        squares.append(float(np.max(np.sum(values**2, axis=1))))
    return min(1.0, math.sqrt(max(squares) / math.cos(degree * math.pi / _POINTS)))


class Cyclic(Curve):
    """Cosine and sine of a number that begins again after each `period`, in the column's own units.

    `harmonics` more of them go two, three and more times around, for curves with more than one peak. All are divided by
    √harmonics, so that their norm is 1 at every number. They take the place of the column's own feature, unless it is
    to be kept beside them (`keep`), as a trend beside a season.
    """

    type: Literal["cyclic"] = "cyclic"
    period: float = Field(gt=0, le=1e18)
    harmonics: int = Field(default=1, ge=1, le=1000)
    keep: Only = None

    def width(self, column: Scaled) -> int:
        """Return two features for each harmonic of a cyclic curve."""
        return 2 * self.harmonics

    def bound(self, column: Scaled) -> float:
        """Return the norm 1 of a cyclic curve: cos² + sin² of each harmonic."""
        return 1.0

    def names(self, name: str, column: Scaled) -> list[str]:
        """Return whether a cyclic curve's feature is a cosine or a sine, and of which period."""
        periods = [f"{self.period:g}" + ("" if time == 1 else f"/{time}") for time in range(1, self.harmonics + 1)]
        return [f"{name} {wave} {period}" for period in periods for wave in ("cos", "sin")]

    def values(self, numbers: FloatArray, column: Scaled) -> FloatArray:
        """Return cosine and sine of every harmonic of a cyclic curve."""
        turns = np.remainder(numbers, self.period)[:, None] * (np.arange(1, self.harmonics + 1) / self.period)
        angles = 2.0 * math.pi * turns
        waves = np.stack([np.cos(angles), np.sin(angles)], axis=2) / math.sqrt(self.harmonics)
        return waves.reshape(len(numbers), 2 * self.harmonics)

    @property
    def words(self) -> str:
        """Describe a cyclic curve: period, harmonics and columns."""
        times = "" if self.harmonics == 1 else f" and {self.harmonics} harmonics"
        return f"cosines and sines of period {self.period:g}{times} ({', '.join(self.columns)})"


class CurveBlock(Block):
    """A curve of one column. With an indicator, all features of an empty cell but the indicator are 0.

    `indicator` states whether the indicator is part of this block: each column has one.
    """

    def __init__(self, curve: Spline | Cyclic, name: str, column: Scaled, *, indicator: bool) -> None:
        """Make the block of a curve of one column; `indicator` appends the indicator of empty cells."""
        self.curve, self.name, self.column, self.indicator = curve, name, column, indicator
        self.width = curve.width(column) + indicator
        self.bound = max(curve.bound(column), 1.0) if indicator else curve.bound(column)
        self.constant = curve.constant if indicator or not column.indicator else 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the curve's features and of the indicator."""
        own = self.curve.names(self.name, self.column)
        return (*own, f"{self.name} is missing") if self.indicator else tuple(own)

    def features(self, readings: Readings) -> FloatArray:
        """Return the curve's features of a column's reading."""
        reading = readings[self.name]
        values = self.curve.values(self.column.in_units(reading.values), self.column)
        if self.column.indicator and reading.empty is not None:
            values[reading.empty] = 0.0
        return self.column.with_indicator(values, reading) if self.indicator else values
