"""Relatives whose server gets second moments with noise: DP Newton, which is FedNewton with noise, and DP-FedFC.

DP Newton (Avella-Medina, Bradshaw and Loh 2023): in every round the gradient and the Hessian at the current weights,
both with Gaussian noise; w ← w − H⁻¹g. FedNewton ("Statistical optimality of Newton-type federated learning", 2025)
sends every client's Hessian and gradient to the server, without noise, and takes the same step: with noise by every
silo it is DP Newton of several parties.

DP-FedFC (a baseline of DP-FedSOFIM; Nair, Sen, Sen and Banerjee 2026): the second moments of the features once, with
noise; then noisy clipped gradients, which the server multiplies by the inverse.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ringfence.protocol import FloatArray
from ringfence.research.experiments.relatives.federation import Federation, Releases, norms, wide, within_reach

ROUNDS, GRADIENTS, FLOOR = 15, 0.7, 1e-5
"""Rounds, the gradients' share of the budget, and the least eigenvalue in units of X²: published with Ganesh et al."""
COVARIANCE = 0.2
"""The share of DP-FedFC's budget that the second moments get: as in our own survey."""


class Newton(NamedTuple):
    """Rounds, and for each run the clip, the gradients' share, and the least eigenvalue: so much, and so many edges."""

    rounds: int
    clip: float
    gradients: float
    floor: float
    edges: float


class FeatureCovariance(NamedTuple):
    """Rounds, and for each run the clip, the step in units of a Newton step, and the ridge in edges of the noise."""

    rounds: int
    clip: float
    step: float
    edges: float


def published_newton(federation: Federation) -> Newton:
    """Return the settings of the published comparison; gradients are clipped at their largest norm at weights 0."""
    return Newton(ROUNDS, federation.steepest, GRADIENTS, FLOOR * federation.X**2, 0.0)


def newton_grid(federation: Federation) -> list[Newton]:
    """Return clips in units of the longest gradient, shares, and least eigenvalues around the edge of the noise."""
    return [
        Newton(rounds, clip * federation.steepest, gradients, 0.0, edges)
        for rounds in (ROUNDS,)
        for clip in (0.1, 0.3, 1.0)
        for gradients in (0.5, 0.8)
        for edges in (0.1, 0.3, 1.0)
    ]


def covariance_grid(federation: Federation) -> list[FeatureCovariance]:
    """Return clips in units of the longest gradient, steps, and ridges around the edge of the noise."""
    return [
        FeatureCovariance(rounds, clip * federation.steepest, step, edges)
        for rounds in (15, 40, 70)
        for clip in (0.03, 0.1, 0.3)
        for step in (1.0, 3.0)
        for edges in (0.3, 1.0, 3.0)
    ]


def dp_newton(releases: Releases, settings: Sequence[Newton]) -> FloatArray:
    """Return each run's last weights; a long step is shortened from s to log(1 + s), in units of 1/X."""
    federation, rounds = releases.federation, settings[0].rounds
    _, clip, gradients, floor, edges = map(np.asarray, zip(*settings, strict=True))
    weights = releases.start
    for _ in range(rounds):
        own = [federation.hessian(party, weights) for party in federation.parties]
        hessian, edge = releases.second_moments(own, federation.hessian_bound, (1 - gradients) / rounds)
        gradient = releases.gradient(weights, clip, gradients / rounds)
        values, axes = np.linalg.eigh(hessian)
        values = np.maximum(values, (floor + edges * edge)[:, None])
        step = solved(values, axes, gradient)
        weights = within_reach(weights - wide(damping(federation.X * norms(step)), step) * step)
    return weights


def dp_fedfc(releases: Releases, settings: Sequence[FeatureCovariance]) -> FloatArray:
    """Return each run's last weights."""
    federation, rounds = releases.federation, settings[0].rounds
    _, clip, step, edges = map(np.asarray, zip(*settings, strict=True))
    shape = (releases.runs, federation.shape[0], federation.shape[0])
    own = [np.broadcast_to(party.moments, shape) for party in federation.parties]
    moments, edge = releases.second_moments(own, federation.X**2, COVARIANCE)
    values, axes = np.linalg.eigh(moments)
    values = np.maximum(values, 0.0) + (edges * edge)[:, None]
    weights = releases.start
    for _ in range(rounds):
        gradient = releases.gradient(weights, clip, (1 - COVARIANCE) / rounds)
        weights = within_reach(weights - wide(step / federation.curvature, gradient) * solved(values, axes, gradient))
    return weights


def solved(values: FloatArray, axes: FloatArray, right: FloatArray) -> FloatArray:
    """Return the solution for each run's right side, of a matrix by its eigenvalues and axes."""
    return np.asarray(axes @ ((np.swapaxes(axes, -1, -2) @ right) / values[..., None]))


def damping(length: FloatArray) -> FloatArray:
    """Return log(1 + s)/s, at most 1."""
    return np.asarray(np.log1p(length) / np.maximum(length, 1e-12)).clip(max=1.0)
