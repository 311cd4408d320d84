"""Python processes whose imports are done: python -m tests.nursery SOCKET forks them from one that has imported all.

To begin, a command of ours takes most of a second for its imports, and the tests begin hundreds. What comes after the
imports is the same, and so is what such a process shares with others: nothing. Where the beginning itself is tested
(what is imported, how much memory it takes), start it by `subprocess`.
"""

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import os
import pickle
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "ringfence.cli.main", "ringfence.cli.server", "ringfence.cli.silo", "ringfence.deployment.door",
    "ringfence.model.model", "ringfence.evidence.report.run_report", "ringfence.server.channels.own_noise",
    "ringfence.server.conduct",
    "ringfence.server.queries.gradient", "ringfence.shuffler.service", "ringfence.silo.agent",
    "ringfence.silo.channels.own_noise", "ringfence.silo.operator.decisions", "ringfence.silo.operator.service",
    "ringfence.silo.queries.gradient", "ringfence.sources.arrow_files", "ringfence.transport.exchange",
    "anyio._backends._asyncio", "argparse", "rich.table", "uvicorn.loops.asyncio", "uvicorn.protocols.http.h11_impl",
    "pandas",  # Arrow imports it, where it is installed, with the first column that becomes an array
)  # fmt: skip
_SUBREAPER = 36  # of prctl
_LARGEST = 2**20
_one_at_a_time = threading.Lock()


class Python(subprocess.Popen[Any]):
    """`subprocess.Popen` of a command `[sys.executable, "-m", MODULE, ...]`, or "-c" and a program."""

    def _execute_child(self, *given: Any) -> None:
        """Have the command forked; this process becomes its parent when the one between them has ended."""
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        pipes = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        standard = [number if fd == -1 else fd for number, fd in zip(range(3), (pipes[0], *pipes[3::2]), strict=True)]
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        place, passed = str(asked["cwd"] or Path.cwd()), list(asked["pass_fds"])
        request = pickle.dumps((list(map(str, asked["args"][1:])), place, environment, [0, 1, 2, *passed]))
        with _one_at_a_time:
            nursery, kernel = _nursery(os.getpid()), ctypes.CDLL(None)
            kernel.prctl(_SUBREAPER, 1)
            try:
                socket.send_fds(nursery, [request], [*standard, *passed])
                self.pid = int(nursery.recv(100))
            finally:
                kernel.prctl(_SUBREAPER, 0)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def completed(
    command: Sequence[str], *, check: bool = False, timeout: float | None = None, **options: Any
) -> "subprocess.CompletedProcess[Any]":
    """Do as `subprocess.run` with `capture_output=True`."""
    with Python(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        assert done.returncode == 0, done.stderr
    return done


@functools.cache
def _nursery(parent: int) -> socket.socket:
    """Return the way to this process's nursery, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.nursery", str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(place: socket.socket) -> tuple[str, str] | None:
    """Fork a process for every request; return, in each of them, its "-m" or "-c" and what follows; None at the end."""
    while True:
        request, fds, _, _ = socket.recv_fds(place, _LARGEST, 64)
        if not request:
            return None
        text, telling = os.pipe()
        between = os.fork()
        if between == 0:
            born = os.fork()
            if born == 0:
                place.detach()  # its number may be somebody's among those to come
                return _become(fds, *pickle.loads(request))
            os.write(telling, str(born).encode())
            os._exit(0)
        os.waitpid(between, 0)  # only now is it the asking process's child
        place.send(os.read(text, 100))
        for fd in (text, telling, *fds):
            os.close(fd)


def _become(
    fds: list[int], arguments: list[str], place: str, environment: dict[str, str], numbers: list[int]
) -> tuple[str, str]:
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 500) for fd in fds]
    os.closerange(3, 500)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    sys.path.insert(0, place)
    how, what, *rest = arguments
    sys.argv = [what if how == "-m" else how, *rest]
    if "PYTHONUNBUFFERED" in environment:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    return how, what


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    born = serve(socket.socket(fileno=int(sys.argv[1])))
    if born is not None and born[0] == "-m":
        runpy.run_module(born[1], run_name="__main__", alter_sys=True)
    elif born is not None:
        exec(born[1], {"__name__": "__main__"})
