"""A whole federation as services of a real systemd: hardened as the units say, started again when killed.

systemd is process 1 of namespaces of its own, as root: it sees this machine's files, and none of its processes, network
or services.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ringfence.deployment.door import Door
from ringfence.errors import DoorError
from tests.deployment.agents import model_of, until
from tests.deployment.machines import Machine
from tests.deployment.shuffled import SILOS, Shuffled
from tests.deployment.test_machines import USERS
from tests.processes import ForkingFamily, ringfence

_OUTER = """
set -e
mount --make-rprivate /
mkdir {work}/control
mount -t cgroup2 none {work}/control
mkdir {work}/control/{name}
echo $$ > {work}/control/{name}/cgroup.procs
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --mount-proc --kill-child bash {work}/inner
"""
_INNER = """
set -e
mount --make-rprivate /
ip link set lo up
umount --recursive /sys/fs/cgroup || true
mount -t cgroup2 none /sys/fs/cgroup
mount --bind {disk}/var-lib /var/lib
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd
cp --recursive {work}/units /run/systemd/system
exec env --ignore-environment container=ringfence PATH="$PATH" /lib/systemd/systemd --system --unit=federation.target \
  --log-target=console --show-status=no
"""
_FORGET = """
set -e
mount --make-rprivate /
mount -t cgroup2 none {work}/control
until grep --quiet --line-regexp "populated 0" {work}/control/{name}/cgroup.events; do sleep 0.1; done
find {work}/control/{name} -depth -type d -exec rmdir {{}} +
"""
_DROP_IN = """
[Unit]
DefaultDependencies=no
[Service]
StandardOutput=append:{log}
StandardError=append:{log}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may pass."""
    made = Path(tempfile.mkdtemp(prefix="ringfence-systemd-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def booted(folder: Path, disk: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Boot systemd with the units in the folder `units`; all it started ends with it."""
    places = {"work": folder, "disk": disk, "name": folder.name}
    units = sorted((folder / "units").glob("*.service"))
    for unit in units:
        (folder / "units" / f"{unit.name}.d").mkdir()
        (folder / "units" / f"{unit.name}.d" / "test.conf").write_text(
            _DROP_IN.format(log=folder / "logs" / f"{unit.stem}.log")
        )
    (folder / "logs").mkdir()
    wanted = " ".join(unit.name for unit in units)
    (folder / "units" / "federation.target").write_text(f"[Unit]\nDefaultDependencies=no\nWants={wanted}\n")
    (folder / "inner").write_text(_INNER.format(**places))
    with (folder / "logs" / "systemd.log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "bash", "-c", _OUTER.format(**places)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        subprocess.run(["unshare", "--mount", "bash", "-c", _FORGET.format(**places)], check=True, timeout=60)


def inside(folder: Path, *words: str) -> list[psutil.Process]:
    """Return the processes of services whose command holds the folder's name and these words."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(folder) in command and "-m ringfence" in command and all(word in command for word in words):
            found.append(process)
    return found


def status(process: psutil.Process) -> dict[str, Any]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_federation_of_services_trains_behind_its_hardening_and_survives_a_kill(folder: Path) -> None:
    machine = Machine(folder)
    groups = {name: USERS[f"{name}-courier"] for name in SILOS}
    with ForkingFamily(folder) as family:
        programs = {party: machine.program(user, groups.get(party)) for party, user in USERS.items()}
        parties = Shuffled(folder, family, programs=programs, users=USERS)
        parties.prepare(rounds=8, server="localhost:8002")
        run, units = folder / "server" / "run", folder / "units"
        run.mkdir()
        parties.own("server", run)
        units.mkdir()
        admin = folder / "server" / "admin"
        commands: list[list[str | Path]] = [
            ["shuffler", "service", folder / "shuffler" / "mixer", "--out", units, "--certificate", parties.certificate,
             "--private-key", folder / "shuffler" / "tls.key"],
            ["server", "service", folder / "server" / "engine", "--out", units, "--", parties.plan_file,
             "--folder", run, "--engine", "nvflare", "--kit", admin, "--quorum", "all", "--seconds", "10",
             *parties.through_shuffler("https://127.0.0.1:8790")],
        ]  # fmt: skip
        for name in SILOS:
            commands += [["silo", "service", parties.silo(name), "--kit", parties.kit(name), "--out", units]]
        for command in commands:
            ringfence(*command, check=True)

        def logs() -> str:
            return "".join(f"\n== {log.name}\n{log.read_text()[-1500:]}" for log in sorted((folder / "logs").iterdir()))

        with booted(folder, folder) as systemd:
            until(lambda: (run / "report.html").exists() or systemd.poll() is not None)
            assert (run / "model.json").exists(), logs()
            for words in (("silo serve", "north"), ("silo serve", "south"), ("shuffler serve",)):
                [process] = inside(folder, *words)
                held = status(process)
                assert (held["NoNewPrivs"], held["Seccomp"], int(held["CapBnd"], 16)) == ("1", "2", 0)
                assert held["Uid"].split()[0] != "0"
                limits = Path(f"/proc/{process.pid}/limits").read_text()
                assert "Max core file size        0                    0" in limits
            [agent], [shuffler] = inside(folder, "silo serve", "west"), inside(folder, "shuffler serve")
            interfaces = Path(f"/proc/{agent.pid}/net/dev").read_text().splitlines()[2:]
            assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
            networks = {Path(f"/proc/{process.pid}/ns/net").readlink() for process in (agent, shuffler)}
            assert len(networks) == 2, "the agent has the network of the others"
            agent.kill()
            until(lambda: any(new.pid != agent.pid for new in inside(folder, "silo serve", "west")))
            again = Door(f"unix:{parties.silo('west') / 'door.sock'}", patience=60)
            with pytest.raises(DoorError, match="not a request for a round"):
                again.ask(b"{}")
        parties.check_that_every_round_was_charged_once(run)
        model_of(run)
