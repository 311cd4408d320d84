"""What people wait for, in one table: python -m benchmarks.waiting [PART ...].

Every part measures a few things and returns a row for each. Commands run in processes of their own, on tables that the
part makes. Processor time, user and system, of a process and its children is what other work on the machine disturbs
least; wall-clock time is measured where a command mostly waits. The least of several tries counts.
"""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One thing that somebody waits for: the least of several measurements, and the most that it should be.

    `beside` is a ratio to a peer or a bare operation of the same run, in words; "" where there is none.
    """

    what: str
    measured: float
    unit: str
    reach: float
    beside: str = ""


@dataclass(frozen=True)
class Cost:
    """What a command took: processor seconds of all its processes, and wall-clock seconds."""

    processor: float
    wall: float


def cost(command: Sequence[object], *, tries: int = 3, folder: Path | None = None, **environment: str) -> Cost:
    """Run a command several times; return the least of its processor and of its wall-clock seconds."""
    costs = [_once(command, folder, environment) for _ in range(tries)]
    return Cost(min(each.processor for each in costs), min(each.wall for each in costs))


def _once(command: Sequence[object], folder: Path | None, environment: dict[str, str]) -> Cost:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(used, time.perf_counter() - begun)


def least(measure: Callable[[], float], tries: int = 3) -> float:
    """Return the least of several measurements."""
    return min(measure() for _ in range(tries))
