"""Where a silo's encoded records are kept, and in which precision, as its operator sets in silo.toml.

A table larger than memory is kept in unnamed files in the silo's own folder: nobody else can open them, and the system
removes them when the process ends, however it ends. Arrays in them are read once per round.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import RecordsError
from ringfence.silo.records.exact_sums import DOUBLE, SINGLE, Precision


class Unpicklable:
    """Base of what must stay in the silo's process: it can be neither pickled nor copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle or copy records: they stay in the silo's process."""
        raise RecordsError(f"{type(self).__name__} cannot be pickled or copied: they stay in the silo's process.")


@dataclass(frozen=True)
class Keeping:
    """The precision of stored records, and the folder of their files; without a folder, they are in memory."""

    precision: Precision = DOUBLE
    folder: Path | None = None

    def empty(self, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Return an uninitialised array where records are kept."""
        if self.folder is None:
            return np.empty(shape, dtype)
        with self.opened(self.folder) as file:
            return self.mapped(file, shape, dtype)

    def empty_columns(self, columns: int, rows: int | None) -> list[NDArray[Any] | None]:
        """Return uninitialised columns to keep records in, allocated together in large pages; None without length."""
        if rows is None or self.folder is not None:
            return [None] * columns
        return list(np.empty((columns, rows), self.precision.dtype))

    def opened(self, folder: Path) -> IO[bytes]:
        """Return an unnamed file to keep records in, where the file system supports that."""
        try:
            return tempfile.TemporaryFile(dir=folder)
        except OSError as problem:
            raise self._no_room(problem, 0) from None

    def mapped(self, file: IO[bytes], shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """Return a file, extended to the size of the records' array, as an array."""
        size = max(1, math.prod(shape)) * np.dtype(dtype).itemsize
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is found here, and not by a signal later
            pages = mmap.mmap(file.fileno(), size)
        except OSError as problem:
            raise self._no_room(problem, size) from None
        pages.madvise(mmap.MADV_SEQUENTIAL)
        return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)

    def _no_room(self, problem: OSError, size: int) -> RecordsError:
        """Return the error that there is no room for the records in the folder where they are kept."""
        return RecordsError(
            f"The records cannot be kept in {self.folder} ({problem.strerror}): {size / 1e6:,.0f} MB are needed "
            "there. Make room, or keep them in memory."
        )


IN_MEMORY = Keeping()


class GrowingArray:
    """An array that grows at its end, in memory or in a file; numbers are in the precision of `keeping`.

    In memory it is moved rather than copied, if the system can do that.
    """

    def __init__(self, keeping: Keeping = IN_MEMORY, room: NDArray[Any] | None = None) -> None:
        """Begin the array of kept records without rows, in a given array if there is one."""
        self._keeping = keeping
        self._held = room
        self._file: IO[bytes] | None = None
        self._count = 0

    def __len__(self) -> int:
        """Return the number of rows in the growing array of kept records."""
        return self._count

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows to the array of kept records, all of one width and type."""
        count, held = self._count + len(rows), self._held
        if held is None:
            is_number = np.issubdtype(rows.dtype, np.floating)
            held = self._reserve(rows.shape, self._keeping.precision.dtype if is_number else rows.dtype)
        elif count > len(held):
            held = self._reserve((max(count, len(held) * 9 // 8), *held.shape[1:]), held.dtype)
        held[self._count : count] = rows
        self._count = count

    def fill(self, count: int) -> None:
        """Append False to the array of kept records until there are that many rows."""
        if count > self._count:
            self.add(np.zeros(count - self._count, dtype=bool))

    def array(self) -> NDArray[Any]:
        """Return the array of kept records; nothing can be added afterwards."""
        held = np.zeros(0) if self._held is None else self._held
        if self._file is not None:
            self._file.close()
        elif held.base is None and len(held) > self._count:
            held.resize((self._count, *held.shape[1:]), refcheck=False)
        return held[: self._count]

    def _reserve(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Enlarge the array of kept records, in its file or in memory."""
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
"""Precisions by their names in silo.toml."""
