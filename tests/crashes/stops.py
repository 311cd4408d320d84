"""Stop a process before each of its writes, syncs and changes of names in a folder: Linux's ptrace, from outside.

The process is a real one and carries no hook: the kernel stops it at the entry of a system call, Python's or SQLite's,
before anything of that call is done. What is killed there (SIGKILL) executes nothing more, neither that call nor a
handler nor a buffer's flush, and leaves exactly the files that are there while it is stopped.

A filter (seccomp) stops it at the calls of `_CALLS` alone, so that it is hardly slowed down. `Disk.follow` notices a
change by any other.
"""

import ctypes
import os
import platform
import signal
import struct
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

_MACHINE = ("x86_64", "aarch64").index(platform.machine())
_CALLS = {
    number[_MACHINE]: (does, arguments)
    for number, does, arguments in (
        # Numbers on x86_64 and aarch64; arguments: f is an open file, d a folder that the path p after it begins in.
        ((2, None), "create", "p"), ((257, 56), "create", "dp"),  # open, openat
        ((1, 64), "write", "f"), ((18, 68), "write", "f"), ((20, 66), "write", "f"),  # write, pwrite64, writev
        ((40, 71), "write", "f"), ((326, 285), "write", "__f"),  # sendfile, copy_file_range
        ((77, 46), "truncate", "f"),
        ((74, 82), "sync", "f"), ((75, 83), "sync", "f"),  # fsync, fdatasync
        ((82, None), "rename", "pp"), ((264, 38), "rename", "dpdp"), ((316, 276), "rename", "dpdp"),
        ((86, None), "link", "pp"), ((265, 37), "link", "dpdp"),
        ((87, None), "remove", "p"), ((84, None), "remove", "p"), ((263, 35), "remove", "dp"),  # and rmdir
        ((83, None), "mkdir", "p"), ((258, 34), "mkdir", "dp"),
    )
    if number[_MACHINE] is not None
}  # fmt: skip

_TRACE_ME, _CONTINUE, _SET_OPTIONS, _SYSCALL_INFO = 0, 7, 0x4200, 0x420E
_OPTIONS = 1 << 3 | 1 << 7 | 1 << 20  # threads too; stop where the filter says; no tracee outlives the tracer
_SECCOMP_EVENT = 7
_ANY_THREAD = 0x40000000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_AT_CWD = -100


@dataclass(frozen=True)
class Stop:
    """A call that is about to be made. `path`, and `onto` if the call gives a file another name, are in the folder."""

    does: str
    path: str
    onto: str = ""

    def __str__(self) -> str:
        return f"{self.does} {self.path}{self.onto and f' as {self.onto}'}"


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _require(result: int) -> int:
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return result


def stops(work: Callable[[], None], folder: Path) -> Generator[Stop, None, int]:
    """Do the work in a forked process, and yield before each of its calls that changes or syncs something in `folder`.

    The process goes on when the generator does; closing the generator kills it. Returns the process's exit status: 1 if
    the work raised an exception, which is printed to standard error.
    """
    process = os.fork()
    if process == 0:
        _be_stopped(work)
    try:
        os.waitpid(process, 0)
        _require(_libc.ptrace(_SET_OPTIONS, process, None, _OPTIONS))
        _require(_libc.ptrace(_CONTINUE, process, None, None))
        while True:
            thread, status = os.waitpid(-1, _ANY_THREAD)
            if not os.WIFSTOPPED(status):
                if thread == process:
                    return os.waitstatus_to_exitcode(status)
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == _SECCOMP_EVENT and (stop := _about_to(thread, folder)) is not None:
                yield stop
            passed_on = 0 if event or number in (signal.SIGSTOP, signal.SIGTRAP) else number
            _require(_libc.ptrace(_CONTINUE, thread, None, passed_on))
    except GeneratorExit:
        os.kill(process, signal.SIGKILL)
        while os.waitpid(-1, _ANY_THREAD)[0] != process:
            pass
        raise


def _be_stopped(work: Callable[[], None]) -> None:
    """In the forked process: let the parent trace it, set the filter, and work."""
    status = 1
    try:
        _require(_libc.ptrace(_TRACE_ME, 0, None, None))
        os.kill(os.getpid(), signal.SIGSTOP)
        lines = [struct.pack("HBBI", _LOAD, 0, 0, 0)]  # the call's number
        for number in _CALLS:
            lines += [struct.pack("HBBI", _EQUAL, 0, 1, number), struct.pack("HBBI", _RETURN, 0, 0, _TRACE)]
        code = b"".join([*lines, struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)])
        kept = ctypes.create_string_buffer(code)
        program = _Program(len(code) // 8, ctypes.addressof(kept))
        _require(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _require(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0))
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _about_to(thread: int, folder: Path) -> Stop | None:
    """Return what the stopped thread is about to do in the folder; None if it changes and syncs nothing there."""
    info = ctypes.create_string_buffer(128)
    _require(_libc.ptrace(_SYSCALL_INFO, thread, len(info), ctypes.addressof(info)))
    number, *given = struct.unpack_from("7Q", info.raw, 24)
    does, arguments = _CALLS[number]
    paths, start = [], "cwd"
    for kind, value in zip(arguments, given, strict=False):
        descriptor = ctypes.c_int(value).value
        if kind == "f":
            paths.append(_within(folder, os.readlink(f"/proc/{thread}/fd/{descriptor}")))
        elif kind == "d":
            start = "cwd" if descriptor == _AT_CWD else f"fd/{descriptor}"
        elif kind == "p":
            named = os.path.join(os.readlink(f"/proc/{thread}/{start}"), _text(thread, value))
            paths.append(_within(folder, os.path.normpath(named)))
    if not any(paths):
        return None
    exists = (folder / paths[0]).exists()
    if does == "create":
        flags = given[len(arguments)]
        does = "truncate" if exists else does
        if not flags & (os.O_TRUNC if exists else os.O_CREAT):
            return None
    fails = exists if does == "mkdir" else not exists and does != "create"
    return None if fails else Stop(does, *paths)


def _text(thread: int, address: int) -> str:
    """Return a text in the stopped thread's memory."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        return os.fsdecode(os.pread(memory, 4096, address).split(b"\0")[0])
    finally:
        os.close(memory)


def _within(folder: Path, path: str) -> str:
    """Return the path in the folder, or "." ; empty if it is outside, or a file that has no name any more."""
    if path == str(folder):
        return "."
    inside = path.startswith(f"{folder}/") and not path.endswith(" (deleted)")
    return path[len(str(folder)) + 1 :] if inside else ""
