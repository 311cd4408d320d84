"""Iterative Hessian mixing (Lev, Shenfeld, Srinivasan, Ligett and Wilson 2026), and its exact replace-one cost.

From its description: every round a Gaussian sketch of the features with noise, SX + ηN, is drawn afresh and gives
Ĥ = (SX + ηN)ᵀ(SX + ηN)/k; Σx·clip(y − θᵀx) gets Gaussian noise; θ changes by Ĥ⁻¹ times it. η is as small as the least
eigenvalue of Σxxᵀ, released with noise, allows. It is for least squares; labels are fitted by least squares, as ±1 or a
column for each class.

*Lemma X2 (Gaussian sketches).* Let a party release, in T adaptive rounds, k rows each of SX + ηN, with S and N fresh
matrices of independent standard normal numbers, the rows of X its records, ‖x‖ ≤ X, and let XᵀX + η²I ⪰ κI hold
without the record that neighbours do not share. With a = X²/κ, the pair P = N(0, 1+a) × N(0, 1), Q = N(0, 1) × N(0,
1+a), taken kT times, dominates these releases. Together with Gaussian releases of shift μ they are (ε, δ)-DP with

    δ(ε) = (1/2πi) ∫ M(s)·e^(−sε)/(s(s + 1)) ds        along Re s = s₀, for any s₀ from 0 to 1/a,
    M(s) = (1 − as)^(−kT/2) · (1 + as/(1 + a))^(−kT/2) · exp(μ²(s + s²)/2).

*Proof.* Rows are independent, each N(0, A + xxᵀ) or N(0, A+x′x′ᵀ), A the shared part. With u = A^(−½)x and v =
A^(−½)x′, of squared norm at most a, these are images of N(0, I + uuᵀ) and N(0, I + vvᵀ). Multiply by (I + vvᵀ)^(−½):
the second becomes N(0, I), the first has the eigenvalues of a matrix that differs from I by one of rank two with at
most one positive and one negative eigenvalue. So they are 1 except for some λ from 1 to 1 + a (the norm of I + uuᵀ
bounds it) and some λ′ from 1/(1+a) to 1 (one over the norm of I + vvᵀ). In the basis of its eigenvectors coordinates
are independent. N(0, λ) against N(0, 1) is computed from N(0, 1+a) against N(0, 1): scale by √c, c = (λ−1)/a ≤ 1, and
add N(0, 1−c). N(0, λ′) against N(0, 1) is, scaled, N(0, 1) against N(0, 1/λ′), computed likewise from N(0, 1) against
N(0, 1+a). So the pair dominates a row, and by R1 its kT-th power all rows. The pair is the same in both orders. Under
P the loss of a row is ½·(aZ₁² − a/(1+a)·Z₂²) with standard normal Z₁ and Z₂ (normalisations cancel), that of the
Gaussian releases is N(μ²/2, μ²) by R3, and M is the moment-generating function of their sum ℓ. δ(ε) = E(1−e^(ε−ℓ))₊,
and (1−e^(−t))₊ = (1/2πi)∫ e^(st)/(s(s+1)) ds. ∎

η may depend on a released value: the least eigenvalue of XᵀX, of sensitivity X² (Weyl), with Gaussian noise
of standard deviation s. With probability at least 1 − Φ(−τ) its released value exceeds it by at most τs; less τs and
less X², which the record may contribute, it bounds the shared part's least eigenvalue from below. Otherwise nothing
is claimed, which adds Φ(−τ) to δ.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from ringfence.accounting.calibrate import gaussian_shift
from ringfence.protocol import FloatArray
from ringfence.research.experiments.league.apart import label_columns
from ringfence.research.experiments.relatives.federation import FAR, Federation, Party, Releases, scores, sums

ROUNDS, ROWS, GRADIENTS = 3, 6.0, 0.5
"""T, the sketch's rows in units of max(d, log 4T/ϱ), and the gradients' part: published (there a half of ε)."""
FAILURE = 0.1
"""The part of δ that pays for an eigenvalue released too large; also ϱ, in units of δ."""


class Mixing(NamedTuple):
    """Rounds, the sketch's rows in units of max(d, log 4T/ϱ), the gradients' share, and the residuals' clip over Y."""

    rounds: int
    rows: float
    gradients: float
    clip: float


class Sketches(NamedTuple):
    """What all sketches of a party are drawn with: rows of each, γ, and the shift that the eigenvalue costs."""

    rows: int
    least: float
    shift: float


def published(federation: Federation) -> Mixing:
    """Return the authors' settings."""
    del federation
    return Mixing(ROUNDS, ROWS, GRADIENTS, 1.0)


def grid(federation: Federation) -> list[Mixing]:
    """Return rounds, sketches, shares and clips around the published ones."""
    del federation
    return [
        Mixing(rounds, rows, gradients, clip)
        for rounds in (3, 12)
        for rows in (1.5, 6.0)
        for gradients in (0.5, 0.8)
        for clip in (0.1, 0.3, 1.0)
    ]


