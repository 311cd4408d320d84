"""Array types, and how NumPy and JAX arrays share the same formulas."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

Number: TypeAlias = FloatArray | float
"""A number, or in a simulation an array with one for each run."""

TINY = 1e-30
"""Stands for a length of 0 in a division; it is a normal number in single precision too."""

NEGLIGIBLE = 2.0**-500
"""Smaller numbers are read as 0: products of them are subnormal, and take processors many times as long."""


PIECE = 2**16
"""How many numbers of a column are worked on at a time, so that they stay in a processor's cache."""


def pieces(count: int, size: int = PIECE) -> Iterator[slice]:
    """Divide that many rows of an array into slices that are processed one after the other."""
    return (slice(begin, min(begin + size, count)) for begin in range(0, count, size))


def without_negligible(array: FloatArray) -> FloatArray:
    """Return the array with 0 in place of every number below `NEGLIGIBLE`."""
    sizes = np.abs(array)
    if not np.fmin.reduce(sizes, axis=None, initial=np.inf) < NEGLIGIBLE:
        return array
    return np.where(sizes < NEGLIGIBLE, 0.0, array)


ADDED = 2**12
"""How many squares of a row are added up at a time: NumPy splits longer rows, depending on their neighbours."""


def row_norms(rows: FloatArray) -> FloatArray:
    """Return the norm of every row of an array, a function of that row alone: its neighbours do not change a bit.

    The relative error is at most (width + 3)·2⁻⁵⁴.
    """
    rows, squares = np.ascontiguousarray(rows), np.zeros(len(rows))
    for some in pieces(rows.shape[1], ADDED):
        squares += np.einsum("ij,ij->i", rows[:, some], rows[:, some])
    return np.asarray(np.sqrt(squares))


class Namespace(Protocol):
    """A library of functions of arrays."""

    def __getattr__(self, name: str) -> Callable[..., FloatArray]: ...


def namespace(array: Any) -> Namespace:
    """Return the array's own library (NumPy at the gate, JAX in the simulator), by the array API standard."""
    library: Namespace = array.__array_namespace__()
    return library
