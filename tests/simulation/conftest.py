"""What tests of the simulator share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Compare in float64, where rounding is far below any real difference."""
    with jax.enable_x64(True):
        yield
