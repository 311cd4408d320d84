"""A watermark: the last entry of a chain, kept apart from it, so that restoring an older copy of the chain is noticed.

One small file with one record of fixed length, which is written over in place. It is not synced: it follows what was
committed and never runs ahead of it, so a loss of power can leave it behind the chain, by which less is noticed, and
cannot raise a false alarm. Several processes may use one file; one that was stopped while it held the file's lock does
not hold up the others, who go on without writing.
"""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfence.errors import WHY, os_error_as
from ringfence.storage.files import checksum, lock_alone, make_folder, write_whole
from ringfence.storage.stored_file import Kind, OpenFile

_RECORD = re.compile(rb"(ringfence watermark 1 ([0-9]{20}) ([0-9a-f]{64}) )([0-9a-f]{32})\n")
_LONGEST = 512
"""A disk writes that many bytes at once, all or none of them."""
_PATIENCE = 10.0
"""Seconds that a process waits for another, which holds the lock for less than a thousandth of one."""


class Watermark(OpenFile):
    """The number and the hash of the last entry that a chain is known to have had.

    The file is made, for its owner alone, if there is none; then it says what `first` says.
    """

    def __init__(self, path: Path, kind: Kind, first: tuple[int, str]) -> None:
        """Open a chain's watermark; a new one begins at the entry `first`."""
        self.path = path
        self._kind = kind
        with os_error_as(
            kind.unwritable,
            f"The {kind.name} {path} cannot be written ({WHY}). Let this user write to its folder, "
            "or set XDG_STATE_HOME to another one.",
        ):
            make_folder(path.parent, 0o700)
            if not path.exists():
                with suppress(FileExistsError):  # another process was faster
                    write_whole(path, _record(*first))
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def read(self) -> tuple[int, str]:
        """Return the number and hash of the watermark's entry; an error if its file is damaged."""
        found = self._read()
        if found is None:  # somebody may be writing just now
            with suppress(OSError), self._locked():
                found = self._read()
        if found is None:
            raise self._kind.damaged(
                f"The {self._kind.name} {self.path} is damaged, or was edited. {self._kind.if_damaged}"
            )
        return found

    def raise_to(self, number: int, digest: str, holds: Callable[[int, str], bool]) -> None:
        """Raise the watermark to this entry if the chain `holds` the present one, and that is lower.

        If it cannot be written it stays lower, which is noticed when it is opened next.
        """
        with suppress(OSError), self._locked():
            before = self._read()
            if before is not None and before[0] < number and holds(*before):
                os.pwrite(self._file, _record(number, digest), 0)

    def set(self, number: int, digest: str) -> None:
        """Set the watermark to this entry unconditionally."""
        with suppress(OSError), self._locked():
            os.pwrite(self._file, _record(number, digest), 0)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the watermark's file while the block runs; TimeoutError if another process holds it too long."""
        deadline = time.monotonic() + _PATIENCE
        while not lock_alone(self._file):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.001)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _read(self) -> tuple[int, str] | None:
        """Return the number and hash in the watermark's file; None if it is damaged."""
        parts = _RECORD.fullmatch(os.pread(self._file, _LONGEST, 0))
        if parts is None or parts[4] != checksum(parts[1]):
            return None
        return int(parts[2]), parts[3].decode()


def _record(number: int, digest: str) -> bytes:
    """Return the content of a watermark's file: an entry's number and hash, with a checksum."""
    content = f"ringfence watermark 1 {number:020d} {digest} ".encode()
    return content + checksum(content) + b"\n"
