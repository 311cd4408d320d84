"""`ringfence doctor`: looks at a machine and at folders of ours, and says what is wrong and what to do.

One function for each check, all in one table, `CHECKS`: a new check is a function and a line there. A check looks and
changes nothing; it shows no record's value, and no key.
"""

import importlib.metadata
import operator
import os
import pwd
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ringfence.errors import RingfenceError

if TYPE_CHECKING:
    from ringfence.silo.folder import SiloFolder

PlaceKind: TypeAlias = Literal["machine", "silo", "shuffler", "kit"]

_ROOM = 256 * 2**20
_FILES = 1000
_AHEAD = 300.0  # seconds by which clocks of one machine's file systems may differ
_SPECIFIER = re.compile(r"(>=|<|==)([0-9.]+)")


@dataclass(frozen=True)
class Diagnosis:
    """Result of one check: whether all is well, and a sentence with what is wrong and what to do."""

    check: str
    place: str
    well: bool
    says: str


class FaultError(RingfenceError):
    """A check failed; the message says why, and what to do."""


def examine(paths: list[Path]) -> list[Diagnosis]:
    """Run the doctor's checks of the machine, and of every folder given."""
    places: list[tuple[PlaceKind, Path]] = [("machine", Path("/")), *((_kind(path), path.absolute()) for path in paths)]
    return [_look(name, check, kind, path) for kind, path in places for name, kinds, check in CHECKS if kind in kinds]


def _kind(path: Path) -> PlaceKind:
    """Tell the doctor whether a folder is a silo's, a shuffler's or a startup kit."""
    signs: dict[PlaceKind, str] = {"silo": "silo.toml", "shuffler": "shuffler.key", "kit": "startup"}
    try:
        return next(kind for kind, sign in signs.items() if os.path.lexists(path / sign))
    except (StopIteration, OSError):
        raise RingfenceError(
            f"{path} is not a folder of Ringfence that you may read: name a silo's folder, a shuffler's, or a startup "
            "kit."
        ) from None


def _look(name: str, check: "Check", kind: PlaceKind, path: Path) -> Diagnosis:
    """Run one check of the doctor and return its diagnosis."""
    where = "this machine" if kind == "machine" else str(path)
    try:
        return Diagnosis(name, where, True, check(path))
    except RingfenceError as wrong:
        return Diagnosis(name, where, False, str(wrong))
    except ImportError as missing:
        return Diagnosis(name, where, False, f'{missing.name} is not installed: pip install "ringfence[deployment]".')
    except OSError as problem:
        return Diagnosis(name, where, False, f"{problem.filename} cannot be read: {problem.strerror}.")


# -- the machine --


def _python(_: Path) -> str:
    """Return Python's version for the doctor; with one that is too old, this module cannot be imported."""
    return f"Python {'.'.join(map(str, sys.version_info[:3]))}"


def _dependencies(_: Path) -> str:
    """Check, for the doctor, the versions of dependencies; an extra counts if all its packages are installed."""
    extras: dict[str, list[tuple[str, str]]] = {}
    for line in importlib.metadata.requires("ringfence") or []:
        requirement, _semicolon, marker = line.partition(";")
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        extras.setdefault(marker.strip(), []).append((name, requirement.strip()))
    needed = dict.fromkeys(extras.pop("", []))
    for packages in extras.values():
        if all(_version(name) for name, _requirement in packages):
            needed |= dict.fromkeys(packages)
    faults = [
        f"{requirement} is needed, but {_version(name) or 'none'} is installed"
        for name, requirement in needed
        if not _meets(_version(name), requirement)
    ]
    if faults:
        raise FaultError(f"{'; '.join(faults)}. Reinstall Ringfence in this environment: pip install --upgrade.")
    return f"ringfence {importlib.metadata.version('ringfence')}, {len(needed)} packages as required"


