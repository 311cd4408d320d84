"""Array types, and the one place that says how NumPy and JAX arrays share the same formulas."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

TINY = 1e-30
"""Stands for a length of 0 in a division; it is a normal number in single precision too."""


def namespace(array: Any) -> Any:
    """Return the array's own library (NumPy at the gate, JAX in the simulator), by the array API standard."""
    return array.__array_namespace__()
