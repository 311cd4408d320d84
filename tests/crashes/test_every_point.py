"""Whatever point a process is killed at, and whatever a power failure leaves, the next one comes to a good end.

Here every kill, and a part of the power failures and of the pairs of kills; `make audit` tries all of them.
"""

import json
import sys
from typing import Any

import pytest

from tests.crashes.__main__ import STORES
from tests.crashes.scenarios import SCENARIOS
from tests.nursery import completed

STORES_OF = {
    "beginning": {"registry", "watermark", "ledger, restored ledger, backup", "shuffler's database"},
    "keeping": {"registry", "watermark", "ledger, restored ledger, backup"},
    "run": {"watermark", "ledger, restored ledger, backup", "transcript"},
    "mixing": {"shuffler's database", "shuffler's witness"},
}


def crash(scenario: str, *, power_failures: int, pairs: int) -> dict[str, Any]:
    """Crash a scenario, in a process with one thread; return how often."""
    options = ["--kills", "--power-failures", str(power_failures), "--pairs", str(pairs), "--json"]
    done = completed([sys.executable, "-m", "tests.crashes", scenario, *options], text=True)
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_crashed_at_any_point_is_followed_by_one_that_comes_to_a_good_end(scenario: str) -> None:
    done = crash(scenario, power_failures=11, pairs=31)
    assert STORES_OF[scenario] <= set(done["stores"])
    assert done["kills"] >= done["points"] - 2  # texts of other lengths take a page more or less
    assert done["power_failures"] > 10
    assert done["pairs"] > 0


def test_every_store_is_in_some_scenario() -> None:
    assert set(STORES.values()) == set().union(*STORES_OF.values())
