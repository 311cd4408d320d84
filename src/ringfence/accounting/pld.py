"""Composition of different mechanisms by privacy-loss distributions; every step errs on the safe side.

1. *Discretise.* On a grid of losses, the P- and Q-mass of every interval moves to its two end points such that both
   masses stay the same (connect the dots; Doroshenko et al. 2022). Losses above the grid become infinite. The negative
   half mirrors the positive one with weight e^-loss, because the profile is symmetric; what remains lies at loss 0.
2. *Tilt.* Every mass is weighted by e^{t·loss}, with t such that the composed loss concentrates near the ε in
   query. Rounding errors and whatever falls outside the window then weigh about δ times their size instead of 1.
3. *Convolve* by FFT, and undo the tilt.

`docs/proofs.md`, Lemmas S4 and S5, proves that the reported δ is an upper bound; nothing is claimed for an ε below the
window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads its modules on first use: a running agent needs none of them
from numpy.fft import irfft, rfft

from ringfence.accounting.profiles import Profile
from ringfence.protocol import FloatArray

Part = tuple[Profile, int]
"""A mechanism and how many times it ran."""

NEGLIGIBLE = (1e-6, 1e-6, 1e-4, 1e-2)
"""Share of delta that losses too rare to be worth a place on the grid may use up: they count as infinite.

The first is almost always right, and the second attempt tilts towards the first one's answer. Where rare losses are so
large that no tilt suits both them and the others (rates below 1e-4, mostly), rounding weighs more than a larger share.
"""

SETTLED = 1e-3
"""Share of delta that the allowance for rounding may use up before another tilt is tried."""

PRECISION = 1e-5
"""How much of epsilon the grid may add, about."""

FEWEST_POINTS, MOST_POINTS = 2**14, 2**20
"""Bounds on the window's size; where the upper one bites, the grid is coarser and the answer still an upper bound."""

OUTSIDE = 1e-7
"""Tilted probability that may fall outside the window on either side."""

TAIL_ERROR = 8
"""How much more a tail by itself may err than the difference of both tails (Lemma A13)."""

_ORDERS = np.geomspace(1e-3, 1e3, 61)  # tilts to choose among, in units of 1/(standard deviation of the total loss)


def thresholds(profile: Profile, per_deviation: int) -> FloatArray:
    """Return losses from 0 up that are close where the loss is likely: at evenly spaced outcomes around both means.

    They end ten standard deviations of the noise beyond the further mean, where P has 8e-24 left.
    """
    around = np.linspace(-10.0, 10.0, 20 * per_deviation + 1)
    losses = profile.loss(np.concatenate([around, around + profile.furthest]))
    return np.unique(np.append(losses[losses > 0], 0.0))


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """P-probabilities of finite losses, in increasing order; ``infinite`` is the probability of any other loss."""

    losses: FloatArray
    masses: FloatArray
    infinite: float

    def variance(self) -> float:
        """Return the variance of the finite privacy losses."""
        mean = np.sum(self.masses * self.losses)
        return float(np.sum(self.masses * (self.losses - mean) ** 2))

    def log_moments(self, orders: FloatArray) -> FloatArray:
        """Return ln E e^{t·loss} over the finite privacy losses, for every t in ``orders``."""
        exponents = np.outer(orders, self.losses) + self.log_masses()
        largest = exponents.max(axis=1)
        return np.asarray(largest + np.log(np.exp(exponents - largest[:, None]).sum(axis=1)))

    def log_masses(self) -> FloatArray:
        """Return the logarithms of the masses of a privacy loss distribution, -∞ for none."""
        with np.errstate(divide="ignore"):
            return np.log(self.masses)


def tail_rounding(profile: Profile, grid: FloatArray, above_p: FloatArray) -> FloatArray:
    """Return more than the error of δ(e), and of the masses formed from it, on a grid (docs/proofs.md, Lemma A13).

    Far out, where a tail is Φ(-a), an error of a few 2⁻⁵³ in a weighs a² times as much, and a² ≤ -2 ln Φ(-a).
    """
    rare = np.log(np.maximum(above_p, 1e-300))
    return np.asarray(2.0**-49 * (1 + 4 * (grid + profile.furthest**2) - 16 * rare) * above_p)


