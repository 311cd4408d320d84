"""What every algorithm does at the end of a step."""

from collections.abc import Callable
from typing import Any, TypeAlias

from ringfence.protocol.arrays import FloatArray

Step: TypeAlias = Callable[[FloatArray, Any], FloatArray]
"""From a point, and how far a step of length 1 along a penalty's slope would have taken it, into the domain."""
