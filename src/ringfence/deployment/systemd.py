"""Units for systemd: each of our processes as a service that may do what it needs and nothing else.

A service runs as the owner of its folder, sees the system read-only and nobody's home folder, writes its own folders
alone, gains no privilege, leaves no core dump, and is started again when it fails. An agent behind a Unix socket has no
network at all. A courier that is broken into gives access to no records: it must belong to another user than the silo.
"""

import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ringfence.errors import WHY, DeploymentError, OutputError, os_error_as

UNITS = Path("/etc/systemd/system")
_UNIT = Path(__file__).with_name("service.unit")


class Network(Enum):
    """Networks that a service may reach, as settings of its unit."""

    NONE = ("RestrictAddressFamilies=AF_UNIX", "IPAddressDeny=any", "PrivateNetwork=yes")
    THIS_MACHINE = ("RestrictAddressFamilies=AF_UNIX AF_INET", "IPAddressDeny=any", "IPAddressAllow=localhost")
    ALL = ("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",)  # the last: which interfaces there are


@dataclass(frozen=True)
class SystemdService:
    """One of our processes: `ringfence COMMAND` as the owner of `folder`, writing there and in `writes` only.

    `group` is one that it is in beside its user's. `together` names services that exchange temporary files; others have
    their own.
    """

    name: str
    purpose: str
    command: Sequence[str | Path]
    folder: Path
    network: Network
    writes: Sequence[Path] = ()
    reads: Sequence[Path] = ()
    group: str | None = None
    together: str | None = None

    @property
    def file(self) -> str:
        """The file name of the service's systemd unit."""
        return f"{self.name}.service"

    @property
    def user(self) -> str:
        """The user who runs the systemd service: the folder's owner, who must not be root."""
        try:
            owner = pwd.getpwuid(self.folder.stat().st_uid)
        except (OSError, KeyError):
            raise DeploymentError(
                f"{self.folder} does not exist, or its owner has no account on this machine."
            ) from None
        if owner.pw_uid == 0:
            raise DeploymentError(
                f"{self.folder} belongs to root, and our services never run as root. Give it to a user of its own: "
                f"`useradd --system {self.name}`, `chown -R {self.name}: {self.folder}`."
            )
        return owner.pw_name

    def state(self) -> Path:
        """Return the service's XDG_STATE_HOME: its user's, so that the operator's own commands have the same."""
        home = Path(pwd.getpwnam(self.user).pw_dir)
        if home.is_dir() and home.owner() == self.user:
            return home / ".local" / "state"
        return Path("/var/lib") / f"ringfence-{self.user}"

    def unit(self) -> str:
        """Return the text of the service's systemd unit."""
        state = self.state()
        made = state.parent == Path("/var/lib")  # by systemd
        writes = [self.folder, *self.writes, *([] if made else [state / "ringfence"])]
        reads = [*self.reads, Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]]
        group = [f"SupplementaryGroups={self.group}"] if self.group else []
        kept = ["RuntimeDirectoryPreserve=yes"] if self.together else []
        directory = [f"StateDirectory={state.name}", "StateDirectoryMode=0700"] if made else []
        online = "Wants=network-online.target\nAfter=network-online.target\n"
        return _UNIT.read_text(encoding="utf-8").format(
            purpose=self.purpose,
            online=online if self.network is Network.ALL else "",
            user=self.user,
            command=" ".join(_argument(str(word)) for word in (sys.executable, "-m", "ringfence", *self.command)),
            folder=_specifier(str(self.folder)),
            state=_quoted(f"XDG_STATE_HOME={state}"),
            shared=self.together or self.name,
            bound=" ".join(map(_bound, writes)),
            bound_read_only=" ".join(map(_bound, reads)),
            writable=" ".join(_quoted(str(path)) for path in writes),
            more="\n".join([*self.network.value, *group, *directory, *kept]),
        )


def write_units(services: Sequence[SystemdService], folder: Path) -> list[Path]:
    """Write the systemd units into a folder, replacing older ones, and return their files."""
    texts = {folder / service.file: service.unit() for service in services}
    for service in services:
        _make_state(service)
    with os_error_as(
        OutputError,
        f"Cannot write units into {folder} ({WHY}). Run this as root, or write them elsewhere with "
        "--out and copy them.",
    ):
        for file, text in texts.items():
            file.write_text(text)
    return list(texts)


def _make_state(service: SystemdService) -> None:
    """Make the state folder in the user's home, as that user: systemd can bind what is there only."""
    state = service.state() / "ringfence"
    if state.is_relative_to("/var/lib") or state.is_dir():
        return
    command = ["mkdir", "-p", "-m", "700", str(state)]
    if os.geteuid() == 0:
        command = ["runuser", "-u", service.user, "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (no shell)
    if done.returncode:
        raise OutputError(f"'{service.user}' cannot have a state folder: {done.stderr.strip()}.")


def require_different_users(silo: SystemdService, courier: SystemdService) -> None:
    """Refuse a courier that runs as the silo's own user: code that an engine runs there could read the records."""
    if silo.user == courier.user:
        raise DeploymentError(
            f"{courier.folder} and {silo.folder} both belong to '{silo.user}', so the courier could read the records. "
            f"Make a user for it (`useradd --system NAME`), and give it the kit (`chown -R NAME: {courier.folder}`)."
        )


def systemctl_commands(services: Sequence[SystemdService], out: Path) -> list[str]:
    """Return the commands that have systemd start the services, now and with the machine."""
    names = " ".join(service.file for service in services)
    installed = [] if out == UNITS else [f"install -m 644 {shlex.join(str(out / s.file) for s in services)} {UNITS}"]
    return [*installed, "systemctl daemon-reload", f"systemctl enable --now {names}"]


def _specifier(text: str) -> str:
    """Escape percent signs in a systemd unit; DeploymentError for control characters."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise DeploymentError(f"{text!r} contains control characters, which a unit cannot hold: rename it.")
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Write one word of a setting in a systemd unit."""
    escaped = _specifier(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", text) else escaped


def _argument(text: str) -> str:
    """Write one word of a command in a systemd unit, in which a dollar would begin a variable."""
    return _quoted(text).replace("$", "$$")


def _bound(path: Path) -> str:
    """Write a path that a systemd unit binds, with its colons escaped."""
    return _quoted(str(path)).replace(":", "\\:")
