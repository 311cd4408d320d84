"""Privacy profiles δ(ε) under replace-one adjacency, in closed form.

A profile is the hockey-stick divergence δ(ε) = P(loss > ε) - e^ε Q(loss > ε) of a *dominating pair* (P, Q), where
loss = ln dP/dQ: no two neighbouring data sets do worse at any ε. Replace-one adjacency is symmetric, so profiles
are needed for ε ≥ 0 only; the other half follows by exchanging P and Q. A product of dominating pairs dominates
the adaptive composition. `docs/proofs.md` proves all of this: "What sampling hides", Lemma R1.

Here φ and Φ are the standard normal density and distribution, and m(t) = Φ(-t)/φ(t) is Mills' ratio.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy  # loads its modules on first use: a running agent needs none of them

from ringfence.protocol import FloatArray

_ROUNDING = 1 + 1e-9  # covers the relative rounding error of gaussian_delta, which is below 5e-10
_SQRT_HALF = math.sqrt(0.5)


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Return δ(ε) of N(μ,1) against N(0,1), μ = ``shift``: Φ(-a) - e^ε Φ(-b) with a = ε/μ - μ/2, b = ε/μ + μ/2.

    Since e^ε φ(b) = φ(a), this is φ(a)(m(a) - m(b)), which neither overflows nor cancels at large ε.
    """
    b = epsilon / shift + shift / 2
    # δ falls in a, so a is rounded down by more than its rounding error.
    a = epsilon / shift * (1 - 2.0**-51) - shift / 2 * (1 + 2.0**-51)
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    if shift < 1e-4:  # a difference would cancel; -m' is convex, so the trapezoid rule bounds its integral from above
        delta = density * shift * (_mills_slope(a) + _mills_slope(b)) / 2
    elif a < 0:
        delta = float(scipy.special.ndtr(-a)) - density * _mills(b)
    else:
        delta = density * (_mills(a) - _mills(b))
    return min(1.0, max(0.0, delta) * _ROUNDING)


