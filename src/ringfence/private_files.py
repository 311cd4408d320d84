"""Files that only their owner may read: keys, tokens and settings of a silo, a shuffler or a server."""

import fcntl
import os
from pathlib import Path

from ringfence.errors import RingfenceError


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, synced to the disk; one that exists is never overwritten."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
        opened.write(content + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def read_key(path: Path, error: type[RingfenceError]) -> bytes:
    """Return the 32 bytes of a private key that stands in a file in hexadecimal."""
    try:
        return parse_key(path.read_bytes(), path, error)
    except OSError as problem:
        raise error(f"The key {path} could not be read: {problem.strerror}.") from None


def parse_key(content: bytes, path: Path, error: type[RingfenceError]) -> bytes:
    """Return the 32 bytes of a private key from its file's content."""
    try:
        key = bytes.fromhex(content.decode("ascii", errors="replace").strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise error(f"{path} is not a key of 32 bytes in hexadecimal; restore it.")
    return key


def lock_alone(file: int) -> bool:
    """Try to hold an open file for this process alone; the system lets go of it however the process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
