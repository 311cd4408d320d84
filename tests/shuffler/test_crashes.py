"""Killed at any point, a shuffler loses no deposit that it gave a receipt for, and never makes a second batch."""

import random
import subprocess
import sys
import time
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from ringfence.shuffler.shuffler import Receipt, Shuffler, Waiting
from tests.nursery import Python
from tests.shuffler.crashing_shuffler import IN_DEPOSIT, IN_RELEASE
from tests.shuffler.depositors import Depositors, on_the_disk, set_up

ROOT = Path(__file__).parents[2]


def start(folder: Path, point: str, updates: list[bytes]) -> "subprocess.Popen[bytes]":
    file = folder.with_name("updates")
    file.write_bytes(b"\n".join(updates))
    command = [sys.executable, "-m", "tests.shuffler.crashing_shuffler", str(folder), point, str(file)]
    return Python(command, stdout=subprocess.PIPE, cwd=ROOT)


def make(folder: Path, silos: int) -> tuple[Depositors, dict[str, list[bytes]], dict[str, bytes]]:
    """Set a folder up, and return the silos, their sealed messages and their updates."""
    made = set_up(folder, silos=silos)
    sealed = {name: made.sealed(name) for name in made.names}
    return made, sealed, {name: made.update(name, 0, messages) for name, messages in sealed.items()}


@pytest.mark.parametrize("point", IN_DEPOSIT)
def test_a_shuffler_killed_in_a_deposit_has_it_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "mixer"
    silos, sealed, updates = make(folder, 3)
    first, second, third = updates.values()
    process = start(folder, point, [first, second])
    output, _ = process.communicate()
    assert process.returncode == -9
    assert output.split() == [b"stored"]
    with Shuffler.open(folder, seconds=3600.0) as restarted:
        survived = point == "after-store"
        assert restarted.release(silos.plan.digest(), 0) == Waiting(2 if survived else 1, 2)
        receipts = [restarted.deposit(update) for update in (first, second, third)]
        expected = Receipt.ALREADY_THERE if survived else Receipt.STORED
        assert receipts == [Receipt.ALREADY_THERE, expected, Receipt.STORED]
        batch = restarted.release(silos.plan.digest(), 0)
    assert isinstance(batch, bytes)
    assert Counter(silos.read(batch)[1]) == Counter(chain(*sealed.values()))


@pytest.mark.parametrize("point", IN_RELEASE)
def test_a_shuffler_killed_in_a_release_makes_one_batch_of_all_deposits(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "mixer"
    silos, sealed, updates = make(folder, 3)
    process = start(folder, point, list(updates.values()))
    output, _ = process.communicate()
    assert process.returncode == -9
    assert output.split() == [b"stored"] * 3
    with Shuffler.open(folder) as restarted:
        fixed = restarted.status()["plans"][0]["rounds"][0]["state"] == "released"
        assert fixed == (point == "before-send")
        if fixed:
            left = on_the_disk(folder)
            assert not any(message[:40] in left for message in chain(*sealed.values()))
        batch = restarted.release(silos.plan.digest(), 0)
        assert isinstance(batch, bytes)
        assert restarted.release(silos.plan.digest(), 0) == batch
    document, messages = silos.read(batch)
    assert document.silos == 3
    assert Counter(messages) == Counter(chain(*sealed.values()))


def test_a_shuffler_killed_from_outside_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Each attempt deposits all updates and fetches the batch, and is killed somewhere on the way."""
    folder = tmp_path / "mixer"
    silos, sealed, updates = make(folder, 40)
    receipts, batches = 0, set()
    for _ in range(4):
        process = start(folder, "none", list(updates.values()))
        assert process.stdout is not None
        first = process.stdout.readline()  # it has begun
        time.sleep(random.SystemRandom().uniform(0, 0.06))
        process.kill()
        rest, _ = process.communicate()
        lines = (first + rest).split(b"\n")[:-1]  # what follows the last newline never arrived whole
        receipts = max(receipts, sum(line in (b"stored", b"already-there") for line in lines))
        batches |= {line for line in lines if line.startswith(b"{")}
        with Shuffler.open(folder, seconds=3600.0) as looking:
            [round] = looking.status()["plans"][0]["rounds"]
            assert round["silos"] >= receipts
    with Shuffler.open(folder, seconds=3600.0) as last:
        if not batches:
            for update in updates.values():
                last.deposit(update)
        batch = last.release(silos.plan.digest(), 0)
    assert isinstance(batch, bytes)
    assert batches <= {batch}
    assert Counter(silos.read(batch)[1]) == Counter(chain(*sealed.values()))
