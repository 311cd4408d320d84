"""Files that somebody names, and what must be on the disk before anything goes on."""

import os
from pathlib import Path

from ringfence.errors import RingfenceError


def read_file(path: Path, what: str, error: type[RingfenceError]) -> bytes:
    """Return the bytes of what somebody named; refuse with `error` and one sentence."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"The {what} {path} could not be read: {problem.strerror}.") from None


def sync(path: Path) -> None:
    """Write to the disk what a file holds, or which files a folder has: a loss of power might take a new one's name."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
