"""Array types, and the one place that says how NumPy and JAX arrays share the same formulas."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

TINY = 1e-30
"""Stands for a length of 0 in a division; it is a normal number in single precision too."""

NEGLIGIBLE = 2.0**-500
"""Smaller numbers are read as 0: with their products, too small for 53 digits, processors take many times as long."""


def without_negligible(array: FloatArray) -> FloatArray:
    """Return the array with 0 in place of every number below `NEGLIGIBLE`."""
    return np.where(np.abs(array) < NEGLIGIBLE, 0.0, array)


def namespace(array: Any) -> Any:
    """Return the array's own library (NumPy at the gate, JAX in the simulator), by the array API standard."""
    return array.__array_namespace__()
