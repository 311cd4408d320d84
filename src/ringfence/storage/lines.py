"""A file of lines that only grows, and that a crash can at most tear at its end."""

import os
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.storage.files import lock_alone, make_folder, sync
from ringfence.storage.stored_file import Kind, OpenFile


class Lines(OpenFile):
    """A file of lines, open at its end for this process alone; the system lets go of it however the process ends."""

    def __init__(self, path: Path, kind: Kind) -> None:
        """Open a file of lines for this process alone; make it if it does not exist."""
        self.path = path
        self._kind = kind
        try:
            make_folder(path.parent)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            alone = lock_alone(self._file)
        except OSError as problem:
            self.close()
            raise kind.unwritable(
                f"{path} cannot be opened ({problem.strerror}): name a place that this user may write to."
            ) from None
        if not alone:
            self.close()
            raise kind.busy(f"Another process is writing to {path}: wait for it, end it, or name another place.")

    def recover(self, end: int, header: bytes) -> None:
        """Cut off lines after `end`, where a crash tore the file; if that is everything, begin with the header."""
        try:
            if end < os.fstat(self._file).st_size:
                os.ftruncate(self._file, end)
            if end:
                return
            self.append(header)
            sync(self.path.parent)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def append(self, lines: bytes, *, sync: bool = True) -> None:
        """Add lines to the file; synced, they and all before them are on the disk when this returns."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if sync:
                os.fsync(self._file)
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _unwritable(self, problem: OSError) -> RingfenceError:
        """Return the error that the file of lines could not be written."""
        return self._kind.unwritable(
            f"The {self._kind.name} {self.path} could not be written ({problem.strerror}). Make room or correct the "
            "folder's permissions, then run the same command again: it continues from what was written."
        )
