"""Splines: smooth curves of a number, by a basis of bumps between public knots."""

import math
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.columns import Moment, Scaled
from ringfence.protocol.maps.base import Curve

_POINTS = 1024
"""At how many points of an interval the basis is looked at to bound its norm."""

MOST_KNOTS = 1000

Places: TypeAlias = Annotated[tuple[float | Moment, ...], Field(min_length=1, max_length=MOST_KNOTS)]


class Spline(Curve):
    """The B-splines of a `degree`: at every number they are not negative and add up to 1.

    `knots` is how many there are, evenly from the column's lower bound to its upper one; or a list of those between
    the bounds, in the column's own numbers or dates. Beyond the bounds knots go on as far apart as the nearest two, so
    that the basis is that of scikit-learn's SplineTransformer. There are knots + degree − 1 features, which take the
    place of the column's own: a straight line is among their sums.
    """

    type: Literal["spline"] = "spline"
    knots: Annotated[int, Field(ge=2, le=MOST_KNOTS)] | Places = 5
    degree: int = Field(default=3, ge=1, le=5)

    def fit(self, column: Scaled) -> None:
        """Refuse knots beyond the column's bounds, or out of order."""
        if isinstance(self.knots, int):
            return
        places = [column.number_of(knot) for knot in self.knots]
        if not all(column.low <= place <= column.high for place in places):
            raise ValueError("a knot is outside the column's bounds: knots must lie between `lower` and `upper`")
        if any(later <= earlier for earlier, later in pairwise(places)):
            raise ValueError("knots must increase: sort them, and name each once")
        least = 1e-9 * (column.high - column.low)
        if any(later - earlier <= least for earlier, later in pairwise(self._inner(column))):
            raise ValueError("two knots are too close to each other, or to a bound, to compute with: leave one out")

    def _inner(self, column: Scaled) -> tuple[float, ...]:
        """Return the knots from bound to bound."""
        if isinstance(self.knots, int):
            steps = self.knots - 1
            between = (column.low + (column.high - column.low) * step / steps for step in range(1, steps))
            return (column.low, *between, column.high)
        return tuple(sorted({column.low, column.high, *map(column.number_of, self.knots)}))

    def width(self, column: Scaled) -> int:
        """Return how many functions the basis has."""
        inner = self.knots if isinstance(self.knots, int) else len(self._inner(column))
        return inner + self.degree - 1

    def bound(self, column: Scaled) -> float:
        """Return the largest norm, to a ten-thousandth, and never less: for even knots and degree 3 it is √½."""
        inner = self._inner(column)
        return _largest_norm(inner[:2] if isinstance(self.knots, int) else inner, self.degree)

    @property
    def constant(self) -> float:
        """B-splines add up to 1."""
        return 1.0

    def names(self, name: str, column: Scaled) -> list[str]:
        """Return each function's number, and about where its bump is."""
        knots = _extended(self._inner(column), self.degree)
        middles = [sum(knots[at + 1 : at + 1 + self.degree]) / self.degree for at in range(self.width(column))]
        shown = (column.written(middle) for middle in middles)
        return [
            f"{name} spline {place} (near {each if isinstance(each, str) else format(each, '.4g')})"
            for place, each in enumerate(shown, 1)
        ]

    def values(self, numbers: FloatArray, column: Scaled) -> FloatArray:
        """Return the basis at each number."""
        return basis(numbers, self._inner(column), self.degree)

    @property
    def words(self) -> str:
        """Name the columns, and how many knots there are."""
        if isinstance(self.knots, int):
            knots = f"{self.knots} knots"
        else:
            knots = "knots at " + ", ".join(each if isinstance(each, str) else f"{each:g}" for each in self.knots)
        return f"splines of degree {self.degree} with {knots} ({', '.join(self.columns)})"


def basis(numbers: FloatArray, inner: tuple[float, ...], degree: int) -> FloatArray:
    """Return the B-splines at numbers from the first to the last of the inner knots, by de Boor's recursion."""
    interval = np.clip(np.searchsorted(inner, numbers, side="right") - 1, 0, len(inner) - 2) + degree
    return _recursion(numbers, np.array(_extended(inner, degree)), interval, degree)


def _recursion(numbers: FloatArray, knots: FloatArray, interval: NDArray[np.int64], degree: int) -> FloatArray:
    """Return the B-splines of all these knots at numbers; `interval` is the last knot that is not above each."""
    values: FloatArray = (np.arange(len(knots) - 1) == interval[:, None]).astype(np.float64)
    for power in range(1, degree + 1):
        rising = (numbers[:, None] - knots[: -power - 1]) / (knots[power:-1] - knots[: -power - 1])
        falling = (knots[power + 1 :] - numbers[:, None]) / (knots[power + 1 :] - knots[1:-power])
        values = np.asarray(rising * values[:, :-1] + falling * values[:, 1:], dtype=np.float64)
    return values


def _extended(inner: tuple[float, ...], degree: int) -> list[float]:
    first, last = inner[1] - inner[0], inner[-1] - inner[-2]
    below = [inner[0] - first * step for step in range(degree, 0, -1)]
    return [*below, *inner, *(inner[-1] + last * step for step in range(1, degree + 1))]


@lru_cache(maxsize=1000)
def _largest_norm(inner: tuple[float, ...], degree: int) -> float:
    """Return the largest norm of the basis.

    Between two knots its square is a polynomial of degree n = 2·degree, whose maximum is at most 1/cos(nπ/2N) times
    that at the N Chebyshev points of the interval (Ehlich and Zeller, 1964); and the functions are not negative and add
    up to 1.
    """
    points = 0.5 + 0.5 * np.cos((np.arange(_POINTS) + 0.5) * math.pi / _POINTS)
    knots, first = np.array(_extended(inner, degree)), np.full(_POINTS, degree)
    squares = []
    for at, (low, high) in enumerate(pairwise(inner)):  # where all but degree + 1 functions are 0
        values = _recursion(low + (high - low) * points, knots[at : at + 2 * degree + 2], first, degree)
        squares.append(float(np.max(np.sum(values**2, axis=1))))
    return min(1.0, math.sqrt(max(squares) / math.cos(degree * math.pi / _POINTS)))
