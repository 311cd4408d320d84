"""Processes that end with the command that started them, grandchildren included, and write no core dump."""

import contextlib
import logging
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

from ringfence.errors import DeploymentError

_MARK = "RINGFENCE_FAMILY"
_RINGFENCE = (sys.executable, "-m", "ringfence")
_PR_SET_DUMPABLE = 4  # linux/prctl.h
_threads_are_abandoned = threading.Event()


class Family:
    """Runs `ringfence` commands in the background; leaving the `with` block leaves none of their processes behind.

    NVFlare puts a job's processes into sessions of their own, where a signal to a group does not reach them. So every
    process of the family inherits a mark in its environment, and whatever carries it is ended. Our own commands hide
    theirs from all but root (`forbid_core_dumps`); those that were started here are known without it.
    """

    def __init__(self, logs: Path) -> None:
        """Begin a family of processes, marked in their environment, with logs in this folder."""
        self._logs = logs
        self.mark = secrets.token_hex(16)
        # A family within a family carries both marks.
        self.environment = {**os.environ, _MARK: f"{os.environ.get(_MARK, '')} {self.mark}".strip()}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Begin a block at whose end all processes of the family end."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes of the family."""
        self.end()

    def start(
        self, name: str, arguments: Sequence[str | Path], program: Sequence[str | Path] = _RINGFENCE
    ) -> subprocess.Popen[bytes]:
        """Start `ringfence ARGUMENTS` in the background; what it prints goes to a file of that name in the logs."""
        with (self._logs / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 (our own command, no shell)
                [*map(str, program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for us, and we end them in order
            )
        self._children[name] = child
        return child

    def run(self, arguments: Sequence[str | Path]) -> str:
        """Run `ringfence ARGUMENTS` to its end and return what it printed; DeploymentError with its complaint."""
        done = subprocess.run(  # noqa: S603 (our own command, no shell)
            [*_RINGFENCE, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environment,
            check=False,
        )
        if done.returncode:
            raise DeploymentError(done.stderr.strip().removeprefix("ringfence: ") or f"{arguments[0]} failed.")
        return done.stdout

    def kill(self, name: str) -> None:
        """End one background command the hard way (SIGKILL), and that process only."""
        self._children[name].kill()
        self._children.pop(name).wait()

    def members(self) -> list[Any]:
        """Return all living processes that the family started or that carry its mark."""
        import psutil

        found = []
        own = {child.pid for child in self._children.values() if child.poll() is None}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                marked = process.pid in own or self.mark in process.environ().get(_MARK, "").split()
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> None:
        """End all processes of the family: politely first, and what is left after three seconds at once."""
        for number, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
            deadline = time.monotonic() + seconds
            for process in (left := self.members()):
                with contextlib.suppress(Exception):
                    process.send_signal(number)
            while left and time.monotonic() < deadline:
                for child in self._children.values():
                    child.poll()
                time.sleep(0.05)
                left = self.members()
            if not left:
                break
        for child in self._children.values():  # one that is just ending carries no mark any more, and is there still
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=10.0)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, as Ctrl-C is, so that `with` blocks clean up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGHUP like Ctrl-C."""
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def abandon_threads() -> None:
    """Let this process end without its threads: for an engine whose library leaves some that may never end."""
    _threads_are_abandoned.set()


def leave(status: int) -> NoReturn:
    """End this process as `sys.exit` does; after `abandon_threads` at once, when what was printed and logged is out.

    Python waits at exit for every worker of a ThreadPoolExecutor, and nothing but `os._exit` ends before that.
    """
    if _threads_are_abandoned.is_set():
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the reader may be gone
                stream.flush()
        os._exit(status)
    sys.exit(status)


def forbid_core_dumps() -> None:
    """Let this process, and those that it starts, write no core dump: it would hold records, exact averages and keys.

    On Linux, moreover, no other process of the same user can attach to this one or read its memory: a courier that runs
    as the agent's user cannot inspect it that way. (This does not cover other programs that it starts.)
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        # The limit alone does not do: the kernel does not ask for it when dumps go to a program (core_pattern begins
        # with a pipe), as they do where systemd-coredump is installed.
        with contextlib.suppress(OSError, AttributeError):  # a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
