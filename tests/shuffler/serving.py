"""A shuffler in a process of its own: python -m tests.shuffler.serving FOLDER SECONDS [CERTIFICATE PRIVATE_KEY]"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from typer.testing import CliRunner

from ringfence.cli import shuffler as commands
from ringfence.deployment.shuffler_client import ShufflerClient
from ringfence.shuffler import service
from ringfence.transport import connections
from ringfence.transport import serving as transport
from tests.callers import Caller
from tests.nursery import Python

ROOT = Path(__file__).parents[2]
RECEIVE_SECONDS = 1.5


class Served:
    """The process, and what it printed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.printed = folder.parent / f"printed-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "tests.shuffler.serving", str(folder), *options]
        with self.printed.open("wb") as printed:
            self.process = Python(
                command, stdout=printed, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )
        deadline = time.monotonic() + 60
        while "\n" not in self.output():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(self.output())
            time.sleep(0.02)

    @property
    def address(self) -> str:
        return self.output().split()[-1]

    @property
    def token(self) -> str:
        return (self.folder / "shuffler.token").read_text().strip()

    def client(self, patience: float = 5.0, certificate: Path | None = None) -> ShufflerClient:
        return ShufflerClient(self.address, self.token, patience=patience, certificate=certificate)

    def caller(self) -> Caller:
        return Caller(urlsplit(self.address).port or 0, self.token, "/deposit")

    def output(self) -> str:
        return self.printed.read_text()


@contextmanager
def serving(folder: Path, seconds: float = 3600.0, *options: str) -> Iterator[Served]:
    """Serve the folder in another process."""
    served = Served(folder, str(seconds), *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()


def run(*arguments: str | Path) -> str:
    """Run `ringfence shuffler ARGUMENTS` in this process, and return what it prints; its error is raised."""
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    if result.exception is not None:
        raise result.exception
    return result.stdout


def main(folder: Path, seconds: float, *tls: Path) -> None:
    """Serve on a free port; be impatient with slow callers."""
    transport.RECEIVE_SECONDS = connections.HEAD_SECONDS = connections.SEND_SECONDS = RECEIVE_SECONDS
    service.serve(
        folder,
        seconds=seconds,
        certificate=tls[0] if tls else None,
        private_key=tls[1] if tls else None,
        ready=lambda where: print(f"is served at {where}"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), *map(Path, sys.argv[3:]))
