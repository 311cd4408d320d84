"""Processes from the nursery are processes of their own: place, surroundings, end, and above all randomness."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.nursery import Python, completed

DRAWS = """
import secrets, numpy as np
from ringfence.silo.randomness import gaussian_noise
print(*gaussian_noise(2, 1.0, -30), secrets.token_hex(), np.random.default_rng().random())
"""


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_no_two_of_them_draw_the_same() -> None:
    drawn = [completed(program(DRAWS), text=True, check=True).stdout.split() for _ in range(3)]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == 3


def test_each_has_the_place_the_surroundings_and_the_arguments_that_it_was_given(tmp_path: Path) -> None:
    tell = "import os, sys; print(os.getcwd(), os.environ['X'], 'HOME' in os.environ, *sys.argv[1:])"
    told = completed([*program(tell), "a", "b"], cwd=tmp_path, env={"X": "1"}, text=True).stdout
    assert told.split() == [str(tmp_path), "1", "False", "a", "b"]


def test_each_ends_with_its_own_status_and_what_it_said_last() -> None:
    ended = completed(program("import sys; print('out'); sys.exit('err')"), text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "out\n", "err\n")
    with Python(program("print(input())"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.communicate(b"hello\n")[0] == b"hello\n"
    with Python(program("input()"), stdin=subprocess.PIPE) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
