"""Machines of their own, as far as one kernel gives them: own network, own users, own state; as root.

A machine is a network namespace with a cable to a switch, which is a namespace too. Nothing is added to the network of
the machine that runs the tests, and only addresses inside of the namespaces are ever contacted.
"""

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ringfence

PYTHON = [Path(sys.base_prefix), Path(sys.prefix), Path(ringfence.__file__).parents[1]]


def run(*command: str | Path) -> str:
    """Run a command of the system's to its end."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stderr}"
    return done.stdout


def prelude(disk: Path, hosts: Path | None = None) -> str:
    """Return what a shell in a mount namespace of its own does first.

    /var/lib becomes the machine's own, and this Python passable for all users, also if it lies in root's home.
    """
    (disk / "var-lib").mkdir(exist_ok=True)
    lines = ["set -e", "mount --make-rprivate /", f"mount --bind {shlex.quote(str(disk / 'var-lib'))} /var/lib"]
    if hosts is not None:
        lines.append(f"mount --bind {shlex.quote(str(hosts))} /etc/hosts")
    closed = {gate for path in PYTHON for gate in path.parents if not os.stat(gate).st_mode & stat.S_IXOTH}
    for gate in sorted(closed):
        behind = [path for path in PYTHON if path.is_relative_to(gate)]
        lines += [f"exec {number}< {shlex.quote(str(path))}" for number, path in enumerate(behind, 10)]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(gate))}")
        for number, path in enumerate(behind, 10):
            place = shlex.quote(str(path))
            lines += [f"mkdir -p {place}", f"mount --bind /proc/self/fd/{number} {place}", f"exec {number}<&-"]
    return "\n".join(lines)


@dataclass(frozen=True)
class Machine:
    """One machine: its disk, and its network if that is not the tests' own."""

    disk: Path
    network: str | None = None
    hosts: Path | None = None

    def program(self, user: str, group: str | None = None) -> list[str]:
        """Return what, before a command's arguments, runs `ringfence` here as this user."""
        groups = "--init-groups" if group is None else f"--groups={group}"
        state = f"/var/lib/ringfence-{user}"
        script = "\n".join([
            prelude(self.disk, self.hosts),
            f"install -d -o {user} -m 700 {state}",
            f"export XDG_STATE_HOME={state} HOME={state} PYTHONDONTWRITEBYTECODE=1",
            f"exec setpriv --reuid={user} --regid={user} {groups} --bounding-set=-all --inh-caps=-all --no-new-privs "
            f'{shlex.quote(sys.executable)} -m ringfence "$@"',
        ])  # fmt: skip
        enter = [] if self.network is None else ["ip", "netns", "exec", self.network]
        return [*enter, "unshare", "--mount", "bash", "-c", script, "ringfence"]


class Switch:
    """A switch with a cable to every machine; cables can be slow and lossy, and be pulled out."""

    def __init__(self, names: Sequence[str]) -> None:
        self._mark = f"rf{os.getpid()}"
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}

    def namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def connect(self) -> None:
        switch = self.namespace("switch")
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for name, address in self.addresses.items():
            machine = self.namespace(name)
            run("ip", "netns", "add", machine)
            run("ip", "-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", machine)
            run("ip", "-n", switch, "link", "set", name, "master", "bridge", "up")
            run("ip", "-n", machine, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run("ip", "-n", machine, "link", "set", device, "up")

    def worsen(self, name: str, *how: str) -> None:
        """Make what comes to and from a machine slow and lossy, as `tc netem` says it."""
        for place, device in ((self.namespace("switch"), name), (self.namespace(name), "eth0")):
            run("tc", "-n", place, "qdisc", "replace", "dev", device, "root", "netem", *how)

    def part(self, name: str) -> None:
        """Pull a machine's cable out."""
        run("ip", "-n", self.namespace("switch"), "link", "set", name, "down")

    def rejoin(self, name: str) -> None:
        run("ip", "-n", self.namespace("switch"), "link", "set", name, "up")

    def lost(self, name: str) -> int:
        """Return how many packets were dropped on the way to a machine."""
        shown = run("tc", "-n", self.namespace("switch"), "-s", "qdisc", "show", "dev", name)
        return int(shown.split("dropped ")[1].split(",")[0])

    def remove(self) -> None:
        for name in (*self.addresses, "switch"):
            subprocess.run(["ip", "netns", "delete", self.namespace(name)], capture_output=True, check=False)


@contextmanager
def switched(folder: Path, names: Sequence[str]) -> Iterator[tuple[Switch, dict[str, Machine]]]:
    """Bring machines of these names up, which know each other by them; they are gone afterwards, whatever happens."""
    assert os.geteuid() == 0, "machines of their own need root: run these tests as root"
    switch = Switch(names)
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in switch.addresses.items()))
    machines = {}
    try:
        switch.connect()
        for name in names:
            (folder / name).mkdir(mode=0o755)
            machines[name] = Machine(folder / name, switch.namespace(name), hosts)
        yield switch, machines
    finally:
        switch.remove()
