"""A PostgreSQL of Debian's packages, as a private cluster on a Unix socket in a temporary folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    assert found, "these tests need PostgreSQL: run .ci/packages"
    return found[-1].parent


class Cluster:
    """A server that is running."""

    def __init__(self, folder: Path) -> None:
        self._programs, self._folder = _programs(), folder
        # PostgreSQL refuses to run as root; Debian's package brings a user for it.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            self._user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self._run("initdb", "-D", f"{folder}/data", "-U", "clinic", "-A", "trust", "--no-sync", "-E", "UTF8")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -F"
        self._run("pg_ctl", "-D", f"{folder}/data", "-l", f"{folder}/log", "-o", options, "-w", "start")

    @property
    def address(self) -> str:
        return f"postgresql:///postgres?host={self._folder}&user=clinic"

    def execute(self, statements: str) -> None:
        self._run(
            "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", str(self._folder), "-U", "clinic", "postgres", "-c", statements
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, cwd=self._folder, check=False, **streams, **self._user)
        assert done.returncode == 0, done.stdout.decode()


@contextmanager
def running() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path must be short
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
