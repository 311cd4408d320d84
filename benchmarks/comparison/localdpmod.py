"""Flower's LocalDpMod: the noise that it adds, and what its epsilon of 1 costs a record over a run."""

import math

import numpy as np

from benchmarks.comparison.accounts import DELTA, epsilon_of_updates
from ringfence.research.experiments.league.flower import Update, local_dp
from ringfence.research.markdown import table

ROUNDS = (1, 10, 41, 100)
EPSILONS = (0.5, 1.0, 4.0, 8.0)


def sigma(epsilon: float, delta: float = DELTA) -> float:
    """Return the noise of its formula, in units of `sensitivity`."""
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def costs() -> str:
    """Return the table of true epsilons, from its formula."""
    lines = [
        *((f"ε = 1, {_rounds(count)}", f"{epsilon_of_updates(sigma(1.0), 1.0, count):.3g}") for count in ROUNDS),
        *(
            (f"ε = {named:g}, one round", f"{epsilon_of_updates(sigma(named), 1.0, 1):.3g}")
            for named in EPSILONS
            if named != 1
        ),
        (
            "ε = 1, one round, `sensitivity` a tenth of the clip",
            f"{epsilon_of_updates(0.1 * sigma(1.0), 1.0, 1):.3g}",
        ),
    ]
    return table(["settings of LocalDpMod", "true ε, one record replaced"], lines)


def measured() -> str:
    """Run the mod on next to nothing, and set the noise that it adds beside that of its formula."""
    lines = [
        (f"{told:g}", f"{sigma(1.0) * told:.3f}", f"{_noise(local_dp(1.0, told, 1.0, DELTA)):.3f}")
        for told in (1.0, 0.1)
    ]
    return table(["`sensitivity`", "its formula", "measured on 20,000 weights"], lines)


def _noise(send: Update, width: int = 20_000) -> float:
    zero = np.zeros(width)
    return float(np.std(send(zero, zero + 1e-12)))  # an update of nothing at all would divide by zero


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"{count} rounds"
