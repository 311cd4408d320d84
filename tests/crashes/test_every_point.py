"""Whatever point a process is killed at, and whatever a loss of power leaves, the next one comes to a good end.

Here every kill, and a part of the losses of power and of the pairs of kills; `make audit` tries all of them.
"""

import json
import sys
from typing import Any

import pytest

from tests.crashes.__main__ import STORES
from tests.crashes.lives import LIVES
from tests.nursery import completed

STORES_OF = {
    "beginning": {"registry", "watermark", "ledger, restored ledger, backup", "shuffler's database"},
    "keeping": {"registry", "watermark", "ledger, restored ledger, backup"},
    "run": {"watermark", "ledger, restored ledger, backup", "transcript"},
    "mixing": {"shuffler's database", "shuffler's witness"},
}


def crash(life: str, *, cuts: int, pairs: int) -> dict[str, Any]:
    """Crash a life, in a process with one thread; return how often."""
    command = [sys.executable, "-m", "tests.crashes", life, "--cuts", str(cuts), "--pairs", str(pairs), "--json"]
    done = completed(command, text=True)
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("life", LIVES)
def test_a_process_crashed_at_any_point_is_followed_by_one_that_comes_to_a_good_end(life: str) -> None:
    done = crash(life, cuts=11, pairs=997)
    assert STORES_OF[life] <= set(done["stores"])
    assert done["kills"] >= done["points"] - 2  # texts of other lengths take a page more or less
    assert done["cuts"] > 10
    assert done["pairs"] > 0


def test_every_store_is_in_some_life() -> None:
    assert set(STORES.values()) == set().union(*STORES_OF.values())
