"""Cyclic time: hours of a day, days of a year, directions, which begin again where they end."""

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ringfence.protocol.arrays import FloatArray
from ringfence.protocol.columns import Only, Scaled
from ringfence.protocol.maps.base import Curve


class Cyclic(Curve):
    """Cosine and sine of a number that begins again after each `period`, in the column's own units.

    `harmonics` more of them go two, three and more times around, for curves with more than one peak. All are divided by
    √harmonics, so that their norm is 1 at every number. They take the place of the column's own feature, unless it is
    to be kept beside them (`keep`), as a trend beside a season.
    """

    later_fields: ClassVar[frozenset[str]] = frozenset({"keep"})

    type: Literal["cyclic"] = "cyclic"
    period: float = Field(gt=0, le=1e18)
    harmonics: int = Field(default=1, ge=1, le=1000)
    keep: Only = None

    @property
    def keeps(self) -> bool:
        """Whether the schema says so."""
        return bool(self.keep)

    def width(self, column: Scaled) -> int:
        """Return two for each harmonic."""
        del column
        return 2 * self.harmonics

    def bound(self, column: Scaled) -> float:
        """Return 1: cos² + sin² of each harmonic."""
        del column
        return 1.0

    def names(self, name: str, column: Scaled) -> list[str]:
        """Return whether it is a cosine or a sine, and of which period."""
        del column
        periods = [f"{self.period:g}" + ("" if time == 1 else f"/{time}") for time in range(1, self.harmonics + 1)]
        return [f"{name} {wave} {period}" for period in periods for wave in ("cos", "sin")]

    def values(self, numbers: FloatArray, column: Scaled) -> FloatArray:
        """Return cosine and sine of every harmonic."""
        del column
        turns = np.remainder(numbers, self.period)[:, None] * (np.arange(1, self.harmonics + 1) / self.period)
        angles = 2.0 * math.pi * turns
        waves = np.stack([np.cos(angles), np.sin(angles)], axis=2) / math.sqrt(self.harmonics)
        return waves.reshape(len(numbers), 2 * self.harmonics)

    @property
    def words(self) -> str:
        """Name the columns and the period."""
        times = "" if self.harmonics == 1 else f" and {self.harmonics} harmonics"
        return f"cosines and sines of period {self.period:g}{times} ({', '.join(self.columns)})"