def _version(name: str) -> str:
    """Return the version of an installed package, for the doctor, or an empty text."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _meets(installed: str, requirement: str) -> bool:
    """Tell the doctor whether an installed version, if there is one, meets all bounds of a requirement."""
    signs = {">=": operator.ge, "<": operator.lt, "==": operator.eq}
    bounds = _SPECIFIER.findall(requirement)
    return bool(installed) and all(signs[sign](_numbers(installed), _numbers(bound)) for sign, bound in bounds)


def _numbers(version: str) -> list[int]:
    """Return the first four numbers of a version, for the doctor to compare."""
    return [*map(int, re.findall(r"\d+", version)[:4]), 0, 0, 0, 0][:4]


def _state(_: Path) -> str:
    """Check, for the doctor, that the state folder is closed to other users."""
    from ringfence.storage.files import state_folder

    folder = state_folder()
    _require_closed(folder, 0o700)
    return f"state in {folder}"


# -- any folder --


def _owner(path: Path) -> str:
    """Check, for the doctor, that a folder's owner exists and is not root."""
    owner = path.stat().st_uid
    if owner == 0:
        raise FaultError(
            "It belongs to root, so its process would run as root: give it to a user of its own (chown -R)."
        )
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        raise FaultError(f"It belongs to the unknown user {owner}: give it to an existing one (chown -R).") from None
    if os.geteuid() != owner:
        raise FaultError(f"It belongs to '{name}', whose state applies: runuser -u {name} -- ringfence doctor {path}.")
    return f"user '{name}'"


def _room(path: Path) -> str:
    """Check, for the doctor, that the disk has space and files left."""
    free = shutil.disk_usage(path).free
    files = os.statvfs(path)
    if free < _ROOM or (files.f_files and files.f_favail < _FILES):
        raise FaultError(
            f"The disk has {free // 2**20} MB and {files.f_favail} files left. Without a ledger that can be written, a "
            "silo answers nothing: free some space."
        )
    return f"{free // 2**20} MB free"


def _clock(path: Path) -> str:
    """Check, for the doctor, that the clock was not set back: nothing here was written in the future."""
    newest = max((file.stat().st_mtime for file in path.iterdir()), default=0.0)
    written = datetime.fromtimestamp(newest, UTC).isoformat(timespec="minutes")
    _require_past(newest, f"a file here was written at {written}")
    return f"it is {datetime.now(UTC).isoformat(timespec='minutes')}"


def _require_past(seconds: float, finding: str) -> None:
    """Raise the doctor's FaultError if a time in seconds since 1970 lies in the future."""
    if seconds > time.time() + _AHEAD:
        raise FaultError(f"The clock is slow: {finding}. Set the clock (timedatectl set-ntp true).")


# -- a silo's folder --


def _silo_folder(path: Path) -> "SiloFolder":
    """Open a silo's folder for the doctor."""
    from ringfence.silo.folder import SiloFolder

    return SiloFolder.open(path)


def _silo_permissions(path: Path) -> str:
    """Check, for the doctor, that a silo's files are closed to other users."""
    folder = _silo_folder(path)
    group = folder.settings.courier_group
    _require_closed(path, 0o700 if group is None else 0o710)
    shared = {folder.token_path.name, "courier.toml", folder.socket_path.name}
    for file in _files(path):
        _require_closed(file, 0o660 if group is not None and file.name in shared else 0o600)
    data = Path(folder.settings.data_file)
    found = data.stat()
    if found.st_mode & stat.S_IROTH:
        raise FaultError(f"Every user of this machine can read the records: chmod 600 {data}.")
    if group is not None and found.st_mode & stat.S_IRGRP and found.st_gid == _group(group):
        raise FaultError(f"The couriers' group '{group}' can read the records: chgrp or chmod 600 {data}.")
    return "closed to others"


def _couriers(path: Path) -> str:
    """Check, for the doctor, that the silo's group of couriers exists."""
    group = _silo_folder(path).settings.courier_group
    if group is None:
        return "no courier of another user"
    _group(group)
    return f"couriers belong to group '{group}'"


def _group(name: str) -> int:
    """Return a group's number for the doctor; FaultError if there is no such group."""
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        hint = f"create it (groupadd {name}) and add the courier's user"
        raise FaultError(f"There is no group '{name}': {hint}.") from None


def _ledger(path: Path) -> str:
    """Check, for the doctor, that a silo's ledger is intact and not from the future."""
    with _silo_folder(path).ledger() as ledger:
        entries = ledger.entries()
    last = entries[-1].time
    _require_past(datetime.fromisoformat(last).timestamp(), f"the last entry is from {last}")
    return f"{len(entries)} entries, hash chain intact"


