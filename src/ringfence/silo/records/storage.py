"""Where a silo's encoded records are kept, and how precisely: what its operator sets in silo.toml.

A table that is larger than memory is kept in files without a name, in the silo's own folder: nobody else can open them,
and the system removes them when the process ends, however it ends. Arrays in them are read through once per round.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.silo.exact_sums import DOUBLE, SINGLE, Precision


@dataclass(frozen=True)
class Keeping:
    """How precisely records are kept, and in which folder's files; without a folder, in memory."""

    precision: Precision = DOUBLE
    folder: Path | None = None

    def empty(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Return room for an array."""
        if self.folder is None:
            return np.empty(shape, dtype)
        with self.opened(self.folder) as file:
            return self.mapped(file, shape, dtype)

    def rooms(self, columns: int, rows: int | None) -> list[NDArray[Any] | None]:
        """Return room for columns of that many numbers, next to each other, in large pages, which are faster to get."""
        if rows is None or self.folder is not None:
            return [None] * columns
        return list(np.empty((columns, rows), self.precision.dtype))

    def opened(self, folder: Path) -> IO[bytes]:
        """Return a file without a name, where the file system can have such."""
        try:
            return tempfile.TemporaryFile(dir=folder)
        except OSError as problem:
            raise self._no_room(problem, 0) from None

    def mapped(self, file: IO[bytes], shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Return a file, made as long as it has to be, as an array."""
        size = max(1, math.prod(shape)) * np.dtype(dtype).itemsize
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is found here, and not by a signal later
            pages = mmap.mmap(file.fileno(), size)
        except OSError as problem:
            raise self._no_room(problem, size) from None
        pages.madvise(mmap.MADV_SEQUENTIAL)
        return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)

    def _no_room(self, problem: OSError, size: int) -> RecordsError:
        return RecordsError(
            f"The records cannot be kept in {self.folder} ({problem.strerror}): {size / 1e6:,.0f} MB are needed "
            "there. Make room, or keep them in memory."
        )


IN_MEMORY = Keeping()


class Growing:
    """An array that grows at its end, where records are kept; numbers are in the precision of `keeping`.

    In memory it is moved, and not copied, where the system can do that.
    """

    def __init__(self, keeping: Keeping = IN_MEMORY, room: NDArray[Any] | None = None) -> None:
        """Begin without rows, in the given room if there is any."""
        self._keeping = keeping
        self._held = room
        self._file: IO[bytes] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: NDArray[Any]) -> None:
        """Put rows at the end, all of one width and type."""
        count, held = self._count + len(rows), self._held
        if held is None:
            is_number = np.issubdtype(rows.dtype, np.floating)
            held = self._reserve(rows.shape, self._keeping.precision.dtype if is_number else rows.dtype)
        elif count > len(held):
            held = self._reserve((max(count, len(held) * 9 // 8), *held.shape[1:]), held.dtype)
        held[self._count : count] = rows
        self._count = count

    def fill(self, count: int) -> None:
        """Put False at the end, until there are that many rows."""
        if count > self._count:
            self.add(np.zeros(count - self._count, dtype=bool))

    def array(self) -> NDArray[Any]:
        """Return the array; nothing is added any more."""
        held = np.zeros(0) if self._held is None else self._held
        if self._file is not None:
            self._file.close()
        elif held.base is None and len(held) > self._count:
            held.resize((self._count, *held.shape[1:]), refcheck=False)
        return held[: self._count]

    def _reserve(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        if self._keeping.folder is not None:
            self._file = self._file or self._keeping.opened(self._keeping.folder)
            self._held = self._keeping.mapped(self._file, shape, dtype)
        elif self._held is not None and self._held.base is None:
            self._held.resize(shape, refcheck=False)
        else:
            before, self._held = self._held, np.empty(shape, dtype)
            if before is not None:
                self._held[: self._count] = before[: self._count]
        return self._held


PRECISIONS = {"double": DOUBLE, "single": SINGLE}
"""As silo.toml names them."""
