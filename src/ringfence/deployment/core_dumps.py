"""A process that crashes writes no core dump: its memory holds records, exact averages and keys."""

import contextlib
import resource
import sys

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def forbid() -> None:
    """Let this process, and those that it starts, write no core dump, whatever limit they were given.

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
