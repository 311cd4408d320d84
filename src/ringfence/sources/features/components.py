"""Principal components of records: fewer numbers, of about equal size, learned from public records.

A linear model under privacy pays for every number it is given, and descends slowly along those that vary little. With
the covariance C = Σ λ_i v_i v_iᵀ of PUBLIC records around their mean m, a record x becomes the numbers

    v_iᵀ(x − m)/λ_i^(power/2)      for the largest λ_i

power 0 leaves them as they are, 1 gives all of them the same public variance. They are divided by the public records'
median norm, so that a schema may clip them to norm 1.
"""

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import scipy  # loads its modules on first use, as a silo's text columns need none of them
from numpy.typing import NDArray

from ringfence.errors import WHY, RecordsError, os_error_as

CHUNK = 4096
"""Records that are turned at once."""


@dataclass(frozen=True, eq=False, repr=False)
class PublicComponents:
    """A frozen linear map, fitted to public records: subtract `centre`, then take products with `axes`, a row each.

    Guarantees: a record's numbers depend on that record and the map alone, and the map on the records it was fitted to
    alone. Nothing checks that those were public: fitted to a silo's records, it would leak them. `digest` is that of
    the file that `save` writes; machines differ in the last digits of a fit, so one party fits, and all load that file.
    """

    of: str
    centre: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def fit(cls, public: NDArray[np.floating], components: int, *, of: str, power: float = 0.9) -> Self:
        """Fit to PUBLIC records, a row each, which the extractor `of` made; a component's largest entry is positive."""
        if public.ndim != 2 or not np.all(np.isfinite(public)):
            raise RecordsError("Components need a table of finite numbers, with one row per public record.")
        if not 1 <= components <= min(len(public) - 1, public.shape[1]):
            raise RecordsError(
                f"{components} components cannot be fitted to {len(public)} public records of {public.shape[1]} "
                f"numbers: ask for 1 to {min(len(public) - 1, public.shape[1])}."
            )
        centre = public.mean(axis=0, dtype=np.float64)
        centred = public - centre
        width = len(centre)
        sizes, turned = scipy.linalg.eigh(
            centred.T @ centred / len(public), subset_by_index=[width - components, width - 1]
        )
        sizes, axes = sizes[::-1], turned[:, ::-1].T
        if sizes[-1] <= np.finfo(np.float32).eps * sizes[0]:
            raise RecordsError(
                f"The public records do not vary in {components} directions, in single precision: ask for fewer "
                "components."
            )
        largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
        axes = axes * (np.sign(largest) / sizes[:, None] ** (power / 2))
        axes /= np.median(np.linalg.norm(centred @ axes.T, axis=1))
        return cls(of, centre.astype(np.float32), axes.astype(np.float32))

    @property
    def name(self) -> str:
        """The name of the extractor with public components, for a schema."""
        return f"{self.of}, {self.length} public components"

    @property
    def length(self) -> int:
        """How many components a record becomes."""
        return len(self.axes)

    @property
    def digest(self) -> str:
        """The SHA-256 of the file of components that `save` writes."""
        return hashlib.sha256(self._content).hexdigest()

    def __call__(self, numbers: NDArray[np.floating]) -> NDArray[np.float32]:
        """Return a row of components for every row of numbers."""
        if numbers.ndim != 2 or numbers.shape[1] != len(self.centre):
            raise RecordsError(
                f"The extractor {self.name} takes rows of {len(self.centre)} numbers, but was given an array of shape "
                f"{numbers.shape}: make them with {self.of} first."
            )
        parts = [
            (numbers[start : start + CHUNK] - self.centre).astype(np.float32) @ self.axes.T
            for start in range(0, len(numbers), CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.length), np.float32)

    def save(self, path: Path) -> None:
        """Write the map as a `.npy` file: a row with the centre, then the axes; the extractor's name is not in it."""
        path.write_bytes(self._content)

    @classmethod
    def load(cls, path: Path, *, of: str) -> Self:
        """Read public components that `save` wrote, for numbers of the extractor `of`."""
        try:
            with os_error_as(RecordsError, f"The file of public components {path} could not be read: {WHY}."):
                rows = np.load(path, allow_pickle=False)
        except (ValueError, EOFError):
            rows = np.zeros(0)
        if rows.ndim != 2 or len(rows) < 2 or rows.dtype != np.float32 or not np.all(np.isfinite(rows)):
            raise RecordsError(f"{path} is not a file of public components: get it again from its author.")
        return cls(of, rows[0], rows[1:])

    @cached_property
    def _content(self) -> bytes:
        """Return the bytes of the `.npy` file of public components."""
        written = io.BytesIO()
        rows = np.concatenate([self.centre[None], self.axes]).astype("<f4")
        np.lib.format.write_array(written, np.ascontiguousarray(rows), version=(1, 0))
        return written.getvalue()
