"""DP-FedSOFIM (Nair, Sen, Sen and Banerjee 2026): noisy gradients, and a rank-one Fisher matrix at the server.

From its description: every silo sends the mean of its records' clipped gradients with Gaussian noise; the server keeps
their moving mean M, corrects its bias, and steps along F⁻¹M with F = MMᵀ + ρI by the formula of Sherman and Morrison.
F⁻¹M is M/(ρ + ‖M‖²): the matrix changes the length of the step and not its direction.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ringfence.protocol import FloatArray
from ringfence.research.experiments.relatives.federation import Federation, Releases, norms, wide, within_reach

RATE, RIDGE, MEMORY, CLIP, ROUNDS = 0.1, 0.5, 0.9, 1.0, 70
"""η, ρ, β, the clip and the rounds of the published command."""


class Sofim(NamedTuple):
    """Rounds, and for each run the clip of a record's gradient, the rate η and the ridge ρ."""

    rounds: int
    clip: float
    rate: float
    ridge: float


def published(federation: Federation) -> Sofim:
    """Return what the authors' command has, in the features' own units."""
    del federation
    return Sofim(ROUNDS, CLIP, RATE, RIDGE)


def grid(federation: Federation) -> list[Sofim]:
    """Return clips in units of the longest gradient, steps η/ρ of 1/β, ridges of the squared clip."""

    def setting(rounds: int, clip: float, step: float, ridge: float) -> Sofim:
        longest = clip * federation.steepest
        return Sofim(rounds, longest, step * ridge * longest**2 / federation.hessian_bound, ridge * longest**2)

    return [
        setting(rounds, clip, step, ridge)
        for rounds in (15, ROUNDS)
        for clip in (0.03, 0.1, 0.3)
        for step in (10.0, 30.0, 100.0)
        for ridge in (0.1, 10.0)
    ]


def dp_fedsofim(releases: Releases, settings: Sequence[Sofim]) -> FloatArray:
    """Return each run's last weights."""
    rounds, (_, clip, rate, ridge) = settings[0].rounds, map(np.asarray, zip(*settings, strict=True))
    weights, moving = releases.start, releases.start
    for number in range(1, rounds + 1):
        moving = MEMORY * moving + (1 - MEMORY) * releases.gradient(weights, clip, 1 / rounds)
        mean = moving / (1 - MEMORY**number)
        weights = within_reach(weights - wide(rate, mean) * sherman_morrison(mean, ridge))
    return weights


def sherman_morrison(mean: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return (MMᵀ + ρI)⁻¹M for the M and ρ of each run."""
    squared = norms(mean) ** 2
    return mean / wide(ridge, mean) - mean * wide(squared / (ridge**2 + ridge * squared), mean)
