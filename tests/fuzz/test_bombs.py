"""Inputs of two megabytes at most cannot make any parser use much memory or time."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_small_input_makes_a_parser_use_much_memory_or_time() -> None:
    """The limits are the operating system's, on a process of its own: see `tests.fuzz.limited`."""
    command = [sys.executable, "-m", "tests.fuzz.limited"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    *_, last = ended.stdout.splitlines() or [""]
    assert (ended.returncode, last) == (0, "done"), f"{last}\n{ended.stderr[-3000:]}"
