"""Every bomb to every parser, in a process with little memory and time: python -m tests.fuzz.limited

The system ends the process where a parser needs more; nothing here measures.
"""

import resource
import signal

from tests.fuzz import parsers
from tests.fuzz.hostile import bombs, reads_or_refuses

MEMORY = 600 * 2**20
"""Bytes beyond what the interpreter and its modules hold: the longest input is two million bytes, and most parsers
make objects of a few dozen bytes for every byte at worst."""

SECONDS = 30
"""Of the processor, for one parser and one bomb; the slowest takes less than two."""


def held() -> int:
    """Return the address space that is in use, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main() -> None:
    """Read all bombs with all parsers, and say after each pair which it was."""
    hostile = bombs()
    known = {parser.read: name for name, parser in parsers.everything().items()}  # each reader once
    resource.setrlimit(resource.RLIMIT_AS, (held() + MEMORY, resource.RLIM_INFINITY))
    for read, name in known.items():
        for bomb, content in hostile.items():
            print(f"{name}: {bomb}", flush=True)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # SIGVTALRM ends the process
            reads_or_refuses(read, content)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print("done")


if __name__ == "__main__":
    main()