def iterative_hessian_mixing(releases: Releases, settings: Sequence[Mixing]) -> FloatArray:
    """Return each run's last weights."""
    federation, rounds = releases.federation, settings[0].rounds
    share, clip = np.array([own.gradients for own in settings]), np.array([own.clip for own in settings])
    plans = [
        [sketches(party.epsilon, party.delta, federation.X, federation.shape[0], *own[:3]) for own in settings]
        for party in federation.parties
    ]
    roots = [_roots(releases, place, plans[place]) for place in range(len(plans))]
    columns = [label_columns(federation.loss, party.targets) for party in federation.parties]
    weights = releases.start
    for _ in range(rounds):
        hessians, slopes = np.zeros((releases.runs, *[federation.shape[0]] * 2)), releases.start
        for place, party in enumerate(federation.parties):
            pull = clipped_pull(party, columns[place], weights, clip * federation.Y)
            moved = 2 * federation.X * federation.Y * clip
            slopes += releases.release(place, pull, moved, share / rounds)
            for run, plan in enumerate(plans[place]):
                drawn = releases.sketch(place, plan.rows, roots[place][run])
                hessians[run] += drawn.T @ drawn / plan.rows
        weights = np.clip(weights + np.linalg.solve(hessians, slopes), -FAR, FAR)
    return weights


def clipped_pull(party: Party, columns: FloatArray, weights: FloatArray, clip: FloatArray) -> FloatArray:
    """Return each run's Σx·clip(y − θᵀx); its sensitivity is 2X·clip."""
    residuals = columns[:, None, :].astype(np.float32) - scores(party, weights)
    return sums(party, residuals, np.linalg.norm(residuals, axis=-1), clip)


@lru_cache(maxsize=1024)
def sketches(
    epsilon: float, delta: float, X: float, width: int, rounds: int, rows_factor: float, gradients: float
) -> Sketches:
    """Return the least γ for which sketches, eigenvalue and gradients together are (ε, δ)-DP, and what goes with it."""
    rows = math.ceil(rows_factor * max(width, math.log(4 * rounds / (FAILURE * delta))))
    given = gradients * gaussian_shift(epsilon, delta) ** 2

    def excess(log_reach: float) -> float:
        reach = math.exp(log_reach)
        cost = sketch_delta(epsilon, math.sqrt(given + rows * reach**2), rows * rounds, reach)
        return math.log(max(cost, 1e-300) / ((1 - FAILURE) * delta))

    low = high = -math.log(math.sqrt(rows * rounds)) + math.log(gaussian_shift(epsilon, delta))
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    reach = math.exp(brentq(excess, low, high, xtol=1e-9)) * (1 - 1e-6)
    return Sketches(rows, X**2 / reach, math.sqrt(rows) * reach)


def sketch_delta(epsilon: float, shift: float, rows: int, reach: float) -> float:
    """Return δ(ε) of Gaussian answers of that shift in all and of so many rows of sketches, `reach` = a above."""

    def exponent(s: Any) -> Any:
        sketched = np.log(1 - reach * s) + np.log(1 + s * reach / (1 + reach))
        return shift**2 * (s + s**2) / 2 - rows / 2 * sketched - s * epsilon - np.log(s) - np.log(1 + s)

    def height(log_s: float) -> float:
        return float(exponent(math.exp(log_s)))

    largest = min(1 / reach if rows else math.inf, 1e9) * (1 - 1e-9)
    found = minimize_scalar(height, bounds=(-25.0, math.log(largest)), method="bounded", options={"xatol": 1e-10})
    s, top = math.exp(float(found.x)), float(found.fun)
    step = 1e-3 * s
    bent = (height(math.log(s + step)) - 2 * top + height(math.log(s - step))) / step**2 if s + step < largest else 0.0
    width = 1 / math.sqrt(max(bent, 1 / s**2))
    along = np.linspace(0.0, 60 * width, 2401)
    heights = np.exp(exponent(s + 1j * along) - top).real
    return float(np.trapezoid(heights, along)) * math.exp(min(top, 700.0)) / math.pi


def _roots(releases: Releases, place: int, plans: Sequence[Sketches]) -> list[FloatArray]:
    """Tell the least eigenvalue of Σxxᵀ with noise; return a root of XᵀX + η²I for each run.

    The eigenvalue has sensitivity X², and without the record it is smaller by at most X². Where
    the noise is larger than its margin, with probability FAILURE·δ, γ is not reached; δ has room for that.
    """
    party, X = releases.federation.parties[place], releases.federation.X
    values, axes = party.spectrum
    shifts = np.array([plan.shift for plan in plans])
    spread = X**2 / shifts
    seen = releases.release(place, np.full(releases.runs, party.records * values[0]), X**2, (shifts / party.shift) ** 2)
    sure = np.maximum(0.0, seen - spread * norm.isf(FAILURE * party.delta) - X**2)
    added = np.maximum(0.0, np.array([plan.least for plan in plans]) - sure)
    return [np.sqrt(party.records * values + own)[:, None] * axes.T for own in added]
