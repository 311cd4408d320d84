"""Relatives whose silos solve with their own Hessian, which never leaves: what is sent is a direction, with noise.

The sensitivity counts the Hessian too (Lemma X1 below).

- FedNew (Elgabli et al. 2022) takes one step of ADMM towards the Newton direction in every round; DP-FedNew (Krouka,
  Koskela and Kulkarni 2025) clips gradients and right sides, takes the features' second moments for the Hessian, and
  adds noise to the direction.
- FedHybrid (Niu and Wei 2021): primal and dual steps, the primal one along the gradient or by a Newton step.
- Double noise (Ganesh, Haghifam, Steinke and Thakurta 2023): noise in the gradient, then in the direction that a
  regularised Hessian makes of it, with a ridge by the Hessian's noisy trace. Here with its quadratic upper bound.

*Lemma X1 (a direction by a hidden Hessian).* Let a party of n records send D⁻¹v, with D = H + κI, H the mean of its
records' h·xxᵀ, 0 ≤ h·‖x‖² ≤ β, and v clipped to norm B. Let v, before it is clipped, have sensitivity Δ; all else in
v is public. Then D⁻¹v has sensitivity at most Δ/κ + B·min(β/(κ²n), 1/κ).

*Proof.* With primes for the neighbour, D′⁻¹v′ − D⁻¹v = D′⁻¹(v′−v) + (D′⁻¹−D⁻¹)v. Clipping to a ball is a projection,
so ‖v′ − v‖ ≤ Δ, and ‖D′⁻¹‖ ≤ 1/κ. D′⁻¹ − D⁻¹ = D′⁻¹(D−D′)D⁻¹, and D − D′ = (h·xxᵀ − h′·x′x′ᵀ)/n has eigenvalues
between ±β/n; also, both inverses have eigenvalues from 0 to 1/κ, so their difference is at most 1/κ. ‖v‖ ≤ B. ∎
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ringfence.protocol import FloatArray
from ringfence.research.experiments.relatives.federation import (
    Federation,
    Party,
    Releases,
    clipped,
    norms,
    wide,
    within_reach,
)

ROUNDS, GRADIENTS, TRACE, FACTOR = 15, 0.7, 0.1, 0.5
"""Of the published double noise: rounds, the gradients' share, the trace's share of the rest, and what it counts."""


class Admm(NamedTuple):
    """Rounds, and for each run the clip of gradients and right sides, the penalty, and whether steps are Newton's."""

    rounds: int
    clip: float
    penalty: float
    newton: float = 1.0


class DoubleNoise(NamedTuple):
    """Rounds, and for each run the clip, the gradients' share, and the ridge in units of the published rule's."""

    rounds: int
    clip: float
    gradients: float
    ridge: float


def fednew_grid(federation: Federation) -> list[Admm]:
    """Return clips in units of the longest gradient, and penalties of the largest curvature."""
    return [
        Admm(rounds, clip * federation.steepest, penalty * federation.hessian_bound)
        for rounds in (15, 40, 70)
        for clip in (0.03, 0.1, 0.3)
        for penalty in (0.01, 0.1, 0.3, 1.0)
    ]


def fedhybrid_grid(federation: Federation) -> list[Admm]:
    """Return the same, with steps of either kind, but for the most rounds."""
    fewer = [own for own in fednew_grid(federation) if own.rounds <= 40]
    return [own._replace(newton=newton) for own in fewer for newton in (0.0, 1.0)]


def published_double_noise(federation: Federation) -> DoubleNoise:
    """Return the authors' settings; gradients are clipped at their largest norm at weights 0."""
    return DoubleNoise(ROUNDS, federation.steepest, GRADIENTS, 1.0)


def double_noise_grid(federation: Federation) -> list[DoubleNoise]:
    """Return clips in units of the longest gradient, shares, and multiples of the published ridge."""
    return [
        DoubleNoise(rounds, clip * federation.steepest, gradients, ridge)
        for rounds in (3, ROUNDS)
        for clip in (0.1, 0.3, 1.0)
        for gradients in (0.5, 0.8)
        for ridge in (1.0, 3.0, 10.0, 30.0, 100.0)
    ]


def dp_fednew(releases: Releases, settings: Sequence[Admm]) -> FloatArray:
    """Return each run's last weights."""
    federation, rounds = releases.federation, settings[0].rounds
    _, clip, penalty, _ = map(np.asarray, zip(*settings, strict=True))
    weights, agreed = releases.start, releases.start
    duals = [releases.start for _ in federation.parties]
    for _ in range(rounds):
        sent = []
        for place, party in enumerate(federation.parties):
            gradient = federation.clipped_mean(party, weights, clip)
            right = clipped(gradient - duals[place] + wide(penalty, agreed) * agreed, clip)
            moved = sensitivity(2 * clip / party.records, clip, federation.hessian_bound, penalty, party.records)
            sent.append(releases.release(place, solved(federation, party, penalty, right), moved, 1 / rounds))
        agreed = _mean(federation, sent)
        duals = [dual + wide(penalty, own) * (own - agreed) for dual, own in zip(duals, sent, strict=True)]
        weights = within_reach(weights - agreed)
    return weights


def fedhybrid(releases: Releases, settings: Sequence[Admm]) -> FloatArray:
    """Return where the copies of each run agree at the end."""
    federation, rounds = releases.federation, settings[0].rounds
    _, clip, penalty, newton = map(np.asarray, zip(*settings, strict=True))
    flat = np.where(newton > 0, 0.0, federation.hessian_bound)  # a gradient step replaces the Hessian by its bound
    agreed = releases.start
    copies, duals = ([releases.start for _ in federation.parties] for _ in range(2))
    for _ in range(rounds):
        for place, party in enumerate(federation.parties):
            gradient = federation.clipped_mean(party, copies[place], clip)
            right = clipped(gradient + duals[place] + wide(penalty, gradient) * (copies[place] - agreed), clip)
            step = solved(federation, party, penalty + flat, right, np.where(newton > 0, 1.0, 0.0))
            hessian_bound = np.where(newton > 0, federation.hessian_bound, 0.0)
            moved = sensitivity(2 * clip / party.records, clip, hessian_bound, penalty + flat, party.records)
            copies[place] = within_reach(copies[place] - releases.release(place, step, moved, 1 / rounds))
        agreed = _mean(federation, [c + d / wide(penalty, d) for c, d in zip(copies, duals, strict=True)])
        duals = [d + wide(penalty, d) * (c - agreed) for c, d in zip(copies, duals, strict=True)]
    return agreed


def double_noise(releases: Releases, settings: Sequence[DoubleNoise]) -> FloatArray:
    """Return each run's last weights; with several parties, each sends what its own Hessian makes of all gradients."""
    federation, rounds = releases.federation, settings[0].rounds
    _, clip, gradients, ridge = map(np.asarray, zip(*settings, strict=True))
    share, weights = (1 - gradients) / rounds, releases.start
    for _ in range(rounds):
        gradient = releases.gradient(weights, clip, gradients / rounds)
        sent = []
        for place, party in enumerate(federation.parties):
            least = ridge * _published_ridge(releases, place, share)
            moved = sensitivity(0.0, norms(gradient), federation.hessian_bound, least, party.records)
            step = solved(federation, party, least, gradient)
            sent.append(releases.release(place, step, moved, (1 - TRACE) * share))
        weights = within_reach(weights - _mean(federation, sent))
    return weights


def sensitivity(
    gradient: FloatArray | float, pull: FloatArray, hessian_bound: FloatArray | float, ridge: FloatArray, records: int
) -> FloatArray:
    """Return the sensitivity of D⁻¹v for a sensitivity `gradient` of v (Lemma X1)."""
    return np.asarray(gradient / ridge + pull * np.minimum(hessian_bound / (records * ridge**2), 1 / ridge))


def solved(
    federation: Federation, party: Party, ridge: FloatArray, right: FloatArray, counted: FloatArray | float = 1.0
) -> FloatArray:
    """Return (c·curvature·moments + ridge·I)⁻¹ times each run's right side, c by `counted`."""
    values, axes = party.spectrum
    matrix = np.asarray(counted).reshape(-1, 1) * federation.curvature * values + ridge[:, None]
    return np.asarray(axes @ ((axes.T @ right) / matrix[..., None]))


def _published_ridge(releases: Releases, place: int, share: FloatArray) -> FloatArray:
    """Return the cube root of the noisy trace over n² and the direction's budget in zCDP, in units of X²; at least 1/n.

    The trace has sensitivity hessian_bound/n.
    """
    federation, party = releases.federation, releases.federation.parties[place]
    trace = np.full(releases.runs, federation.curvature * float(np.trace(party.moments)))
    seen = releases.release(place, trace, federation.hessian_bound / party.records, TRACE * share)
    concentrated = (1 - TRACE) * share * party.shift**2 / 2
    counted = FACTOR * np.maximum(seen, 0.0) / federation.X**2
    least = np.maximum(np.cbrt(counted / (party.records**2 * concentrated)), 1 / party.records)
    return np.asarray(federation.X**2 * least)


def _mean(federation: Federation, sent: Sequence[FloatArray]) -> FloatArray:
    """Return the mean of what the parties sent, by records."""
    return sum((weight * own for weight, own in zip(federation.shares, sent, strict=True)), np.zeros_like(sent[0]))
