"""Axes along which a request asks for gradients: any matrix, or the identity with one direction rescaled.

A simulation's may begin with an axis of runs: then `packed` and `scaled` work on all of them.

A record's features x become z = Ax before its gradient is clipped, so that axes decide where noise goes; a gradient g
along the axes comes back as Aᵀg.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ringfence.protocol.arrays import NEGLIGIBLE, FloatArray, Number, namespace

AxesForm: TypeAlias = Literal["rank-one"]
"""The identity with one direction rescaled."""

Product: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""How rows are multiplied by the columns of a matrix: exactly at a silo, in floating point in a simulation."""


class MatrixAxes(NamedTuple):
    """As many axes as there are features, a row each."""

    matrix: FloatArray

    @property
    def width(self) -> int:
        """The number of features, and of axes: the side of the matrix."""
        return len(self.matrix)

    def packed(self) -> FloatArray:
        """Return the numbers that a request carries: all entries of the matrix of axes."""
        return self.matrix.reshape(*self.matrix.shape[:-2], -1)

    def scaled(self, factor: Number) -> "MatrixAxes":
        """Return the axes, each that many times as long."""
        return MatrixAxes(self.matrix * np.asarray(factor)[..., None, None])

    def along(self, rows: FloatArray, times: Product) -> FloatArray:
        """Return rows of features along the axes: each a function of its own numbers alone, if products are."""
        return times(rows, self.matrix.T)

    def turned(self, columns: FloatArray) -> FloatArray:
        """Return A times the columns, which have a number for each feature."""
        return self.matrix @ columns

    def back(self, columns: FloatArray) -> FloatArray:
        """Return Aᵀ times the columns, which have a number for each axis."""
        return self.matrix.T @ columns

    def shrunk(self, columns: FloatArray, pull: Number) -> FloatArray:
        """Return (I + pull·AᵀA)⁻¹ times the columns: an implicit step of a ridge."""
        xp: Any = namespace(columns)
        solved: FloatArray = xp.linalg.solve(xp.eye(self.width) + pull * self.matrix.T @ self.matrix, columns)
        return solved


class RankOneAxes(NamedTuple):
    """The features' own axes, all of length `scale`, shortened along one `direction` u: scale·(I − uuᵀ).

    A direction of norm 1 would be left out; one of norm √(1 − c) is shortened to c.
    """

    scale: Number
    direction: FloatArray

    @property
    def width(self) -> int:
        """The length of the one direction of rank-one axes."""
        return len(self.direction)

    def packed(self) -> FloatArray:
        """Return the scale of rank-one axes, then their direction."""
        return np.concatenate([np.asarray(self.scale)[..., None], self.direction], axis=-1)

    def scaled(self, factor: Number) -> "RankOneAxes":
        """Multiply the scale of rank-one axes by a factor."""
        return RankOneAxes(self.scale * factor, self.direction)

    def along(self, rows: FloatArray, times: Product) -> FloatArray:
        """Rescale rows by rank-one axes, and shorten them along the one direction."""
        return self.scale * (rows - times(rows, self.direction[:, None]) * self.direction)

    def turned(self, columns: FloatArray) -> FloatArray:
        """Multiply columns by rank-one axes, scale·(I − uuᵀ)."""
        return self.scale * (columns - self.direction[:, None] * (self.direction @ columns))

    def back(self, columns: FloatArray) -> FloatArray:
        """Multiply columns by rank-one axes, which are symmetric."""
        return self.turned(columns)

    def shrunk(self, columns: FloatArray, pull: Number) -> FloatArray:
        """Divide by 1 + pull·scale², and by 1 + pull·(scale·(1 − |u|²))² along the direction of rank-one axes."""
        square: FloatArray = self.direction @ self.direction
        others, own = 1 + pull * self.scale**2, 1 + pull * (self.scale * (1 - square)) ** 2
        along = self.direction[:, None] * (self.direction @ columns) / (square + (square == 0))
        shrunk: FloatArray = (columns - along) / others + along / own
        return shrunk


Axes: TypeAlias = MatrixAxes | RankOneAxes
"""Axes for silo, server and simulator; both forms have the same methods."""


def axes_length(form: AxesForm | None, width: int) -> int:
    """Return how many numbers of a request axes of that form take."""
    return width**2 if form is None else 1 + width


def unpacked(form: AxesForm | None, numbers: FloatArray) -> Axes:
    """Read axes of that form from what a request carries.

    Rows are multiplied by a direction twice, so its numbers are read as 0 if their squares are negligible: how long a
    product takes must not tell of a record.
    """
    if form is None:
        return MatrixAxes(numbers.reshape(round(len(numbers) ** 0.5), -1))
    direction = numbers[1:]
    return RankOneAxes(float(numbers[0]), np.where(np.square(direction) < NEGLIGIBLE, 0.0, direction))