def discretise(profile: Profile, grid: FloatArray) -> LossDistribution:
    """Round a symmetric profile up to losses on ``grid`` (increasing from 0) and their negatives."""
    above_p, scaled_above_q = profile.tails(grid)
    gaps = np.diff(grid)
    p = np.maximum(above_p[:-1] - above_p[1:], 0.0)  # P-mass of the interval (e_i, e_{i+1}]
    r = scaled_above_q[:-1] - np.exp(-gaps) * scaled_above_q[1:]  # its Q-mass, times e^{e_i}
    # The share b for the upper end solves (p-b) e^{-e_i} + b e^{-e_{i+1}} = r e^{-e_i}. The difference p - r cancels,
    # so it is raised by its rounding error: more mass at the upper end is the safe side. Where that may be more than an
    # interval's whole mass, it all moves up, and the interval below is raised by the errors at both its ends.
    rounding = tail_rounding(profile, grid, above_p)
    at_both = rounding[:-1] + np.exp(-gaps) * rounding[1:]
    most, shift_up = p + TAIL_ERROR * at_both, -np.expm1(-gaps)
    is_full = p - r + at_both > most * shift_up
    raised = np.where(np.append(is_full[1:], False), at_both, rounding[:-1])
    upper = np.clip((p - r + raised) / shift_up, 0.0, most)
    positive = np.append(np.maximum(p - upper, 0.0), 0.0)
    positive[1:] += upper
    negative = positive[1:] * np.exp(-grid[1:])
    infinite = min(1.0, float(above_p[-1] + TAIL_ERROR * rounding[-1]))
    zero = max(0.0, 1.0 - infinite - float(positive[1:].sum() + negative.sum()))
    return LossDistribution(
        losses=np.concatenate([-grid[:0:-1], grid]),
        masses=np.concatenate([negative[::-1], [zero], positive[1:]]),
        infinite=infinite,
    )


@dataclass(frozen=True, eq=False)
class CumulantSketch:
    """The cumulant function of the composed loss, from a sketch of each mechanism on a coarse grid."""

    sketches: tuple[tuple[LossDistribution, int], ...]
    deviation: float

    @classmethod
    def of(cls, parts: Sequence[Part], negligible: float) -> "CumulantSketch":
        """Sketch every mechanism on a grid of its own, leaving out losses of total probability ``negligible``."""
        rare = negligible / sum(count for _, count in parts)
        sketches = []
        for profile, count in parts:
            grid = thresholds(profile, 10)
            above_p, _ = profile.tails(grid)
            needed = 2 + int(np.count_nonzero(above_p[1:] > rare))
            sketches.append((discretise(profile, grid[:needed]), count))
        deviation = math.sqrt(sum(count * sketch.variance() for sketch, count in sketches))
        largest = max(float(sketch.losses[-1]) for sketch, _ in sketches)
        return cls(tuple(sketches), max(deviation, 1e-6 * largest))  # all losses may be negligible

    def orders(self) -> FloatArray:
        """Return the tilts worth considering, for the composition of privacy losses."""
        return _ORDERS / self.deviation

    def cumulants(self, orders: FloatArray) -> FloatArray:
        """Return ln E e^{t·(total privacy loss)} for every t in ``orders``."""
        return np.asarray(np.sum([count * sketch.log_moments(orders) for sketch, count in self.sketches], axis=0))

    def order_for_delta(self, delta: float) -> float:
        """Return the tilt that minimises Chernoff's bound on epsilon, (ln E e^{tX} + ln 1/δ)/t."""
        orders = self.orders()
        return float(orders[np.argmin((self.cumulants(orders) - math.log(delta)) / orders)])

    def order_for_epsilon(self, epsilon: float) -> float:
        """Return the tilt that minimises Chernoff's bound on delta, ln E e^{tX} - tε."""
        orders = self.orders()
        return float(orders[np.argmin(self.cumulants(orders) - epsilon * orders)])

    def window(self, order: float, here: float) -> tuple[float, float, float]:
        """Return where the tilted total loss lies but for probability OUTSIDE on either side, by Chernoff's bound.

        ``here`` is the cumulant at ``order``. The third number is the further tilt that proves the upper end.
        """
        further = self.orders()
        highs = (self.cumulants(order + further) - here - math.log(OUTSIDE)) / further
        lows = (here - self.cumulants(order - further) + math.log(OUTSIDE)) / further
        return float(lows.max()), float(highs.min()), float(further[np.argmin(highs)])


