"""Machines of their own, as far as one kernel gives them: own network, own users, own state; as root.

A machine is a network namespace with a cable to a switch, which is a thread of ours. Nothing is added to the network of
the machine that runs the tests, and only addresses inside of the namespaces are ever contacted.
"""

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shlex
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ringfence

_CLONE_NEWNET, _TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x40000000, 0x400454CA, 0x0001, 0x1000
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
            lines += [
                f"mkdir -p {place}",
                f"mount --no-canonicalize --bind /proc/self/fd/{number} {place}",
                f"exec {number}<&-",
            ]
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
    """A switch with a cable to every machine; cables delay and drop packets, and can be pulled out.

    It forwards packets by itself, from and to a TUN device in each machine: the kernels of small machines have no
    `tc netem`. Delays vary, so packets overtake each other.
    """

    def __init__(self, names: Sequence[str], *, delay: tuple[float, float], loss: float) -> None:
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
        self.dropped = dict.fromkeys(names, 0)
        """Packets from each machine that were lost on the way."""
        self.in_vain = dict.fromkeys(names, 0)
        """Packets to or from each machine that came while its cable was out."""
        self._delay, self._loss = delay, loss
        self._mark = f"rf{os.getpid()}"
        self._cables: dict[str, int] = {}
        self._parted: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._forward, daemon=True)

    def namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def connect(self) -> None:
        for name, address in self.addresses.items():
            machine = self.namespace(name)
            run("ip", "netns", "add", machine)
            self._cables[name] = _open_tun(machine)
            run("ip", "-n", machine, "address", "add", f"{address}/24", "dev", "tun0")
            for device in ("lo", "tun0"):
                run("ip", "-n", machine, "link", "set", device, "up")
        self._thread.start()

    def part(self, *names: str) -> None:
        """Pull these machines' cables out."""
        self._parted.update(names)

    def rejoin(self, *names: str) -> None:
        self._parted.difference_update(names)

    def remove(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for cable in self._cables.values():
            os.close(cable)
        for name in self.addresses:
            subprocess.run(["ip", "netns", "delete", self.namespace(name)], capture_output=True, check=False)

    def _forward(self) -> None:
        """Carry packets until the end: each waits its delay, and may be lost."""
        choices = random.Random()
        owners = {cable: name for name, cable in self._cables.items()}
        by_address = {socket.inet_aton(address): name for name, address in self.addresses.items()}
        waiting: list[tuple[float, int, str, bytes]] = []
        numbers = itertools.count()
        while not self._ended.is_set():
            soonest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for cable in select.select(list(owners), [], [], min(0.1, soonest))[0]:
                packet, sender = os.read(cable, 2**16), owners[cable]
                target = by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                if target is None:
                    continue  # IPv6's search for neighbours, of which there are none
                if parted := self._parted & {sender, target}:
                    for name in parted:
                        self.in_vain[name] += 1
                    continue
                if choices.random() < self._loss:
                    self.dropped[sender] += 1
                    continue
                due = time.monotonic() + choices.uniform(*self._delay)
                heapq.heappush(waiting, (due, next(numbers), target, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(waiting)
                if target not in self._parted:
                    os.write(self._cables[target], packet)


def _open_tun(namespace: str) -> int:
    """Make a device in the namespace, of which we hold the other end; it goes when that is closed."""
    library = ctypes.CDLL(None, use_errno=True)

    def enter_and_open() -> int:
        with open(f"/run/netns/{namespace}") as place:
            assert library.setns(place.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        made = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH22x", b"tun0", _IFF_TUN | _IFF_NO_PI))
        return made

    with ThreadPoolExecutor(1) as alone:  # a thread that is in another network, and ends
        return alone.submit(enter_and_open).result()


@contextmanager
def switched(
    folder: Path, names: Sequence[str], *, delay: tuple[float, float], loss: float
) -> Iterator[tuple[Switch, dict[str, Machine]]]:
    """Bring machines of these names up, which know each other by them; they are gone afterwards, whatever happens."""
    assert os.geteuid() == 0, "machines of their own need root: run these tests as root"
    switch = Switch(names, delay=delay, loss=loss)
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