def _signing_key(path: Path) -> str:
    """Check, for the doctor, that a silo's signing key can be read."""
    _silo_folder(path).key()
    return "there"


def _records(path: Path) -> str:
    """Check, for the doctor, that a silo's records fit their schema and ledger."""
    from ringfence.silo.records.repeated_persons import PersonAdvice

    folder = _silo_folder(path)
    persons = PersonAdvice(folder.columns())
    with folder.ledger() as ledger:
        records = folder.current_records(ledger, persons.add)  # asks the registry, as serving does
    found = "they fit the schema and match the ledger"
    if records.were_moved:
        found = "they fit the schema, but their order has changed: one-pass and phased plans are not answered"
    return "; ".join([found, *persons.sentences()])


# -- a shuffler's folder --


def _shuffler_permissions(path: Path) -> str:
    """Check, for the doctor, that a shuffler's files are closed to other users."""
    _require_closed(path, 0o700)
    for file in _files(path):
        _require_closed(file, 0o600)
    return "closed to others"


def _shuffler_store(path: Path) -> str:
    """Check, for the doctor, that a shuffler's database is intact and not older than its witness."""
    from ringfence.shuffler.store import Store
    from ringfence.shuffler.witness import Witness

    with Store(path) as store, store.transaction():
        Witness(store).check()
        return f"{store.count_plans()} plans, {store.decisions()} decisions"


# -- a startup kit --


def _kit_permissions(path: Path) -> str:
    """Check, for the doctor, that the keys of a startup kit are closed to other users."""
    for file in _files(path / "startup"):
        if file.suffix == ".key":
            _require_closed(file, 0o600)
    return "its keys are closed to others"


def _certificates(path: Path) -> str:
    """Check, for the doctor, that a startup kit's certificates do not expire soon."""
    from ringfence.deployment.nvflare.kit import check_kit_dates

    soon: list[str] = []
    end = check_kit_dates(path, "server" if (path / "startup" / "server.crt").exists() else "client", soon.append)
    if soon:
        raise FaultError(soon[0])
    return f"the first expires {end:%Y-%m-%d}"


def _policy(path: Path) -> str:
    """Check, for the doctor, that a silo's startup kit lets only our courier run."""
    from ringfence.deployment.nvflare.policy import check_policy, courier_file

    if not (path / "startup" / "fed_client.json").is_file():
        return "not a silo's kit, so it needs none"
    check_policy(path, courier_file(path).parent)
    return "only our courier may run"


def _files(path: Path) -> Iterator[Path]:
    """Return the files in a folder that the doctor examines."""
    return (file for file in sorted(path.iterdir()) if not file.is_dir())


def _require_closed(path: Path, most: int) -> None:
    """Raise the doctor's FaultError if a file is open to more users than its mode should allow."""
    if stat.S_IMODE(path.stat().st_mode) & ~most:
        raise FaultError(f"{path} is open to other users: chmod {most:o} {path}.")


Check: TypeAlias = Callable[[Path], str]

_FOLDERS: tuple[PlaceKind, ...] = ("silo", "shuffler", "kit")
CHECKS: tuple[tuple[str, tuple[PlaceKind, ...], Check], ...] = (
    ("python", ("machine",), _python),
    ("dependencies", ("machine",), _dependencies),
    ("state", ("machine",), _state),
    ("user", _FOLDERS, _owner),
    ("disk", _FOLDERS, _room),
    ("clock", _FOLDERS, _clock),
    ("permissions", ("silo",), _silo_permissions),
    ("couriers", ("silo",), _couriers),
    ("ledger", ("silo",), _ledger),
    ("signing key", ("silo",), _signing_key),
    ("records", ("silo",), _records),
    ("permissions", ("shuffler",), _shuffler_permissions),
    ("store", ("shuffler",), _shuffler_store),
    ("permissions", ("kit",), _kit_permissions),
    ("certificates", ("kit",), _certificates),
    ("policy", ("kit",), _policy),
)
"""Name of each check, the kinds of place it applies to, and its function."""
