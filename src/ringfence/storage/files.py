"""Files: reading, syncing, format numbers, private files (keys, tokens), locks, and the user's state folder."""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.errors import WHY, OutputError, RingfenceError, os_error_as

SIZE_LIMIT = 16 * 2**20
"""Bytes of a document, unless its reader allows more."""

LARGE_LIMIT = 2**30
"""Bytes of a model, a certificate or a dossier."""


def read_regular(path: Path, limit: int) -> bytes:
    """Return the bytes of a regular file; OSError if it is none, or has more than `limit` bytes. It never blocks.

    Others may have put it there: a pipe or a device could keep its reader waiting, or never end.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes, more than the {limit} allowed", str(path))
        return file.read(status.st_size)


def read_file(path: Path, what: str, error: type[RingfenceError], limit: int = SIZE_LIMIT) -> bytes:
    """Return the bytes of a regular file; raise `error` with one sentence if it cannot be read, or is too large."""
    with os_error_as(error, f"The {what} {path} could not be read: {WHY}."):
        return read_regular(path, limit)


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's list of files, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it, unless they exist; their names are synced."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=mode, exist_ok=True)
        sync(path.parent)


def checksum(content: bytes) -> bytes:
    """Return the half of a SHA-256, in hexadecimal, by which a damaged line or record of a file is noticed."""
    return hashlib.sha256(content).hexdigest()[:32].encode()


def require_known_format(name: str, stated: object, newest: int, error: type[RingfenceError]) -> None:
    """Raise `error`, with what to install, if a document states a newer format; other values are left to validation."""
    if isinstance(stated, int) and stated > newest:
        number = str(stated) if stated < 10**9 else "of many digits"  # nobody's document, and maybe a very long number
        raise error(
            f"This {name} has format {number}, and this version of Ringfence reads formats up to {newest}: install a "
            "newer version of Ringfence to read it."
        )


_TOKEN_LENGTH = 32


def write_private(path: Path, content: bytes, *, end: bytes = b"\n") -> None:
    """Create a synced file that only its owner may read; an existing file is never overwritten."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
        opened.write(content + end)
        opened.flush()
        os.fsync(opened.fileno())
    sync(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Create a synced private file that a crash leaves whole or not at all; an existing file is never overwritten."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_private(unfinished, content, end=b"")
    try:
        os.link(unfinished, path)
    finally:
        unfinished.unlink()
    sync(path.parent)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file atomically by a synced one that only its owner may read."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_private(unfinished, content, end=b"")
    unfinished.replace(path)
    sync(path.parent)


def write_token(path: Path) -> None:
    """Create a private file with a new secret that clients must present."""
    write_private(path, secrets.token_hex(_TOKEN_LENGTH).encode())


def read_token(path: Path, error: type[RingfenceError]) -> str:
    """Return the secret in a token file."""
    token = read_file(path, "token", error).decode("ascii", errors="replace").strip()
    if len(token) < _TOKEN_LENGTH:
        raise error(f"{path} holds no token of {_TOKEN_LENGTH} characters or more; write a random one.")
    return token


def write_key(path: Path, private: bytes) -> None:
    """Write a private key into a new file that only its owner may read; OutputError if that cannot be."""
    with os_error_as(OutputError, f"{path} cannot be written ({WHY}): name a new file for the key."):
        write_private(path, private.hex().encode())


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
    """Hold a folder's lock file for the one process that serves the folder."""
    with os_error_as(error, f"The folder {lock.parent} cannot be served: {WHY}."):
        file = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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
    """Try to lock an open file for this process; the system releases the lock however the process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def state_folder() -> Path:
    """Return this user's folder for Ringfence's state, closed to other users; it is made if it is not there.

    It is `ringfence` in XDG_STATE_HOME, or in `~/.local/state` where that is not set.
    """
    given = os.environ.get("XDG_STATE_HOME", "")
    # The specification of XDG: a path that is not absolute is to be ignored.
    home = Path(given) if given.startswith("/") else Path.home() / ".local" / "state"
    folder = home / "ringfence"
    make_folder(folder, 0o700)
    return folder
