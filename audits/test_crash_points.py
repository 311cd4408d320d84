"""Every kill, every loss of power and every pair of kills: `make audit`. Tens of thousands of processes; an hour."""

import pytest

from tests.crashes.lives import LIVES
from tests.crashes.test_every_point import crash


@pytest.mark.parametrize("life", LIVES)
def test_a_process_crashed_at_any_two_points_is_followed_by_one_that_comes_to_a_good_end(life: str) -> None:
    done = crash(life, cuts=1, pairs=1)
    assert done["pairs"] > 30 * done["points"]