def _mills(t: float) -> float:
    """Return Mills' ratio of the normal distribution, for Gaussian profiles."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(t * _SQRT_HALF))


def _mills_slope(t: float) -> float:
    """Return -m'(t) = 1 - t m(t), or its upper bound 1/(1+t²) where that is as good and does not cancel."""
    return 1 - t * _mills(t) if t < 50 else 1 / (1 + t * t)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """Return the least ε, to twelve digits and rounded up, with ``gaussian_delta(shift, ε) <= delta``."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    # Φ(-a) ≤ exp(-a²/2) meets δ at a = √(2 ln(1/δ)); the factor covers the allowances for rounding.
    low, high = 0.0, (shift * shift / 2 + shift * math.sqrt(2 * math.log(1 / delta))) * (1 + 1e-8)
    if not (high < math.inf and gaussian_delta(shift, high) <= delta):
        return math.inf
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(shift, middle) <= delta else (middle, high)
    return high


class Profile(ABC):
    """A mechanism's dominating pair (P, Q), seen through the tails of its loss at thresholds e ≥ 0.

    ``shift`` is how far replacing one record moves a release, in standard deviations of the noise.
    """

    shift: float

    @property
    def furthest(self) -> float:
        """The mean of P's component that lies furthest from 0, in a profile."""
        return self.shift

    @abstractmethod
    def loss(self, x: FloatArray) -> FloatArray:
        """Return the loss at every outcome in ``x``, measured in standard deviations of the noise; it rises in x."""

    @abstractmethod
    def tails(self, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return P(loss > e) and e^e Q(loss > e), the two terms of δ(e), for every e in ``losses``."""


@dataclass(frozen=True)
class GaussianProfile(Profile):
    """P = N(s,1), Q = N(0,1): loss = sx - s²/2 exceeds e where x > e/s + s/2."""

    shift: float

    def loss(self, x: FloatArray) -> FloatArray:
        """Return the privacy loss of a Gaussian profile; see ``Profile``."""
        return self.shift * (x - self.shift / 2)

    def tails(self, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tails of a Gaussian profile; see ``Profile``."""
        a, b = losses / self.shift - self.shift / 2, losses / self.shift + self.shift / 2
        # The latter is φ(a) m(b).
        return scipy.special.ndtr(-a), 0.5 * np.exp(-a * a / 2) * scipy.special.erfcx(b * _SQRT_HALF)


@dataclass(frozen=True)
class FixedSizeProfile(Profile):
    """K distinct of n records, q = K/n = ``rate``: P = (1-q)N(0,1) + qN(s,1), Q = N(0,1) for ε' ≥ 0.

    With e^ε' = 1 + q(e^ε - 1) the profile is δ(ε') = q δ_Gauss(ε), and losses correspond in the same way (Lemma S3).
    """

    rate: float
    shift: float

    def loss(self, x: FloatArray) -> FloatArray:
        """Return the privacy loss of a fixed-size sampling profile; see ``Profile``."""
        return _log_mixture(self.rate, GaussianProfile(self.shift).loss(x))

    def tails(self, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tails of a fixed-size sampling profile; see ``Profile``."""
        q = self.rate
        small = np.minimum(losses, 1.0)
        gaussian_losses = np.where(
            losses <= 1,
            np.log1p(np.expm1(small) / q),  # exact at small losses
            losses + np.log1p(-(1 - q) * np.exp(-losses)) - math.log(q),  # does not overflow at large ones
        )
        above_p, scaled_above_q = GaussianProfile(self.shift).tails(gaussian_losses)
        above_q = scipy.special.ndtr(-gaussian_losses / self.shift - self.shift / 2)
        return (1 - q) * above_q + q * above_p, (1 - q) * above_q + q * scaled_above_q


@dataclass(frozen=True)
class PoissonProfile(Profile):
    """Each record with probability q = ``rate``, fixed divisor: P = (1-q)N(0,1) + qN(h,1), Q = (1-q)N(0,1) + qN(-h,1).

    h = ``shift``/2: the worst case is two records that pull in opposite directions (Lemma S2).
    """

    rate: float
    shift: float

    @property
    def furthest(self) -> float:
        """The furthest mean of a Poisson sampling profile; see ``Profile``."""
        return self.shift / 2

    def loss(self, x: FloatArray) -> FloatArray:
        """Return the privacy loss of a Poisson sampling profile; see ``Profile``."""
        h = self.shift / 2
        return _log_mixture(self.rate, h * (x - h / 2)) - _log_mixture(self.rate, -h * (x + h / 2))

    def tails(self, losses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the tails of a Poisson sampling profile; see ``Profile``."""
        q, h = self.rate, self.shift / 2
        # dP/dQ > e^e is a quadratic inequality in e^{hx}; it holds for x > x* with
        # hx* = e/2 + arsinh(((1-q)/q) e^{h²/2} sinh(e/2)).
        x = (losses / 2 + _arsinh_of_scaled_sinh(math.log((1 - q) / q) + h * h / 2, losses / 2)) / h
        outside, inside = np.exp(-x * x / 2), np.exp(-((x - h) ** 2) / 2)  # √(2π) φ(x) and √(2π) φ(x-h)
        above_p = (1 - q) * scipy.special.ndtr(-x) + q * scipy.special.ndtr(h - x)
        # e^e = dP/dQ at x*, so e^e Q(x > x*) is the density of P times a weighted mean of Mills' ratios.
        opposite = q * np.exp(-h * x - h * h / 2)  # q φ(x+h)/φ(x)
        mills = (1 - q) * scipy.special.erfcx(x * _SQRT_HALF) + opposite * scipy.special.erfcx((x + h) * _SQRT_HALF)
        scaled_above_q = 0.5 * ((1 - q) * outside + q * inside) * mills / (1 - q + opposite)
        return above_p, scaled_above_q


def _log_mixture(rate: float, y: FloatArray) -> FloatArray:
    """Return ln(1 - q + q e^y), q = ``rate`` < 1, for sampled profiles: accurate near y = 0, without overflow."""
    near, far = np.minimum(y, 1.0), np.maximum(y, 1.0)
    return np.where(y < 1, np.log1p(rate * np.expm1(near)), far + np.log(rate + (1 - rate) * np.exp(-far)))


def _arsinh_of_scaled_sinh(log_scale: float, u: FloatArray) -> FloatArray:
    """Return arsinh(e^{log_scale} sinh u) for u ≥ 0 without overflow, for sampled profiles."""
    with np.errstate(divide="ignore"):  # u = 0 gives ln 0 = -∞, and in the end 0
        log_z = log_scale + u + np.log(-np.expm1(-2 * u)) - math.log(2)
    above_one = np.maximum(log_z, 0.0)
    below_one = math.exp(min(log_scale, 700.0)) * np.sinh(np.where(log_z < 0, u, 0.0))  # exp(log_z) would be less exact
    return np.where(log_z < 0, np.arcsinh(below_one), above_one + np.log1p(np.sqrt(1 + np.exp(-2 * above_one))))
