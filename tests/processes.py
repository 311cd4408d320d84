"""Processes that tests start and wait for: for what they say, never for a while."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.deployment.processes import Family
from ringfence.errors import DeploymentError
from tests.nursery import Python, completed

RINGFENCE = [sys.executable, "-m", "ringfence"]


def ringfence(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run `ringfence ARGUMENTS` to its end; `check=True` if it must not fail."""
    return completed([*RINGFENCE, *map(str, arguments)], text=True, **options)


class ForkingFamily(Family):
    """A family whose short commands come from the nursery."""

    def run(self, arguments: Sequence[str | Path]) -> str:
        done = ringfence(*arguments, env=self.environment)
        if done.returncode:
            raise DeploymentError(done.stderr)
        return done.stdout


def start_and_wait(
    command: Sequence[str], printed: Path, *, cwd: Path, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process, and return when it says that it is ready; whatever it prints goes to the file `printed`.

    It is given `--ready FD` and must call `say_ready` with that number. A process that ends before is an error, which
    shows what it printed.
    """
    ready, saying = os.pipe()
    try:
        with printed.open("wb") as output:
            process = Python(
                [*command, "--ready", str(saying)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                pass_fds=[saying],
            )
        os.close(saying)
        if not os.read(ready, 1):  # the other end was closed: nobody can say anything any more
            process.kill()
            process.wait()
            raise AssertionError(printed.read_text())
    finally:
        os.close(ready)
    return process


def say_ready(descriptor: int) -> None:
    """Tell whoever started this process that it is ready."""
    os.write(descriptor, b".")
    os.close(descriptor)
