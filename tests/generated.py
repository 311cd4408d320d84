"""How hard tests with generated input try, and that they do the same on every machine.

By default hypothesis derives its choices from the test itself (`derandomize`), so that a run in CI never fails by a
chance that the next run does not have, and tries half as many as the tests name. RINGFENCE_EFFORT=20 tries twenty
times as many as they name, drawn afresh each time: what `make audit` does.
"""

import os

from hypothesis import HealthCheck, settings

EFFORT = float(os.environ.get("RINGFENCE_EFFORT", "0.5"))


def examples(count: int, *, steps: int = 50) -> settings:
    """Try so many examples, each of a state machine's with so many steps, times the effort."""
    return settings(
        max_examples=round(count * EFFORT),
        stateful_step_count=steps,
        derandomize=EFFORT <= 1,
        deadline=None,
        # Fixtures here are read only, and a slow machine is not a bug.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )
