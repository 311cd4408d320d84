"""Every relative is private at its epsilon, for a replaced record, and finds the best model without noise."""

import dataclasses
import math
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from ringfence.accounting import accountant
from ringfence.accounting.events import GaussianRelease
from ringfence.protocol import FloatArray
from ringfence.research.experiments.league.apart import label_columns
from ringfence.research.experiments.league.central import not_private
from ringfence.research.experiments.relatives import mixing, sofim
from ringfence.research.experiments.relatives.directions import Admm, DoubleNoise
from ringfence.research.experiments.relatives.federation import Federation, Party, Releases
from ringfence.research.experiments.relatives.methods import DOUBLE_NOISE, MIXING, NEWTON, RACED, Relative
from ringfence.research.experiments.relatives.moments import FeatureCovariance, Newton
from tests.research.experiments.relatives.made_up import DELTA, LOSSES, Recorded, federation

PLENTY, NO_CLIP = 1e9, 50.0
ALL = {name: relative for name, (relative, _) in RACED.items()}
LONG: dict[str, list[Any]] = {
    "fedsofim": [sofim.Sofim(600, NO_CLIP, 2000.0, 1000.0)],
    "fednewton": [Newton(20, NO_CLIP, 0.5, 0.0, 0.0)],
    "fedhybrid": [Admm(600, NO_CLIP, 0.1, 0.0), Admm(600, NO_CLIP, 0.1, 1.0)],
    "fednew": [Admm(300, NO_CLIP, 0.05)],
    "fedfc": [FeatureCovariance(100, NO_CLIP, 1.0, 0.0)],
    "double-noise": [DoubleNoise(100, NO_CLIP, 0.5, 1.0)],
    "mixing": [mixing.Mixing(30, 6.0, 0.5, 5.0)],
}
"""Settings with which each would end at the best model if there were no noise: no clip, and rounds enough."""


def pooled(own: Federation) -> tuple[FloatArray, FloatArray]:
    return (
        np.concatenate([party.features for party in own.parties]),
        np.concatenate([party.targets for party in own.parties]),
    )


def excess(own: Federation, weights: FloatArray) -> float:
    """Return by how much the mean loss is above the best one, in units of that of weights 0."""
    features, targets = pooled(own)

    def value(matrix: FloatArray) -> float:
        return float(np.mean(own.loss.values(features @ matrix, targets)))

    least = value(not_private(own.loss, features, targets))
    return (value(weights) - least) / (value(np.zeros(own.shape)) - least)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", [name for name in LONG if name != "mixing"])
def test_without_noise_worth_speaking_of_every_relative_finds_the_best_model(name: str, kind: str) -> None:
    own = federation(kind, PLENTY)
    for setting in LONG[name]:
        (weights,) = ALL[name].weights(Releases(own, 1, np.random.default_rng(0)), [setting])
        assert excess(own, weights) < 1e-3


@pytest.mark.parametrize("relative", [NEWTON, DOUBLE_NOISE])
def test_so_does_a_curator(relative: Relative) -> None:
    own = federation("label", PLENTY, sizes=(700,))
    (weights,) = relative.weights(
        Releases(own, 1, np.random.default_rng(0)), LONG["fednewton" if relative is NEWTON else "double-noise"]
    )
    assert excess(own, weights) < 1e-3


@pytest.mark.parametrize("kind", LOSSES)
def test_iterative_hessian_mixing_finds_least_squares_of_labels_too(kind: str) -> None:
    own = federation(kind, PLENTY)
    (weights,) = MIXING.weights(Releases(own, 1, np.random.default_rng(0)), LONG["mixing"])
    features, targets = pooled(own)
    best = np.linalg.lstsq(features, label_columns(own.loss, targets), rcond=None)[0]
    np.testing.assert_allclose(weights, best, atol=2e-3)


