"""Numbers that the accountant states, with their allowances: python -m tests.accounting.stated_numbers writes them.

Compositions are chosen such that each allowance weighs something in one of them: rates of 1e-5, a hundred
million rounds, deltas of 1e-15.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ringfence.accounting import pld
from ringfence.accounting.profiles import (
    FixedSizeProfile,
    GaussianProfile,
    PoissonProfile,
    gaussian_delta,
    gaussian_epsilon,
)
from ringfence.accounting.shuffled_sums import binomial_shift, mixing_distance

FILE = Path(__file__).with_name("stated_numbers.json")

COMPOSITIONS: dict[str, tuple[pld.Part, ...]] = {
    "poisson": ((PoissonProfile(0.01, 1.0), 1000),),
    "rare": ((PoissonProfile(1e-5, 0.5), 10**5),),
    "fixed": ((FixedSizeProfile(0.1, 2.0), 50),),
    "two": ((PoissonProfile(0.01, 1.0), 1000), (FixedSizeProfile(0.2, 0.5), 30)),
    "with gaussian": ((PoissonProfile(0.05, 1.5), 100), (GaussianProfile(0.7), 1)),
    "large": ((PoissonProfile(0.5, 8.0), 3),),
    "long": ((FixedSizeProfile(0.02, 0.05), 10**8),),
    "once": ((FixedSizeProfile(0.3, 40.0), 1),),
}
TOTALS = [
    (reach, trials, dimension, slack)
    for trials in (121, 5000, 2**28, 2**28 + 1, 10**9 + 1, 2**40)
    for reach, dimension, slack in ((1.0, 1, 1e-6), (3.0, 40, 1e-9), (0.05 * trials**0.5, 7, 1e-12))
]


def of_composition(name: str) -> dict[str, float]:
    """Return what is stated of a composition, and its allowances."""
    parts, found = COMPOSITIONS[name], {}
    for delta in (1e-5, 1e-11, 1e-15):
        found[f"epsilon at {delta}"] = pld.epsilon_bound(parts, delta)
        found[f"dominating shift at {delta}"] = pld.dominating_shift(parts, delta)
    for epsilon in (0.1, 2.0, 20.0):
        found[f"delta at {epsilon}"] = pld.delta_bound(parts, epsilon)
    moments = pld.CumulantSketch.of(parts, 1e-9)
    composed = pld.compose(parts, moments, moments.order_for_delta(1e-9))
    found |= {
        "deviation": moments.deviation,
        "tilt": composed.order,
        "log moment": composed.log_moment,
        "lowest loss": float(composed.losses[0]),
        "step": float(composed.losses[1] - composed.losses[0]),
        "number of losses": float(len(composed.losses)),
        "allowance for rounding": composed.rounding,
        "allowance for what is outside": composed.outside,
    }
    for profile, _ in parts:
        grid = pld.thresholds(profile, 5)
        above_p, _ = profile.tails(grid)
        single = pld.discretise(profile, grid)
        found[f"allowance for tails of {profile}"] = float(pld.tail_rounding(profile, grid, above_p).sum())
        found[f"infinite losses of {profile}"] = single.infinite
        found[f"variance of {profile}"] = single.variance()
    return found


def of_shuffled_sums() -> dict[str, float]:
    """Return what totals over coins, and shares in a mix, cost."""
    found = {}
    for reach, trials, dimension, slack in TOTALS:
        shift = binomial_shift(reach=reach, trials=trials, dimension=dimension, slack=slack)
        found[f"reach {reach:g} in {trials} coins, {dimension} coordinates, slack {slack}"] = shift
    for parties, shares, bits in ((1, 4, 20), (2, 30, 20), (5, 40, 64), (100, 30, 80), (3, 3, 4)):
        distance = mixing_distance(parties=parties, shares=shares, bits=bits)
        found[f"{parties} parties with {shares} shares of {bits} bits"] = distance
    return found


def of_gaussians() -> dict[str, float]:
    """Return epsilons and deltas of Gaussian releases."""
    found = {}
    for shift in (1e-9, 1e-4, 0.3, 5.0, 60.0):
        found[f"epsilon of shift {shift}"] = gaussian_epsilon(shift, 1e-10)
        found[f"delta of shift {shift}"] = gaussian_delta(shift, shift)
    return found


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    **{name: partial(of_composition, name) for name in COMPOSITIONS},
    "shuffled sums": of_shuffled_sums,
    "gaussians": of_gaussians,
}


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: part() for name, part in PARTS.items()}, indent=1) + "\n", encoding="utf-8")
