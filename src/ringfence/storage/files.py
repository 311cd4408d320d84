"""Files that somebody names, and folders that must not forget which files they have."""

import os
from pathlib import Path

from ringfence.errors import RingfenceError


def read_file(path: Path, what: str, error: type[RingfenceError]) -> bytes:
    """Return the bytes of what somebody named; refuse with `error` and one sentence."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"The {what} {path} could not be read: {problem.strerror}.") from None


def sync_folder(path: Path) -> None:
    """Write to the disk which files a folder has, or a loss of power might take a new one's name."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
