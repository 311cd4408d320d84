"""Files that only their owner may read: keys, tokens and settings of a silo, a shuffler or a server."""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.errors import OutputError, RingfenceError
from ringfence.storage.files import read_file, sync

_TOKEN_LENGTH = 32


def write_private(path: Path, content: bytes, *, end: bytes = b"\n") -> None:
    """Write a new file that only its owner may read, synced to the disk; one that exists is never overwritten."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
        opened.write(content + end)
        opened.flush()
        os.fsync(opened.fileno())


def replace_private(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Put a file that only its owner may read in the place of another, whole; unless `synced`, a loss of power may
    undo it."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    if not synced:
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
            opened.write(content)
        unfinished.replace(path)
        return
    write_private(unfinished, content, end=b"")
    unfinished.replace(path)
    sync(path.parent)


def write_token(path: Path) -> None:
    """Write a new secret that clients must show."""
    write_private(path, secrets.token_hex(_TOKEN_LENGTH).encode())


def read_token(path: Path, error: type[RingfenceError]) -> str:
    """Return the secret in a file."""
    token = read_file(path, "token", error).decode("ascii", errors="replace").strip()
    if len(token) < _TOKEN_LENGTH:
        raise error(f"{path} holds no token of {_TOKEN_LENGTH} characters or more; write a random one.")
    return token


def write_key(path: Path, private: bytes) -> None:
    """Write a private key into a new file that only its owner may read; OutputError if that cannot be."""
    try:
        write_private(path, private.hex().encode())
    except OSError as problem:
        raise OutputError(f"{path} cannot be written ({problem.strerror}): name a new file for the key.") from None


def read_key(path: Path, error: type[RingfenceError]) -> bytes:
    """Return the 32 bytes of a private key that stands in a file in hexadecimal."""
    try:
        key = bytes.fromhex(read_file(path, "key", error).decode("ascii", errors="replace").strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise error(f"{path} is not a key of 32 bytes in hexadecimal; restore it.")
    return key


@contextmanager
def served_alone(lock: Path, error: type[RingfenceError], *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file's folder for the one process that serves it."""
    try:
        file = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise error(f"The folder {lock.parent} cannot be served: {problem.strerror}.") from None
    try:
        deadline = time.monotonic() + patience
        while not lock_alone(file):
            if time.monotonic() >= deadline:
                raise error(f"Another process is serving {lock.parent}: stop it first.")
            time.sleep(0.05)
        yield
    finally:
        os.close(file)


def lock_alone(file: int) -> bool:
    """Try to hold an open file for this process alone; the system lets go of it however the process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