def test_the_formula_of_sherman_and_morrison_solves_for_the_regularised_fisher_matrix() -> None:
    mean = np.random.default_rng(0).normal(size=(2, 4, 3))
    found = sofim.sherman_morrison(mean, np.array([0.5, 2.0]))
    for own, ridge, solved in zip(mean, (0.5, 2.0), found, strict=True):
        flat = own.reshape(-1)
        np.testing.assert_allclose(
            solved.reshape(-1), np.linalg.solve(np.outer(flat, flat) + ridge * np.eye(12), flat), atol=1e-12
        )


def settings_of(relative: Relative, own: Federation) -> list[list[Any]]:
    """Return the published setting, if any, and those of the grid, by their rounds."""
    published = [] if relative.published is None else [[relative.published(own)]]
    return published + [list(group) for _, group in groupby(relative.grid(own), key=lambda setting: setting.rounds)]


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("mixing")])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_what_a_run_releases_costs_what_it_may_and_no_more(name: str, epsilon: float) -> None:
    own = federation("label", epsilon, sizes=(60, 90))
    for settings in settings_of(ALL[name], own):
        releases = Releases(own, len(settings), np.random.default_rng(0))
        ALL[name].weights(releases, settings)
        for shifts in releases.shifts:
            for run in np.stack(shifts).T:
                cost = accountant.epsilon([(GaussianRelease(float(shift)), 1) for shift in run], DELTA)
                assert epsilon * (1 - 1e-6) < cost <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_sketches_eigenvalue_and_gradients_of_mixing_cost_what_they_may_together(epsilon: float) -> None:
    own = federation("label", epsilon, sizes=(60, 90))
    for settings in settings_of(MIXING, own):
        releases = Releases(own, len(settings), np.random.default_rng(0))
        MIXING.weights(releases, settings)
        for shifts in releases.shifts:
            for run, setting in zip(np.stack(shifts).T, settings, strict=True):
                plan = mixing.sketches(epsilon, DELTA, own.X, own.shape[0], *setting[:3])
                total = math.sqrt(float(np.sum(run**2)))
                cost = mixing.sketch_delta(epsilon, total, plan.rows * setting.rounds, own.X**2 / plan.least)
                assert 0.999 < cost / ((1 - mixing.FAILURE) * DELTA) <= 1


def neighbours(own: Federation) -> list[Federation]:
    """Return federations in which one record of the first party is as hostile as may be, and all others the same."""
    first, found = own.parties[0], []
    for direction in (first.spectrum[1][:, 0], first.spectrum[1][:, -1]):
        for sign in (1.0, -1.0):
            for target in (-1.0, 1.0) if own.loss.outputs == 1 else (0.0, 2.0):
                features, targets = first.features.copy(), first.targets.copy()
                features[0], targets[0] = sign * own.X * direction, target
                changed = Party(features, targets, first.epsilon, first.delta)
                found.append(dataclasses.replace(own, parties=(changed, *own.parties[1:])))
    return found


def faint(own: Federation) -> Federation:
    """Return a federation whose records are so short that a hostile one stands alone."""
    parties = (dataclasses.replace(party, features=1e-3 * party.features) for party in own.parties)
    return dataclasses.replace(own, parties=tuple(parties))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", ALL)
def test_no_hostile_record_moves_a_release_farther_than_its_noise_counts_on(name: str, kind: str) -> None:
    plain, farthest = federation(kind, 3.0, sizes=(12, 15)), 0.0
    for family in (neighbours(plain), neighbours(faint(plain))):
        settings = min(settings_of(ALL[name], plain), key=lambda settings: settings[0].rounds)
        for before in family[::3]:
            seen = Recorded(before, len(settings))
            ALL[name].weights(seen, settings)
            for after in family:
                other = Recorded(after, len(settings), repeated=seen)
                ALL[name].weights(other, settings)
                for (one, bound), (two, same) in zip(seen.answers, other.answers, strict=True):
                    np.testing.assert_array_equal(bound, same)  # it depends on what is public alone
                    moved = np.linalg.norm((one - two).reshape(len(settings), -1), axis=1)
                    assert (moved <= bound * (1 + 1e-5)).all()  # passes over records are in single precision
                    farthest = max(farthest, float(np.max(moved / bound)))
    assert farthest > 0.5  # and it is no bound that nothing comes near
