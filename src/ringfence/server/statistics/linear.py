"""From an answer's numbers to shares of the records: constants, and matrices."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.questions.statistics_layout import QUARTERS, Association, Categories, ColumnPart, Tree


@dataclass(frozen=True)
class Linear:
    """Statistics that are `constant` + `matrix` · (the part's numbers, in units of a whole record)."""

    constant: FloatArray
    matrix: FloatArray

    def combined(self, rows: FloatArray) -> "Linear":
        """Return sums of these statistics, with the factors of each row."""
        return Linear(rows @ self.constant, rows @ self.matrix)

    def values(self, numbers: FloatArray) -> FloatArray:
        """Return the statistics."""
        result: FloatArray = self.constant + self.matrix @ numbers
        return result

    def spread(self) -> FloatArray:
        """Return the standard deviation of each, if every number has noise of deviation 1."""
        result: FloatArray = np.sqrt(np.sum(self.matrix**2, axis=1))
        return result


@dataclass(frozen=True)
class OfNumbers:
    """The shares of all records in each bin, below each edge between two, and in any (`filled`); sums of the moments.

    Both moments are about the middle of the range, in units of its width; there are none without bounds.
    """

    bins: Linear
    below: Linear
    filled: Linear
    moments: Linear | None


@lru_cache(maxsize=64)
def of_categories(part: Categories) -> Linear:
    """Return the share of each cell, by least squares: together they are 1."""
    cells = part.cells
    return Linear(np.full(cells, 1 / cells), (np.eye(cells) - 1 / cells) / part.weight)


@lru_cache(maxsize=64)
def of_numbers(part: Tree) -> OfNumbers:
    """Return what a tree tells: a node's share is halved, and the halves moved apart by half of the node's number."""
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
    if part.may_be_empty:
        filled[0, -1] = -1 / part.empty
    bins = Linear(np.full(leaves, 1 / leaves), matrix + filled / leaves)
    below, total = bins.combined(np.tri(nodes, leaves)), Linear(np.ones(1), filled)
    if not part.fine:
        return OfNumbers(bins, below, total, None)
    middles, half = (np.arange(leaves) + 0.5) / leaves - 0.5, 0.5 / leaves
    moments = bins.combined(np.array([middles, middles**2]))
    moments.matrix[:, nodes : nodes + 2] = np.diag([half, half * (1 - half)]) / (part.fine * part.weight)
    return OfNumbers(bins, below, total, moments)


def of_margin(part: ColumnPart) -> Linear:
    """Return the shares of the cells that a column has in a cross table."""
    if isinstance(part, Categories):
        return of_categories(part)
    found = of_numbers(part)
    quarters = found.bins.combined(np.repeat(np.eye(QUARTERS), part.leaves // QUARTERS, axis=1))
    if not part.may_be_empty:
        return quarters
    empty = found.filled.combined(-np.ones((1, 1)))
    return Linear(np.append(quarters.constant, 1 + empty.constant), np.concatenate([quarters.matrix, empty.matrix]))


def of_association(part: Association) -> Linear:
    """Return what each cell's share is beyond what its margins say, by least squares: rows and columns add up to 0."""
    centred = [np.eye(count) - 1 / count for count in (part.rows, part.columns)]
    return Linear(np.zeros(part.length), np.asarray(np.kron(*centred) / part.weight, dtype=np.float64))
