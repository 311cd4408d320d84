"""The tails that losses are discretised by err by less than they are raised for it, also where they are tiny."""

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from ringfence.accounting import pld
from ringfence.accounting.profiles import FixedSizeProfile, GaussianProfile, PoissonProfile, Profile

SHIFTS = [1e-4, 1e-2, 0.3, 3.0, 20.0]
PROFILES = [
    *(GaussianProfile(shift) for shift in SHIFTS),
    *(kind(rate, shift) for kind in (FixedSizeProfile, PoissonProfile) for rate in (1e-8, 0.1) for shift in SHIFTS),
]


def above(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def exact_tails(profile: Profile, loss: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return P(loss > e) and e^e Q(loss > e), to fifty digits."""
    e, s = mpmath.mpf(loss), mpmath.mpf(profile.shift)
    if isinstance(profile, PoissonProfile):
        q, h = mpmath.mpf(profile.rate), s / 2
        x = (e / 2 + mpmath.asinh((1 - q) / q * mpmath.exp(h * h / 2) * mpmath.sinh(e / 2))) / h
        return (1 - q) * above(x) + q * above(x - h), mpmath.exp(e) * ((1 - q) * above(x) + q * above(x + h))
    q = mpmath.mpf(profile.rate) if isinstance(profile, FixedSizeProfile) else mpmath.mpf(1)
    x = mpmath.log(1 + (mpmath.exp(e) - 1) / q) / s + s / 2
    return (1 - q) * above(x) + q * above(x - s), mpmath.exp(e) * above(x)


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_tails_err_by_less_than_half_of_what_is_added_for_it(profile: Profile) -> None:
    """Half, since an interval has two ends."""
    grid = pld.thresholds(profile, 10)
    grid = grid[:: max(1, len(grid) // 15)]
    tails, raised = profile.tails(grid), pld.tail_rounding(profile, grid, profile.tails(grid)[0])
    with mpmath.workdps(50):
        for place, loss in enumerate(grid.tolist()):
            exact = exact_tails(profile, loss)
            error = sum(abs(mpmath.mpf(float(tail[place])) - truth) for tail, truth in zip(tails, exact, strict=True))
            assert error <= raised[place] / 2


def test_more_sampling_never_costs_less_so_rates_may_be_rounded_up() -> None:
    losses = np.array([0.0, 0.01, 0.3, 2.0])
    for kind in (FixedSizeProfile, PoissonProfile):
        deltas = [np.subtract(*kind(rate, 1.0).tails(losses)) for rate in (1e-3, 1.001e-3, 0.1, 0.5, 0.9)]
        assert (np.diff(deltas, axis=0) > 0).all()