@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """The composed loss above some point, and everything that must be added to its hockey-stick sum."""

    losses: FloatArray
    masses: FloatArray
    outside: float  # infinite losses, and finite ones above the window
    log_moment: float  # ln E e^{t·loss} at the tilt t
    order: float  # the tilt t
    rounding: float  # bound on the FFT's summed absolute error under the tilt

    def rounding_at(self, epsilon: float) -> float:
        """Return what rounding can contribute to delta: an error under the tilt weighs E e^{tX} e^{-tε} or less."""
        return math.exp(min(self.log_moment - self.order * epsilon, 500.0)) * self.rounding

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ(ε) of a composed privacy loss; below the window, where losses were not kept, 1."""
        if epsilon < self.losses[0]:
            return 1.0
        above = slice(np.searchsorted(self.losses, epsilon, side="right"), None)
        hockey_stick = float(np.sum(self.masses[above] * -np.expm1(epsilon - self.losses[above])))
        return min(1.0, hockey_stick + self.outside + self.rounding_at(epsilon))

    def dominating_shift(self, slack: float, below: float) -> tuple[float, float]:
        """Return the μ that ``dominating_shift`` needs for all ε from some point up to ``below``, and that point.

        For ε between two neighbouring losses, δ(ε) ≤ β - e^ε α with α the Q- and β the P-probability of all losses
        above, β with its allowances. If Φ(Φ⁻¹(α) + μ) ≥ β - slack, a test of N(μ,1) against N(0,1) attains that.
        """
        above = slice(np.searchsorted(self.losses, 0.0, side="right"), None)
        losses, masses = self.losses[above], self.masses[above]
        lower = np.maximum(np.append(self.losses[0], self.losses[:-1])[above], 0.0)  # where each interval of ε begins
        rounding = np.exp(np.minimum(self.log_moment - self.order * lower, 500.0)) * self.rounding
        tail = np.cumsum(masses[::-1])[::-1]
        beta = tail * (1 + 1e-9) + self.outside + rounding  # more than the rounding of these sums
        alpha = np.cumsum((masses * np.exp(-losses))[::-1])[::-1] * (1 - 1e-9)
        settled = lower[rounding < 1e-5 * tail]
        start = float(settled[0]) if len(settled) else below
        here = (beta > slack) & (lower >= start) & (lower < below)
        if not np.any(here):
            return 0.0, start
        most, least = map(scipy.special.ndtri, (np.minimum(beta[here] - slack, 1.0), alpha[here]))
        return float(np.max(most - least)), start

    def epsilon(self, delta: float) -> float:
        """Return the composed least ε, to ten digits and rounded up, with ``self.delta(ε) <= delta``; ∞ if none."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, float(self.losses[-1])
        if self.delta(high) > delta:
            return math.inf
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def compose(parts: Sequence[Part], moments: CumulantSketch, order: float) -> ComposedLoss:
    """Compose the privacy losses of all parts on one grid, tilted by ``order``."""
    cumulant = float(moments.cumulants(np.array([order]))[0])
    low, high, further = moments.window(order, cumulant)
    rounds = sum(count for _, count in parts)
    # Splitting adds up to step²/6 to a round's variance and half of that to its mean, so t(t+1)step²/12 to its
    # cumulant; epsilon is about (cumulant + ln 1/δ)/t.
    step = math.sqrt(12 * PRECISION * (20 + cumulant) / (rounds * order * (order + 1)))
    step = min(step, moments.deviation / math.sqrt(rounds) / 8, (high - low) / FEWEST_POINTS)
    step = max(step, (high - low) / (MOST_POINTS - 4))
    first = math.floor(low / step)
    points = 2 ** math.ceil(math.log2(math.ceil(high / step) - first + 2))
    top = (first + points) * step

    spectrum = np.ones(points // 2 + 1, dtype=np.complex128)
    log_moment = log_moment_further = log_finite = size = exponents = 0.0
    for (profile, count), (sketch, _) in zip(parts, moments.sketches, strict=True):
        grid = np.minimum(thresholds(profile, 200), sketch.losses[-1])
        indices = np.unique(np.ceil(grid / step).astype(np.int64))
        single = discretise(profile, step * indices)
        here, beyond = single.log_moments(np.array([order, order + further]))
        tilted = np.exp(order * single.losses - here + single.log_masses())
        positions = np.concatenate([-indices[:0:-1], indices]) % points
        wrapped = np.bincount(positions, weights=tilted, minlength=points)
        spectrum *= rfft(wrapped) ** float(count)
        log_moment += count * float(here)
        log_moment_further += count * float(beyond)
        log_finite += count * math.log1p(-single.infinite)
        size += count * math.sqrt(np.sum(wrapped**2))
        exponents += count * (32 + order * step * float(indices[-1]))

    losses = step * np.arange(first, first + points)
    tilted = np.roll(irfft(spectrum, points), -first)
    # An FFT of length m errs by at most γ√m‖x‖₂ in 2-norm, γ = 8 log2(m) 2⁻⁵³ (Higham, Accuracy and Stability of
    # Numerical Algorithms, Theorem 24.2). No frequency exceeds 1, so the errors of all factors add up; by Parseval and
    # Cauchy-Schwarz their 2-norm bounds the summed error of the outputs, to which the inverse FFT adds at most γ√m.
    # Tilting and its undoing add a relative error of 2⁻⁵⁰ per unit of their exponents.
    error = 8 * math.log2(points) * 2.0**-53 * math.sqrt(points) * (1 + size)
    error += 2.0**-50 * (exponents + abs(log_moment) + order * abs(top))
    rounding = error * math.exp(min(error, 500.0))
    above_window = math.exp(min(log_moment_further - (order + further) * top, 0.0))
    return ComposedLoss(
        losses=losses,
        masses=np.maximum(tilted, 0.0) * np.exp(np.minimum(log_moment - order * losses, 500.0)),
        outside=-math.expm1(log_finite) + above_window,
        log_moment=log_moment,
        order=order,
        rounding=rounding,
    )


@lru_cache(maxsize=4096)
def delta_bound(parts: tuple[Part, ...], epsilon: float) -> float:
    """Return an upper bound on the δ(ε) of all parts together, by their privacy loss distributions."""
    everything = CumulantSketch.of(parts, 0.0)
    order = everything.order_for_epsilon(epsilon)
    log_delta = float(everything.cumulants(np.array([order]))[0]) - order * epsilon
    # Chernoff's bound is proved too, since sketches err on the safe side like any other grid; it is often 100 δ.
    chernoff = math.exp(min(log_delta, 0.0)) + sum(count * sketch.infinite for sketch, count in everything.sketches)
    guess = best = min(1.0, chernoff)
    guess /= 100
    for share in NEGLIGIBLE[1:]:
        moments = CumulantSketch.of(parts, share * guess)
        composed = compose(parts, moments, moments.order_for_epsilon(epsilon))
        guess = best = min(best, composed.delta(epsilon))  # where the window missed epsilon, Chernoff's bound stays
        if composed.rounding_at(epsilon) < SETTLED * best:
            break
    return best


@lru_cache(maxsize=4096)  # planner, review, approval, charge and statement ask for the same composition
def epsilon_bound(parts: tuple[Part, ...], delta: float) -> float:
    """Return an upper bound on the ε at which all parts together have ``delta``; infinity if there is none."""
    best = math.inf
    for share in NEGLIGIBLE:
        moments = CumulantSketch.of(parts, share * delta)
        order = moments.order_for_delta(delta) if best == math.inf else moments.order_for_epsilon(best)
        composed = compose(parts, moments, order)
        epsilon = composed.epsilon(delta)
        best = min(best, epsilon)
        if composed.rounding_at(epsilon) < SETTLED * delta and epsilon > composed.losses[1]:
            break
    return best


@lru_cache(maxsize=4096)
def dominating_shift(parts: tuple[Part, ...], slack: float) -> float:
    """Return μ with which, at every ε of either sign, all parts together have δ(ε) ≤ δ_Gauss(μ; ε) + ``slack``.

    Infinity if none was found. Profiles are symmetric, δ(-ε) = 1 - e^-ε + e^-ε δ(ε) for both, so ε ≥ 0 is enough. One
    tilt after the other, each proves it from where its rounding errors are small up to where the last one began.
    """
    moments = CumulantSketch.of(parts, 1e-3 * slack)
    order, shift, below = moments.order_for_delta(slack / 8), 0.0, math.inf
    while below > 0:
        composed = compose(parts, moments, order)
        if below == math.inf and composed.outside + composed.rounding_at(float(composed.losses[-1])) > slack:
            return math.inf  # beyond the window
        needed, start = composed.dominating_shift(slack, below)
        if start >= below:
            return math.inf
        shift, below = max(shift, needed), start
        order = moments.order_for_epsilon(below)
    return shift * (1 + 1e-9)
