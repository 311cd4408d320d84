"""What the accountant stated once it states for ever: a ledger's certificate and its odometer count on that.

That the allowances suffice is proved. No other test could notice if one shrank: true errors are a thousandth of them.
"""

import json
import math

import pytest

from tests.accounting.stated_numbers import COMPOSITIONS, FILE, PARTS

STATED: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", PARTS)
def test_numbers_and_allowances_are_those_that_were_stated(part: str) -> None:
    """But for Fourier transforms, whose last digits depend on the processor and show in deltas of almost nothing."""
    now = PARTS[part]()
    assert now.keys() == STATED[part].keys()
    for name, stated in STATED[part].items():
        digits = 1e-8 if part in COMPOSITIONS else 1e-11
        digits = 1e-3 if name.startswith("delta") and stated < 1e-15 else digits
        assert math.isclose(now[name], stated, rel_tol=digits), name
