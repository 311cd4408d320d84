"""What a courier's user must not reach: the silo's data, ledger, keys and settings."""

import contextlib
import os
from pathlib import Path

from ringfence.errors import DeploymentError
from ringfence.storage.toml_files import read_toml

_OPEN = {"courier.toml", "door.token", "door.sock"}
"""Files of a silo's folder that a courier needs."""


def refuse_within_reach(folder: Path, silo: str) -> None:
    """Raise DeploymentError if this process's user can read what the silo keeps to itself."""
    reached = within_reach(folder, silo)
    if reached:
        raise DeploymentError(
            "A courier must not be able to read the silo's private files, but this user can: "
            f"{', '.join(map(str, reached[:4]))}{' and more' if len(reached) > 4 else ''}. Run it as another user "
            "(`docs/operations.md`, the courier as another user). To accept this, run `ringfence silo join FOLDER KIT "
            "--same-user`: the silo's ledger and certificates will then record it."
        )


def within_reach(folder: Path, silo: str) -> list[Path]:
    """Return the silo's files that this process can open: it tries, since modes do not tell the whole story."""
    names = {"silo.toml", "signing.key", f"{silo}.ledger", "operator.token"}
    with contextlib.suppress(OSError):  # a folder that cannot be listed may still be passed
        names |= {entry.name for entry in folder.iterdir() if entry.is_file()}
    candidates = [folder / name for name in sorted(names - _OPEN)]
    try:
        data = read_toml(folder / "silo.toml").get("data_file")
    except (OSError, ValueError):
        data = None
    if isinstance(data, str):
        candidates.append(Path(data))
    reached = [path for path in candidates if _opens(path)]
    return [*reached, folder] if os.access(folder, os.W_OK) else reached


def _opens(path: Path) -> bool:
    """Tell whether the process to be launched can open a silo's file for reading or writing."""
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError:
            continue
        return True
    return False
