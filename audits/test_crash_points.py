"""Every kill, every power failure and every pair of kills: `make audit`. Tens of thousands of crashes."""

import pytest

from tests.crashes.scenarios import SCENARIOS
from tests.crashes.test_every_point import crash


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_process_crashed_at_any_two_points_is_followed_by_one_that_comes_to_a_good_end(scenario: str) -> None:
    done = crash(scenario, power_failures=1, pairs=1)
    assert done["pairs"] > 30 * done["points"]
