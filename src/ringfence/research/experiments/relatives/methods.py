"""The relatives: each by its published settings, where it has any, and with settings chosen on the test set."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from ringfence.protocol import FloatArray
from ringfence.research.experiments.league.methods import CURATOR, METHODS, NOBODY, OURS, OURS_POOLED, Method
from ringfence.research.experiments.league.own import Trained
from ringfence.research.experiments.league.tables import LeagueTable
from ringfence.research.experiments.relatives import directions, mixing, moments, sofim
from ringfence.research.experiments.relatives.federation import Federation, Releases, curator, silos

TUNING_RUNS, TUNING_SEED = 3, 10_001
"""Runs that every setting is chosen by, and their seed; what is shown has others."""
SIDE_BY_SIDE = 48
"""Runs that share a pass over the records; more only takes memory."""


@dataclass(frozen=True)
class Relative:
    """A published method: from settings, one for each run, to weights; all runs have the same rounds."""

    name: str
    weights: Callable[[Releases, Sequence[Any]], FloatArray]
    grid: Callable[[Federation], Sequence[Any]]
    published: Callable[[Federation], Any] | None = None


NEWTON = Relative("DP Newton", moments.dp_newton, moments.newton_grid, moments.published_newton)
DOUBLE_NOISE = Relative(
    "DP Newton by double noise",
    directions.double_noise,
    directions.double_noise_grid,
    directions.published_double_noise,
)
MIXING = Relative("iterative Hessian mixing", mixing.iterative_hessian_mixing, mixing.grid, mixing.published)
RACED: dict[str, tuple[Relative, str]] = {
    "fedsofim": (Relative("DP-FedSOFIM", sofim.dp_fedsofim, sofim.grid, sofim.published), NOBODY),
    "fednewton": (
        Relative("FedNewton with noise", moments.dp_newton, moments.newton_grid, moments.published_newton),
        NOBODY,
    ),
    "fedhybrid": (Relative("FedHybrid with noise", directions.fedhybrid, directions.fedhybrid_grid), NOBODY),
    "fednew": (Relative("DP-FedNew", directions.dp_fednew, directions.fednew_grid), NOBODY),
    "fedfc": (Relative("DP-FedFC", moments.dp_fedfc, moments.covariance_grid), NOBODY),
    "double-noise": (DOUBLE_NOISE, NOBODY),
    "mixing": (MIXING, NOBODY),
    "newton-curator": (NEWTON, CURATOR),
    "double-noise-curator": (DOUBLE_NOISE, CURATOR),
    "mixing-curator": (MIXING, CURATOR),
}
"""By the name that their cells have, and whom they trust."""
PUBLISHED = "-published"
"""What the cells of published settings are called by, after the relative's name."""


def run(
    relative: Relative, trusted: str, chosen: bool, table: LeagueTable, epsilon: float, seeds: Sequence[int]
) -> list[Trained]:
    """Train once for each seed, with settings that were published, or chosen on the test set with other noise."""
    federation = (curator if trusted == CURATOR else silos)(table, epsilon)
    published = relative.published
    setting = _best(relative, federation, table) if chosen or published is None else published(federation)
    found = _weights(relative, federation, [setting] * len(seeds), [0, *seeds])
    said = ", ".join(f"{name} {value:.3g}" for name, value in setting._asdict().items())
    return [Trained(weights, setting.rounds, said) for weights in found]


def _best(relative: Relative, federation: Federation, table: LeagueTable) -> Any:
    """Return the setting with the least mean test error: nobody can choose so, which flatters the method."""
    best, least = None, math.inf
    for _, group in groupby(relative.grid(federation), key=lambda setting: setting.rounds):
        settings = [setting for setting in group for _ in range(TUNING_RUNS)]
        weights = _weights(relative, federation, settings, [TUNING_SEED])
        errors = np.mean(np.reshape([table.error(own) for own in weights], (-1, TUNING_RUNS)), axis=1)
        if errors.min() < least:
            best, least = settings[int(np.argmin(errors)) * TUNING_RUNS], float(errors.min())
    return best


def _weights(
    relative: Relative, federation: Federation, settings: Sequence[Any], seed: Sequence[int]
) -> list[FloatArray]:
    random, found = np.random.default_rng(seed), []
    for start in range(0, len(settings), SIDE_BY_SIDE):
        part = settings[start : start + SIDE_BY_SIDE]
        found += list(relative.weights(Releases(federation, len(part), random), part))
    return found


def _methods() -> dict[str, Method]:
    found = {OURS: METHODS[OURS]}
    for place in (NOBODY, CURATOR):
        if place == CURATOR:
            found[OURS_POOLED] = METHODS[OURS_POOLED]
        for name, (relative, trusted) in RACED.items():
            if trusted != place:
                continue
            if relative.published is not None:
                found[name + PUBLISHED] = Method(relative.name, trusted, partial(run, relative, trusted, False))
            found[name] = Method(relative.name, trusted, partial(run, relative, trusted, True), tuned=True)
    return found


RELATIVES = _methods()
"""Ours, untuned, and every relative, by the names that their cells have, in the order of the page."""
